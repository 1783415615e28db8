"""Following ledger files while they are written: every line once, whatever the writer does."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from referee.ledger import Line, VerdictLine
from referee.report import follow
from referee.report.follow import Follower


def encoded(*ids: str) -> bytes:
    """Verdict lines with these ids."""
    return b"".join(msgspec.json.encode(VerdictLine(id=name)) + b"\n" for name in ids)


def ids(lines: list[tuple[str, Line]]) -> list[str]:
    return [line.id for _, line in lines if isinstance(line, VerdictLine)]


def append(path: Path, data: bytes) -> None:
    with path.open("ab") as stream:
        stream.write(data)


def new(follower: Follower) -> list[str]:
    """What one look finds."""
    follower.started_over()
    return ids(list(follower.look()))


def test_new_lines_and_new_files_are_found(tmp_path: Path) -> None:
    """A folder that is not there yet, then a file, then more of it, then another file."""
    run = tmp_path / "run"
    follower = Follower(run)
    assert new(follower) == []
    run.mkdir()
    assert new(follower) == []
    append(run / "ledger-a-1.jsonl", encoded("1", "2"))
    assert new(follower) == ["1", "2"]
    assert new(follower) == []
    append(run / "ledger-a-1.jsonl", encoded("3"))
    append(run / "ledger-b-2.jsonl", encoded("4"))
    append(run / "notes.txt", b"not a ledger\n")
    assert new(follower) == ["3", "4"]
    assert follower.files == 2


def test_a_torn_line_waits_for_its_end(tmp_path: Path) -> None:
    """Half a line is not a line, and not an error; its other half completes it."""
    path = tmp_path / "ledger-a-1.jsonl"
    data = encoded("1", "2")
    append(path, data[:-5])
    follower = Follower(tmp_path)
    assert new(follower) == ["1"]
    assert follower.torn == 1
    append(path, data[-5:])
    assert new(follower) == ["2"]
    assert (follower.torn, follower.skipped) == (0, 0)


def test_a_cut_file_is_read_again_from_the_beginning(tmp_path: Path) -> None:
    """Truncated or replaced: what was counted is void, and the follower says so."""
    path = tmp_path / "ledger-a-1.jsonl"
    append(path, encoded("1", "2", "3"))
    follower = Follower(tmp_path)
    assert len(new(follower)) == 3
    path.write_bytes(encoded("4"))
    assert follower.started_over()
    assert ids(list(follower.look())) == ["4"]
    other = tmp_path / "new"
    append(other, encoded("5", "6"))
    other.rename(path)
    assert follower.started_over()
    assert ids(list(follower.look())) == ["5", "6"]
    assert follower.restarts == 2
    assert not follower.started_over()


def test_a_file_moved_away_takes_nothing_back(tmp_path: Path) -> None:
    """Deleted files stay counted and do no harm."""
    path = tmp_path / "ledger-a-1.jsonl"
    append(path, encoded("1"))
    follower = Follower(tmp_path)
    assert new(follower) == ["1"]
    path.unlink()
    assert not follower.started_over()
    assert new(follower) == []


def test_what_is_not_a_line_is_counted(tmp_path: Path) -> None:
    """Garbage, lines of a newer version, blank lines: skipped, told apart."""
    path = tmp_path / "ledger-a-1.jsonl"
    append(
        path,
        b"garbage\n\n" + b'{"type":"newer","x":1}\n' + b'{"type":"verdict","id":5}\n' + b"\xff\xfe\n" + encoded("1"),
    )
    follower = Follower(path)
    assert new(follower) == ["1"]
    assert (follower.skipped, follower.unknown) == (3, 1)


def test_a_line_too_long_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Longer than any line of ours, written in pieces: what follows it is read."""
    monkeypatch.setattr(follow, "MAX_LINE", 1000)
    monkeypatch.setattr(follow, "CHUNK", 300)
    path = tmp_path / "ledger-a-1.jsonl"
    append(path, encoded("1") + b"x" * 2500)
    follower = Follower(tmp_path)
    assert new(follower) == ["1"]
    assert follower.torn == 1
    append(path, b"x" * 2500)
    assert new(follower) == []
    append(path, b"\n" + encoded("2"))
    assert new(follower) == ["2"]
    assert (follower.skipped, follower.torn) == (1, 0)


def test_a_long_past_is_read_in_several_looks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Catching up shows something after each look, and ends."""
    monkeypatch.setattr(follow, "CHUNK", 64)
    monkeypatch.setattr(follow, "AT_ONCE", 256)
    append(tmp_path / "ledger-a-1.jsonl", encoded(*(str(n) for n in range(100))))
    follower = Follower(tmp_path)
    found = new(follower)
    assert follower.behind
    looks = 1
    while follower.behind:
        found += new(follower)
        looks += 1
    assert found == [str(n) for n in range(100)]
    assert looks > 5


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_that_may_not_be_read_is_left(tmp_path: Path) -> None:
    """Another program's file in the folder stops nothing."""
    append(tmp_path / "ledger-a-1.jsonl", encoded("1"))
    append(tmp_path / "ledger-b-1.jsonl", encoded("2"))
    (tmp_path / "ledger-a-1.jsonl").chmod(0)
    assert new(Follower(tmp_path)) == ["2"]


@settings(deadline=None)
@given(st.lists(st.integers(1, 40), max_size=30), st.integers(1, 20))
def test_every_line_comes_once_however_it_is_written(
    tmp_path_factory: pytest.TempPathFactory, cuts: list[int], count: int
) -> None:
    """Cut at any bytes between two looks, the lines are all there, once, in order."""
    path = tmp_path_factory.mktemp("run") / "ledger-a-1.jsonl"
    data = encoded(*(f"é{n}" for n in range(count)))
    follower = Follower(path)
    found: list[str] = []
    for cut in cuts:
        append(path, data[:cut])
        data = data[cut:]
        found += new(follower)
    append(path, data)
    found += new(follower)
    assert found == [f"é{n}" for n in range(count)]
    assert follower.skipped == 0
