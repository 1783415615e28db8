"""The example that docs/trainers/trl.md shows trains, with a small random model and a simulated judge."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest
from tests.trainers.trl_tiny import model, quietly, tokenizer

from referee.ledger import VerdictLine, read
from referee.trainers import record
from referee.trainers.shared import close_all

pytest.importorskip("trl")
pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.timeout(300)]
EXAMPLES = Path(__file__).parent.parent.parent / "examples" / "trainers"


def test_the_example_trains(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two steps with the reference model, attached; every step's reward comes from the judge and is in the record."""
    quietly("trl")
    monkeypatch.syspath_prepend(EXAMPLES)
    monkeypatch.setenv("REFEREE_CONFIG", "")
    monkeypatch.setenv("REFEREE_JUDGE_GATES_TRUNCATED", "off")  # the random model hardly ever ends an answer
    monkeypatch.setattr(record, "RUNS", tmp_path / "runs")
    tokens = tokenizer()
    model(tokens).save_pretrained(tmp_path / "model")
    tokens.save_pretrained(tmp_path / "model")
    example, simulated = importlib.import_module("trl_grpo"), importlib.import_module("simulated")
    settings = {"use_cpu": True, "bf16": False, "gradient_checkpointing": False, "report_to": "none"}
    quick = {"max_steps": 2, "max_completion_length": 12, "logging_steps": 1, "save_strategy": "no"}
    with simulated.simulated_judge() as config:
        trainer = example.train(
            str(tmp_path / "model"), str(config), output_dir=str(tmp_path / "out"), **settings, **quick
        )
    rows = [row for row in trainer.state.log_history if "rewards/referee/mean" in row]
    assert len(rows) == 2
    assert all(row["referee/unscored_share"] == 0 for row in rows)
    assert any(row["rewards/referee/mean"] > 0 for row in rows)
    assert "_generate" not in trainer.__dict__
    close_all()
    [folder] = (tmp_path / "runs").glob("*-*")
    assert {line.step for line in read(folder) if isinstance(line, VerdictLine)} == {0, 1}
    for name in ("trl_grpo", "simulated"):
        sys.modules.pop(name)
