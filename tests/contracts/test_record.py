"""What a hook says at the start of a run and the record it keeps by itself: one for all processes, never in the way."""

from __future__ import annotations

import errno
import io
import logging
import os
import re
import resource
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.contracts.adapter_suite import Write, answers, fair, sim_url, write_config
from typer.testing import CliRunner

from referee.cli.main import app
from referee.ledger import VerdictLine, read
from referee.records import Sample
from referee.trainers import record, shared
from referee.trainers.outcome import values
from referee.trainers.shared import Judged

__all__ = ["sim_url", "write_config"]

ABSTAIN = {"policy": "abstain"}
RUN = r"\d{8}T\d{6}Z-[0-9a-f]{8}"


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where records go, empty, as for a user who starts a run here."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(record, "RUNS", Path(".referee", "runs"))
    monkeypatch.setattr(shared, "_announced", set())  # what other tests of this process were told
    return tmp_path / ".referee" / "runs"


def score(judged: Judged, *marks: int) -> list[float | None]:
    """Judge answers with these marks."""
    return values(judged.score([Sample(prompt="q", response=text, group="g") for text in answers(*marks)]))


def start_lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [one.getMessage() for one in caplog.records if one.name == "referee.trainers" and "runtime" in one.message]


def test_the_start_is_said_once_and_names_what_a_user_checks(
    runs: Path, write_config: Write, caplog: pytest.LogCaptureFixture
) -> None:
    """Judge, model, runtime, limit and folder, with the command that reads it; a second batch and hook add nothing."""
    caplog.set_level(logging.INFO)
    path = write_config(ABSTAIN, limits={"max_concurrency": 7, "rpm": 500})
    for _ in range(2):
        assert score(Judged(path), 3, 9) == fair(3, 9)
    [line] = start_lines(caplog)
    [folder] = runs.glob("*-*")
    for part in ("(score) by simulated at ", "runtime thread", "auto up to 7", "rpm 500", str(folder)):
        assert part in line
    assert line.endswith(f"to read it: referee report {folder}")


def test_without_logging_the_start_is_said_on_stderr(
    runs: Path, write_config: Write, capsys: pytest.CaptureFixture[str]
) -> None:
    """Where nobody set up logging at INFO, as in most training scripts."""
    score(Judged(write_config(ABSTAIN)), 5)
    assert re.search(rf"^referee: .*runtime thread.*{RUN}$", capsys.readouterr().err, re.M)


def test_a_level_set_for_our_loggers_is_kept(
    runs: Path, write_config: Write, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who asks for warnings only is told nothing."""
    monkeypatch.setattr(logging.getLogger("referee"), "level", logging.WARNING)
    score(Judged(write_config(ABSTAIN)), 5)
    assert "runtime" not in capsys.readouterr().err


def test_the_record_is_what_the_named_command_reads(runs: Path, write_config: Write) -> None:
    """Every verdict with its text, in a folder for the owner alone that git does not see; the report takes it."""
    judged = Judged(write_config(ABSTAIN))
    score(judged, 3, 9, 5)
    judged.close()
    [folder] = runs.glob("*-*")
    assert re.fullmatch(RUN, folder.name)
    assert folder.stat().st_mode & 0o077 == 0
    assert (runs / ".gitignore").read_text() == "*\n"
    assert sum(isinstance(line, VerdictLine) for line in read(folder)) == 3
    done = CliRunner().invoke(app, ["report", str(folder), "-o", "report.html"])
    assert done.exit_code == 0, done.output
    assert "3 samples" in done.output


def test_an_empty_folder_name_switches_the_record_off(
    runs: Path, write_config: Write, caplog: pytest.LogCaptureFixture
) -> None:
    """Nothing is written, and the start says so."""
    caplog.set_level(logging.INFO)
    score(Judged(write_config(ABSTAIN, ledger={"dir": ""})), 5)
    assert not runs.exists()
    assert start_lines(caplog)[0].endswith("no record")


RANK = """
import sys
from referee.records import Sample
from referee.trainers.outcome import values
from referee.trainers.shared import Judged, close_all
judged = Judged(sys.argv[1])
print(values(judged.score([Sample(prompt="q", response="[[quality=10]]")])))
close_all()
"""


def ranks(path: Path, count: int, **how: Any) -> list[tuple[str, str]]:
    """What processes of one launcher print and say."""
    env = {**os.environ, "WORLD_SIZE": str(count)}
    started = [
        subprocess.Popen(
            [sys.executable, "-c", RANK, str(path)],
            env={**env, "RANK": str(rank)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            **how,
        )
        for rank in range(count)
    ]
    return [process.communicate(timeout=50) for process in started]


def test_ranks_share_a_folder_and_one_of_them_tells(runs: Path, write_config: Write) -> None:
    """Each writes a file of its own there. The line says that limits are each rank's."""
    said = ranks(write_config(ABSTAIN), 2)
    assert [out for out, _ in said] == ["[1.0]\n"] * 2
    [folder] = runs.glob("*-*")
    assert len(list(folder.glob("ledger-*.jsonl"))) == 2
    [line] = [err for _, err in said if err]
    assert "for each of 2 ranks" in line


def test_a_full_disk_costs_the_record_only(runs: Path, write_config: Write) -> None:
    """No file may grow, as on a disk that fills up: there is one warning, and the answers are judged."""

    def no_room() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (2, 2))

    [(out, err)] = ranks(write_config(ABSTAIN), 1, preexec_fn=no_room)
    assert out == "[1.0]\n"
    assert err.count("lines are being lost") == 1
    assert "Traceback" not in err


