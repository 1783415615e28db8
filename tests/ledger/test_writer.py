"""The writer: whole lines or none, private files, and a broken disk that costs lines but nothing else."""

from __future__ import annotations

import errno
import logging
import os
import stat
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from referee.config import LedgerConfig
from referee.errors import ConfigError
from referee.ledger import (
    BatchLine,
    Ledger,
    NullLedger,
    RunLine,
    VerdictLine,
    open_ledger,
    read,
    writer,
)

posix = pytest.mark.skipif(os.name != "posix", reason="POSIX file modes and fork")


def batch(name: Any) -> BatchLine:
    return BatchLine(batch=str(name))


def names(path: Path) -> list[str]:
    return [line.batch for line in read(path) if isinstance(line, BatchLine)]


def test_lines_are_in_the_file_after_a_flush(tmp_path: Path) -> None:
    """Not before, then all of them, in order, and close flushes too."""
    ledger = Ledger(tmp_path)
    ledger.append(batch(1))
    ledger.append(batch(2))
    assert ledger.path.read_bytes() == b""
    ledger.flush()
    ledger.flush()
    assert names(ledger.path) == ["1", "2"]
    ledger.append(batch(3))
    ledger.close()
    assert names(ledger.path) == ["1", "2", "3"]
    assert ledger.lost == 0


def test_a_flush_writes_many_lines_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A line by itself would cost a system call each."""
    disk = Disk([])
    monkeypatch.setattr(writer, "os", disk)
    ledger = Ledger(tmp_path)
    for number in range(3 * writer.TOGETHER):
        ledger.append(batch(number))
    ledger.flush()
    assert disk.writes == 3


@posix
def test_files_are_private(tmp_path: Path) -> None:
    """The folder is made 0700, the file 0600, whatever the umask would allow."""
    before = os.umask(0)
    try:
        ledger = Ledger(tmp_path / "runs" / "one")
    finally:
        os.umask(before)
    assert stat.S_IMODE(ledger.folder.stat().st_mode) == 0o700
    assert stat.S_IMODE(ledger.path.stat().st_mode) == 0o600
    ledger.close()


@posix
def test_a_planted_link_is_not_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file or link of the ledger's name that is there already is left alone, and another name is taken."""
    monkeypatch.setattr(writer.clock, "wall", lambda: 1_700_000_000.0)
    target = tmp_path / "target"
    planted = tmp_path / f"ledger-20231114T221320Z-{os.getpid()}.jsonl"
    planted.symlink_to(target)
    first, second = Ledger(tmp_path), Ledger(tmp_path)
    assert first.path.name == f"ledger-20231114T221320Z-{os.getpid()}-1.jsonl"
    assert second.path.name == f"ledger-20231114T221320Z-{os.getpid()}-2.jsonl"
    assert not target.exists()
    first.close()
    second.close()


def test_a_folder_that_cannot_be_used_is_a_config_error(tmp_path: Path) -> None:
    """Said at once, with the setting and the folder."""
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match=r"ledger\.dir") as caught:
        Ledger(tmp_path / "file")
    assert str(tmp_path / "file") in str(caught.value)
    assert caught.value.setting == "ledger.dir"


