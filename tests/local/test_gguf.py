"""provider = "local" with a real file: from Python, in worker processes and from the command line."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.local.test_shared import all_ended, users

from referee.config import load
from referee.errors import ConfigError
from referee.local import demo_rollouts, embedded_config, separation, shared
from referee.local.model import missing, weights
from referee.records import Reason, Sample, Unscored
from referee.referee import Referee

pytestmark = [
    pytest.mark.local,
    pytest.mark.skipif(bool(missing()), reason=missing() or "installed"),
    pytest.mark.timeout(600),
]


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Servers of this test alone."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(shared.tempfile, "tempdir", None)


def settings(path: Path, **local: Any) -> dict[str, Any]:
    """The embedded judge's question, asked of a file."""
    given = embedded_config()
    endpoint = {"provider": "local", "model": str(path), "local": {"template": "plain", **local}}
    return {
        "judge": given["judge"],
        "endpoint": {**endpoint, "extra": given["endpoint"]["extra"]},
        "limits": {"concurrency": 2, "attempt_timeout": 120.0},
        "cache": {"path": ""},
    }


def some() -> list[tuple[Sample, str]]:
    """A few good and bad answers."""
    labelled = demo_rollouts()
    good = [one for one in labelled if one[1] == "good"][:2]
    return good + [one for one in labelled if one[1] == "bad"][:2]


@pytest.mark.parametrize("runtime", ["thread", "processes"])
def test_a_file_judges_and_its_server_ends(tmp_path: Path, runtime: str) -> None:
    """The same verdicts wherever judging runs, by one server for all workers, which is gone afterwards."""
    labelled = some()
    with Referee.from_config({**settings(weights()), "runtime": runtime}) as referee:
        rewards = referee.score([sample for sample, _ in labelled])
        assert len(users(tmp_path)) == 1
        assert all(reward.scored for reward in rewards)
        assert {reward.settled.model for reward in rewards} <= {weights().stem, ""}  # a gate has none
        assert referee.metrics()["cost_usd"] == 0.0
    scored = [(label, reward.value or 0.0) for (_, label), reward in zip(labelled, rewards, strict=True)]
    assert separation(scored) > 0.4
    assert all_ended(tmp_path)


def test_the_command_line_needs_only_a_path(tmp_path: Path) -> None:
    """`referee score` starts the server and leaves nothing behind."""
    given = settings(Path("judge.gguf"))
    (tmp_path / "judge.gguf").symlink_to(weights())
    (tmp_path / "rollouts.jsonl").write_text(
        "".join(
            json.dumps({"id": str(n), "prompt": s.prompt, "response": s.response, "reference": s.reference}) + "\n"
            for n, (s, _) in enumerate(some())
        )
    )
    lines = ["[judge]"]
    lines += [f"{name} = {json.dumps(value)}" for name, value in given["judge"].items()]
    lines += ["[endpoint]", 'provider = "local"', 'model = "judge.gguf"', 'extra = { stop = ["\\n"] }']
    lines += ["[endpoint.local]", 'template = "plain"', "[limits]", "concurrency = 2", "attempt_timeout = 120"]
    (tmp_path / "referee.toml").write_text("\n".join(lines))
    main = "import sys; from referee.cli.main import main; main()"
    command = [sys.executable, "-c", main, "score", "rollouts.jsonl", "-o", "out.jsonl", "-c", "referee.toml"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=500, check=False)
    assert done.returncode == 0, done.stderr
    rows = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert len(rows) == len(some())
    assert all(row["value"] is not None for row in rows)
    assert all_ended(tmp_path)


def test_without_a_path_the_shipped_model_judges(tmp_path: Path) -> None:
    """As it did before, under its own name."""
    given = settings(Path("x.gguf"))
    del given["endpoint"]["model"], given["endpoint"]["local"]
    with Referee.from_config(given) as referee:
        reward = referee.score([some()[0][0]])[0]
    assert reward.scored
    assert reward.settled.model.startswith("smollm2")
    assert all_ended(tmp_path)


def test_a_prompt_beyond_the_context_is_too_long(tmp_path: Path) -> None:
    """The setting reaches the server."""
    with Referee.from_config(settings(weights(), context=256)) as referee:
        verdict = referee.score([some()[0][0]])[0].verdict
    assert isinstance(verdict, Unscored)
    assert verdict.reason is Reason.TOO_LONG
    assert all_ended(tmp_path)


def test_a_damaged_file_is_an_error_before_anything_is_judged(tmp_path: Path) -> None:
    """It begins like one, and llama.cpp cannot read it."""
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(weights().read_bytes()[:4096])
    with pytest.raises(ConfigError, match="embedded judge"):
        Referee(load(settings(broken)))
    assert all_ended(tmp_path)