def in_a_fork(what: Callable[[], bool]) -> bool:
    """Whether it is true in a child of this process."""
    pid = os.fork()
    if pid == 0:
        try:
            ok = what()
        except BaseException:
            ok = False
        os._exit(0 if ok else 1)
    return os.waitpid(pid, 0)[1] == 0


def test_a_forked_worker_writes_beside_its_parent(
    runs: Path, write_config: Write, capfd: pytest.CaptureFixture[str]
) -> None:
    """As with a loader's num_workers: the same folder, a file of its own, and nothing said again."""
    judged = Judged(write_config(ABSTAIN))
    score(judged, 5)
    capfd.readouterr()
    assert in_a_fork(lambda: score(judged, 7) == fair(7))
    [folder] = runs.glob("*-*")
    assert len(list(folder.glob("ledger-*.jsonl"))) == 2
    assert "runtime" not in capfd.readouterr().err


@pytest.mark.parametrize("named", [False, True])
def test_a_folder_that_is_gone_after_a_fork_costs_the_record_only(
    named: bool, runs: Path, write_config: Write, caplog: pytest.LogCaptureFixture
) -> None:
    """Also one that the user named: it could be written before."""
    judged = Judged(write_config(ABSTAIN, **({"ledger": {"dir": str(runs / "1-1")}} if named else {})))
    score(judged, 5)
    [folder] = runs.glob("*-*")
    shutil.rmtree(folder)
    folder.write_text("in the way")
    assert in_a_fork(lambda: score(judged, 7, 3) == fair(7, 3) and "no record" in caplog.text)


def test_where_nothing_can_be_written_the_run_goes_on(
    runs: Path, write_config: Write, caplog: pytest.LogCaptureFixture
) -> None:
    """A warning names the place and the setting; the answers are judged."""
    (runs.parent).write_text("a file in the way")
    assert score(Judged(write_config(ABSTAIN)), 3, 9) == fair(3, 9)
    [warned] = [one.getMessage() for one in caplog.records if one.levelno >= logging.WARNING]
    assert str(runs) in warned
    assert "[ledger] dir" in warned


class Full(io.StringIO):
    """A file on a full disk."""

    def write(self, text: str, /) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize("stderr", [None, Full()], ids=["closed", "full"])
def test_a_stderr_that_takes_nothing_stops_no_run(
    stderr: io.StringIO | None, runs: Path, write_config: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The start cannot be said there, and nothing is lost but that."""
    monkeypatch.setattr(sys, "stderr", stderr)
    assert score(Judged(write_config(ABSTAIN)), 3) == fair(3)