def test_closing_twice_is_fine_and_later_lines_are_counted(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Nothing raises after close; what came too late is lost, and counted."""
    ledger = Ledger(tmp_path)
    ledger.close()
    ledger.close()
    ledger.append(batch(1))
    ledger.flush()
    assert ledger.lost == 1
    assert "closed" in repr(ledger)
    assert "closed" in caplog.text


def test_a_full_buffer_writes_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lines do not pile up in memory when nobody flushes."""
    monkeypatch.setattr(writer, "WAITING", 10)
    ledger = Ledger(tmp_path)
    for number in range(50):
        ledger.append(batch(number))
        assert len(ledger._waiting) < 10
    for number in range(50, 100):
        ledger.append_encoded(msgspec.json.encode(batch(number)) + b"\n", 1)
        assert not ledger._waiting
    ledger.close()
    assert names(ledger.path) == [str(number) for number in range(100)]


def test_a_line_too_long_for_the_reader_is_not_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is lost and counted, the others are kept."""
    monkeypatch.setattr(writer, "MAX_LINE", 200)
    ledger = Ledger(tmp_path)
    ledger.append(VerdictLine(prompt="x" * 300))
    ledger.append(batch(1))
    ledger.close()
    assert names(ledger.path) == ["1"]
    assert ledger.lost == 1


def test_half_characters_are_replaced(tmp_path: Path) -> None:
    """Text that no encoding has costs a character, not the line."""
    ledger = Ledger(tmp_path)
    ledger.append(VerdictLine(id="a", prompt="x\ud800y", asked="\udfff"))
    ledger.append(RunLine(config={"k\ud800": ["\ud800", 1, None]}))
    ledger.close()
    verdict, run = list(read(ledger.path))
    assert isinstance(verdict, VerdictLine)
    assert (verdict.id, verdict.prompt, verdict.asked) == ("a", "x?y", "?")
    assert isinstance(run, RunLine)
    assert run.config == {"k?": ["?", 1, None]}


@pytest.mark.parametrize("value", [object(), {1, object()}])
def test_what_cannot_be_json_is_lost_and_counted(tmp_path: Path, value: Any) -> None:
    """A value of a wrong type somewhere upstream does not stop the run."""
    ledger = Ledger(tmp_path)
    ledger.append(RunLine(config={"x": value}))
    ledger.append(batch(1))
    ledger.close()
    assert (names(ledger.path), ledger.lost) == (["1"], 1)


def test_a_number_that_is_none_keeps_the_file_valid(tmp_path: Path) -> None:
    """NaN is never written as such: the line is skipped by the reader, its neighbours are read."""
    ledger = Ledger(tmp_path)
    ledger.append(VerdictLine(cost=float("nan")))
    ledger.append(batch(1))
    ledger.close()
    for data in ledger.path.read_bytes().splitlines():
        msgspec.json.decode(data)
    assert names(ledger.path) == ["1"]


class Disk:
    """The os module, with a disk that fails as told: each write takes the next answer, bytes to accept or an error."""

    def __init__(self, answers: list[int | OSError]) -> None:
        self.answers = answers
        self.writes = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(os, name)

    def write(self, fd: int, data: bytes) -> int:
        self.writes += 1
        if not self.answers:
            return os.write(fd, data)
        answer = self.answers.pop(0)
        if isinstance(answer, OSError):
            raise answer
        return os.write(fd, data[:answer])


FULL = OSError(errno.ENOSPC, "No space left on device")


def test_a_write_taken_in_pieces_is_finished(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Short writes are continued where they stopped."""
    monkeypatch.setattr(writer, "os", Disk([3, 10, 1]))
    ledger = Ledger(tmp_path)
    ledger.append(batch(1))
    ledger.append(batch(2))
    ledger.close()
    assert (names(ledger.path), ledger.lost) == (["1", "2"], 0)


def test_a_full_disk_is_said_once_and_work_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Lines are lost and counted; when there is room again, the line it stopped in is finished and others follow."""
    monkeypatch.setattr(writer, "os", Disk([FULL, 40, FULL, OSError(errno.EIO, "Input/output error")]))
    ledger = Ledger(tmp_path)
    with caplog.at_level(logging.WARNING, "referee.ledger"):
        ledger.append(batch(1))
        ledger.flush()
        ledger.append(batch(2))
        ledger.append(batch(3))
        ledger.flush()
        ledger.append(batch(4))
        ledger.flush()
        ledger.append(batch(5))
        ledger.flush()
    ledger.close()
    assert [record.name for record in caplog.records] == ["referee.ledger"]
    assert "No space left" in caplog.text
    assert str(ledger.path) in caplog.text
    reading = read(ledger.path)
    assert [line.batch for line in reading if isinstance(line, BatchLine)] == ["2", "3", "5"]
    assert (reading.skipped, reading.torn, ledger.lost) == (0, 0, 2)


def test_a_line_that_stays_unfinished_is_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If there is no room until the end, the torn line counts as lost, and the reader sees it as torn."""
    monkeypatch.setattr(writer, "os", Disk([40, FULL, 5, FULL, FULL]))
    ledger = Ledger(tmp_path)
    ledger.append(batch(1))
    ledger.append(batch(2))
    ledger.flush()
    assert ledger.lost == 0
    ledger.append(batch(3))
    ledger.flush()
    ledger.close()
    reading = read(ledger.path)
    assert list(reading) == [batch(1)]
    assert (reading.skipped, reading.torn, ledger.lost) == (0, 1, 2)


def test_a_disk_that_takes_nothing_does_not_hang(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A write of zero bytes is a failure, not a reason to try for ever."""
    monkeypatch.setattr(writer, "os", Disk([0]))
    ledger = Ledger(tmp_path)
    ledger.append(batch(1))
    ledger.flush()
    assert ledger.lost == 1


@given(
    sizes=st.lists(st.integers(1, 4), min_size=1, max_size=8),
    answers=st.lists(st.one_of(st.integers(0, 90), st.just(FULL)), max_size=12),
)
@settings(deadline=None, max_examples=150)
def test_every_line_is_in_the_file_or_counted_as_lost(sizes: list[int], answers: list[int | OSError]) -> None:
    """However the disk fails, what is read back is whole, in order, and what is missing is known."""
    patch = pytest.MonkeyPatch()
    with tempfile.TemporaryDirectory() as folder, patch.context() as patched:
        patched.setattr(writer, "os", Disk(list(answers)))
        ledger, appended = Ledger(folder), 0
        for size in sizes:
            for _ in range(size):
                ledger.append(batch(appended))
                appended += 1
            ledger.flush()
        ledger.close()
        reading = read(ledger.path)
        found = [int(line.batch) for line in reading if isinstance(line, BatchLine)]
    assert found == sorted(set(found))
    assert len(found) + ledger.lost == appended
    assert reading.skipped == 0


def test_threads_share_a_ledger(tmp_path: Path) -> None:
    """Lines from several threads all arrive, none torn."""
    ledger = Ledger(tmp_path)

    def work(name: str) -> None:
        for number in range(200):
            ledger.append(batch(f"{name}{number}"))
            if number % 10 == 0:
                ledger.flush()

    threads = [threading.Thread(target=work, args=(name,)) for name in "abc"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    ledger.close()
    found = names(ledger.path)
    assert len(found) == 600
    assert [name for name in found if name[0] == "b"] == [f"b{number}" for number in range(200)]


def test_a_child_starts_its_own_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a fork, even with the lock held, the child writes elsewhere and repeats nothing but the run line."""
    ledger = Ledger(tmp_path)
    ledger.append(RunLine(version="1", pid=os.getpid()))
    ledger.append(batch("parent"))
    mine, parent_fd = ledger.path, os.dup(ledger._fd)

    class Child(Disk):
        def getpid(self) -> int:
            return 424242

    ledger._lock.acquire()
    monkeypatch.setattr(writer, "os", Child([]))
    ledger.append(batch("child"))
    ledger.close()
    os.close(parent_fd)
    assert ledger.path != mine
    run, line = list(read(ledger.path))
    assert isinstance(run, RunLine)
    assert (run.version, run.pid) == ("1", 424242)
    assert line == batch("child")
    assert mine.read_bytes() == b""


def test_a_child_that_writes_nothing_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Flushing and closing in a forked worker that never judged makes nothing."""
    ledger = Ledger(tmp_path)
    ledger.append(RunLine(version="1"))
    ledger.flush()

    class Child(Disk):
        def getpid(self) -> int:
            return 424242

    monkeypatch.setattr(writer, "os", Child([]))
    ledger.flush()
    ledger.close()
    assert len(list(tmp_path.iterdir())) == 1


FORK = """
import os, sys
from referee.ledger import BatchLine, Ledger
ledger = Ledger(sys.argv[1])
ledger.append(BatchLine(batch="before"))
child = os.fork()
ledger.append(BatchLine(batch="child" if child == 0 else "parent"))
ledger.close()
if child:
    assert os.waitpid(child, 0)[1] == 0
"""


@posix
def test_a_real_fork_gives_two_whole_files(tmp_path: Path) -> None:
    """Parent and child each have their lines, once."""
    subprocess.run([sys.executable, "-c", FORK, str(tmp_path)], check=True, timeout=50)
    assert sorted(names(path) for path in tmp_path.iterdir()) == [["before", "parent"], ["child"]]


def test_no_folder_means_no_ledger(tmp_path: Path) -> None:
    """The null ledger takes everything and does nothing."""
    null = open_ledger(LedgerConfig())
    assert isinstance(null, NullLedger)
    null.append(batch(1))
    null.flush()
    null.close()
    assert not null.enabled
    real = open_ledger(LedgerConfig(dir=str(tmp_path / "runs"), content=False))
    assert isinstance(real, Ledger)
    assert real.enabled
    assert not real.content
    real.close()


def test_lines_that_are_encoded_already_are_taken_as_they_are(tmp_path: Path) -> None:
    """Whole lines from elsewhere stand in the file between our own, and count when they are lost."""
    ledger = Ledger(tmp_path)
    ledger.append(batch(1))
    ledger.append_encoded(b'{"type":"batch","batch":"2"}\n{"type":"batch","batch":"3"}\n', 2)
    ledger.append(batch(4))
    ledger.close()
    assert len(ledger.path.read_bytes().splitlines()) == 4
    ledger.append_encoded(b"{}\n{}\n", 2)
    assert ledger.lost == 2


def test_both_ledgers_offer_the_same() -> None:
    """The writers of lines need not ask which one they have."""
    public = {name for name in dir(NullLedger) if not name.startswith("_")}
    assert public == {"append", "append_encoded", "close", "content", "enabled", "extend", "flush", "lost"}
    NullLedger().append(batch(1))
