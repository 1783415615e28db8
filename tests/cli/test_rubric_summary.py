"""What `referee score` says of a rubric's criteria, and what the page and the metrics make of the same run."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from tests.cli.conftest import Run, Server, rows, write_config

from referee.ledger import read
from referee.ledger.metrics import metrics
from referee.report import build
from referee.report.data import Gathering
from referee.report.files import Rewards

CRITERIA = [
    {"name": "short", "text": "At most 50 words", "check": "max_words", "parameters": 50, "weight": 1},
    {
        "name": "apology",
        "text": "Apologises",
        "check": "contains",
        "parameters": "sorry",
        "true_is": "bad",
        "weight": 2,
    },
    {"name": "even", "text": "Has an even number", "check": "regex", "parameters": "[02468]$", "weight": 1},
    {"name": "judged", "text": "Is about apples", "weight": 4},
]


def test_the_summary_names_criteria_that_never_differ(
    tmp_path: Path, referee: Run, provider: Callable[..., Server]
) -> None:
    """Verdicts, the share without one, and what is always or never true; the record and the rewards file say the
    same."""
    write_config(tmp_path / "referee.toml", provider().url, '[judge]\nkind = "rubric"\n[cache]\npath = ""')
    with (tmp_path / "in.jsonl").open("w") as stream:
        for n in range(10):
            row = {"id": f"r{n}", "prompt": "p", "response": f"apples and {n}", "rubric": CRITERIA}
            stream.write(json.dumps(row) + "\n")
    done = referee("score", "in.jsonl", "-o", "out.jsonl")
    assert done.returncode == 0, done.stderr
    assert "  criteria: 4, 40 verdicts, 0.0% without one" in done.stderr
    (always,) = [line for line in done.stderr.splitlines() if "always true: " in line]
    (never,) = [line for line in done.stderr.splitlines() if "never true: " in line]
    assert "short" in always
    assert "apology (a fault)" in never
    assert "even" not in always + never
    assert [part["name"] for part in rows(tmp_path / "out.jsonl")[0]["parts"]] == [c["name"] for c in CRITERIA]
    recorded = metrics(read(tmp_path / "out.run"))
    rates = {name: recorded[f"criterion/{name}/pass_rate"] for name in ("short", "apology", "even")}
    assert rates == {"short": 1.0, "apology": 1.0, "even": 0.5}
    gathering = Gathering()
    for line in Rewards(tmp_path / "out.jsonl"):
        gathering.add(line)
    from_rewards, from_record = gathering.report().criteria, build(read(tmp_path / "out.run")).criteria
    assert [(one.name, one.judged, one.passed) for one in from_rewards] == [
        (one.name, one.judged, one.passed) for one in from_record
    ]
