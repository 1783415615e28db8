"""The audit's questions about a run that is over."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from tests.audit.world import World, lines

from referee.cli.audit_ask import asked_now
from referee.errors import InputError
from referee.ledger import AuditLine, VerdictLine
from referee.sim import ProviderSpec, ServerProcess, start_server_process

TOML = """
[[endpoint]]
name = "main"
url = "{url}"
model = "m"
key_env = ""
[[endpoint]]
name = "other"
url = "{url}"
model = "s"
key_env = ""
[[judge]]
name = "quality"
endpoint = "main"
[[judge]]
name = "check"
endpoint = "other"
weight = 0
[audit]
shadow = "check"
[cache]
path = ""
"""


@pytest.fixture(scope="module")
def server() -> Any:
    with start_server_process(ProviderSpec(), 1) as found:
        yield found


def recorded(folder: Path, **ledger: Any) -> Path:
    """A run of twelve steps."""
    made = World({"ledger": {"dir": str(folder), **ledger}, "judge": [{"name": "quality", "endpoint": "main"}]})
    made.run(12)
    made.referee.close()
    return folder


def test_every_kind_of_question_is_asked_within_the_number(
    tmp_path: Path, server: ServerProcess, capsys: pytest.CaptureFixture[str]
) -> None:
    """Said before; answers name the live samples of the run, whose values are those recorded."""
    folder, path = recorded(tmp_path / "run"), tmp_path / "referee.toml"
    path.write_text(TOML.format(url=server.url))
    before = server.stats().received
    told = asked_now(folder, path, 120)
    assert server.stats().received - before <= 120
    kinds = Counter(line.what for line in told)
    assert set(kinds) == {"canary", "shadow", "probe", "fixed"}
    assert min(kinds.values()) >= 8
    assert all(isinstance(line, AuditLine) for line in told)
    said = {(line.batch, line.index): line.value for line in lines(folder, VerdictLine)}
    for line in told:
        if line.what in ("shadow", "fixed"):
            assert line.before == said[line.batch, line.index]
    shadow = [line.step for line in told if line.what == "shadow" and line.step is not None]
    assert min(shadow) < 4
    assert max(shadow) > 7
    asking, answers = capsys.readouterr().err.splitlines()[-2:]
    assert asking.startswith("asking ")
    assert answers == f"{len(told)} answers"


def test_a_record_without_texts_cannot_be_asked_about(tmp_path: Path, server: ServerProcess) -> None:
    """That is said before anything is spent."""
    folder, path = recorded(tmp_path / "run", content=False), tmp_path / "referee.toml"
    path.write_text(TOML.format(url=server.url))
    before = server.stats().received
    with pytest.raises(InputError, match="content = false"):
        asked_now(folder, path, 60)
    assert server.stats().received == before
