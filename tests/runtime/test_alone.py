"""Judges that another names travel to worker processes and Ray engines inside it."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.engine.harness import expected, samples

from referee import Referee
from referee.config import load
from referee.records import Verdict
from referee.runtime.ray_settings import engine_names, key_tag, seal, unseal
from referee.sim import ProviderSpec, start_server_process

JUDGES = [{"name": "group", "kind": "listwise", "alone": "one"}, {"name": "one", "kind": "score"}]


def test_a_lone_sample_is_judged_by_the_named_judge_in_a_worker_process() -> None:
    """Every sample without a group is one."""
    with start_server_process(ProviderSpec(), 1) as server:
        config = {"judge": JUDGES, "endpoint": {"url": server.url, "model": "m", "key_env": ""}, "cache": {"path": ""}}
        with Referee(load({**config, "runtime": "processes"})) as referee:
            given = samples(6)
            verdicts = [reward.settled.verdict for reward in referee.submit(given).result()]
    assert [verdict.score for verdict in verdicts if isinstance(verdict, Verdict)] == expected(given)


def test_its_template_travels_to_a_ray_engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Which need not have the file; another text is another engine."""
    path = tmp_path / "template.txt"
    path.write_text("{{prompt}} {{response}} Be strict.")
    one = {**JUDGES[1], "prompt_file": str(path)}
    config = load({"judge": [JUDGES[0], one], "endpoint": {"model": "m", "key_env": ""}, "runtime": "ray"})
    sealed, names = seal(config, False), engine_names(config)
    path.write_text("{{prompt}} {{response}} Be mild.")
    assert engine_names(config) != names
    path.unlink()
    found = unseal(sealed, key_tag([None]))
    assert found is not None
    kept = Path(found.judge[0].uses[0].prompt_file)
    assert kept.read_text() == "{{prompt}} {{response}} Be strict."
    kept.unlink()
