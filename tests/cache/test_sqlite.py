"""The SQLite cache: what happens to its file never reaches scoring, and never gives a wrong verdict."""

from __future__ import annotations

import os
import sqlite3
import threading
from pathlib import Path
from typing import Any

import pytest
from tests.cache.files import filled, warnings
from tests.contracts.cache_suite import PATIENCE, entry, key, store

from referee.cache import LayeredCache, MemoryCache, SqliteCache, file, run_all, schema, sqlite
from referee.cache.entry import bare
from referee.records import Reply


def test_entries_outlive_the_process(path: Path) -> None:
    """What one cache stored the next one finds, and the log is folded into the file."""
    filled(path)
    cache = SqliteCache(path)
    assert cache.get(key(3)) == bare(entry(3))
    cache.close()
    assert [found.name for found in path.parent.iterdir()] == ["cache.sqlite"]


def test_any_number_of_keys_is_looked_up_together(path: Path) -> None:
    """A judge of a large group asks tens of thousands of questions at once, more than one statement takes."""
    filled(path)
    cache = SqliteCache(path)
    keys = [key(number) for number in range(300_000)]
    assert cache.get_many(keys)[key(3)] == bare(entry(3))
    cache.close()


def test_files_are_private_whatever_the_umask(path: Path) -> None:
    """File, log and shared memory 0600, directory 0700; a file left open by an earlier umask is closed to others."""
    before = os.umask(0)
    try:
        cache = SqliteCache(path)
        store(cache, key(), entry())
        modes = {found.name: found.stat().st_mode & 0o777 for found in path.parent.iterdir()}
        assert modes == {"cache.sqlite": 0o600, "cache.sqlite-wal": 0o600, "cache.sqlite-shm": 0o600}
        assert path.parent.stat().st_mode & 0o777 == 0o700
        cache.close()
    finally:
        os.umask(before)
    path.chmod(0o644)
    SqliteCache(path).close()
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_commit_tells_all_its_listeners_at_once(path: Path) -> None:
    """The engine is called once per commit, not once per verdict."""
    batches: list[list[Any]] = []
    finished = threading.Event()
    gate = threading.Event()

    def notify(calls: list[Any]) -> None:
        batches.append(calls)
        gate.wait(PATIENCE)
        run_all(calls)

    cache = SqliteCache(path, notify)
    for number in range(40):
        cache.put(key(number), entry(number), lambda: None)
    cache.put(key(40), entry(40), finished.set)
    gate.set()
    assert finished.wait(PATIENCE)
    cache.close()
    assert sum(map(len, batches)) == 41
    assert len(batches) < 10


def test_a_listener_that_fails_does_not_stop_the_writer(path: Path) -> None:
    """A closed loop raises when it is told of a commit; later verdicts are stored all the same."""

    def fails(*_: Any) -> None:
        raise RuntimeError("loop is closed")

    heard = threading.Event()
    for notify in (fails, run_all):
        cache = SqliteCache(path, notify)
        cache.put(key(1), entry(1), fails)
        cache.put(key(2), entry(2), heard.set)
        cache.close()
    assert heard.is_set()
    again = SqliteCache(path)
    assert again.get(key(2)) == bare(entry(2))
    again.close()


def test_a_bug_in_storing_does_not_leave_callers_waiting(
    path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The writer reports it, gives up the file, and still calls everyone who waits."""

    def broken(*_: Any) -> bytes:
        raise KeyError("bug")

    monkeypatch.setattr(sqlite, "pack", broken)
    cache = SqliteCache(path)
    store(cache, key(1), entry(1))
    assert "KeyError" in cache.problem
    assert cache.put(key(2), entry(2)) is False
    cache.close()


def test_a_thread_that_cannot_start_is_no_error(
    path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At the end of the interpreter, or out of threads, verdicts stay in memory."""

    def refused(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    cache = SqliteCache(path)
    monkeypatch.setattr(threading.Thread, "start", refused)
    assert cache.put(key(1), entry(1), lambda: pytest.fail("called")) is False
    monkeypatch.undo()
    cache.close()
    assert len(warnings(caplog)) == 1


def test_close_writes_out_what_is_queued(path: Path) -> None:
    """Verdicts put just before the end are not lost."""
    cache = SqliteCache(path)
    for number in range(1000):
        cache.put(key(number), entry(number))
    cache.close()
    again = SqliteCache(path)
    assert again.stats()["rows"] == 1000
    again.close()


def test_after_close_nothing_is_promised(path: Path) -> None:
    """A put after the end says so, and does not call."""
    cache = SqliteCache(path)
    cache.close()
    assert cache.put(key(), entry(), lambda: pytest.fail("called")) is False
    assert cache.get(key()) is None
    assert cache.stats()["rows"] == 0


def test_a_verdict_that_cannot_be_written_down_is_skipped(path: Path) -> None:
    """Half a surrogate pair has no UTF-8; its neighbours in the commit are stored, and `done` is called."""
    cache = SqliteCache(path)
    cache.put(key(1), entry(1, reply=Reply(text="\ud800")))
    cache.put(key(2), entry(2, reply=Reply(text="", model="\ud800")))
    store(cache, key(3), entry(3))
    assert cache.get(key(1)) is None
    assert cache.get(key(3)) == bare(entry(3))
    cache.close()


# A file that cannot be used.


def check_degraded(path: Path, caplog: pytest.LogCaptureFixture, *words: str) -> None:
    """Scoring goes on with memory, with exactly one warning that names the setting."""
    cache = LayeredCache(MemoryCache(10), SqliteCache(path))
    assert cache.disk.problem
    for number in range(3):
        assert cache.put(key(number), entry(number), lambda: pytest.fail("called")) is False
        assert cache.get(key(number)) == bare(entry(number))
        assert cache.get(key(90 + number)) is None
    assert cache.disk.stats()["rows"] == 0
    assert cache.disk.stats()["problem"] == cache.disk.problem
    assert cache.disk.prune(everything=True) == 0
    assert cache.disk.find("") == []
    assert list(cache.disk.entries()) == []
    cache.close()
    (said,) = warnings(caplog)
    assert "cache.path" in said
    assert str(path) in said
    assert all(word in said for word in words), said


def test_a_directory_in_its_place(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Nothing can be written there; scoring goes on."""
    path.mkdir(parents=True)
    check_degraded(path, caplog)


def test_a_place_that_cannot_be_made(caplog: pytest.LogCaptureFixture) -> None:
    """A read-only place, of the kind that stops root as well."""
    check_degraded(Path("/proc/nowhere/cache.sqlite"), caplog)


def test_a_name_no_filesystem_takes(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Even that is a warning."""
    check_degraded(tmp_path / "bad\0name" / "cache.sqlite", caplog)


def test_a_home_that_is_not_known(caplog: pytest.LogCaptureFixture) -> None:
    """Nor does a path that cannot be made absolute stop anything."""
    check_degraded(Path("~no-such-user-here/cache.sqlite"), caplog)


def test_a_link(path: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A link may point anywhere; it is not followed."""
    path.parent.mkdir()
    target = tmp_path / "target"
    target.write_bytes(b"")
    path.symlink_to(target)
    check_degraded(path, caplog, "links are not followed")
    assert target.read_bytes() == b""


def test_another_users_file(path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever owns the file could have written any verdict into it."""
    filled(path)
    monkeypatch.setattr(os, "geteuid", lambda: path.stat().st_uid + 1)
    check_degraded(path, caplog, "another user")


def test_a_network_filesystem(path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    """SQLite's log is not safe there: memory only, and the setting to change is named."""
    monkeypatch.setattr(file, "_mounts", lambda: "server:/ / nfs4 rw 0 0")
    check_degraded(path, caplog, "nfs4", "local disk")
    assert not path.exists()


def test_another_applications_database(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """It is not written to, not even touched."""
    path.parent.mkdir()
    link = sqlite3.connect(path)
    link.execute("CREATE TABLE entry (key TEXT)")
    link.close()
    before = path.read_bytes(), path.stat().st_mode
    check_degraded(path, caplog, "left as it is")
    assert (path.read_bytes(), path.stat().st_mode) == before
    assert [found.name for found in path.parent.iterdir()] == [path.name]


def test_somebodys_text_file(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A path set to the wrong file does not cost that file its name."""
    path.parent.mkdir()
    path.write_text('{"prompt": "important"}\n' * 100)
    check_degraded(path, caplog, "left as it is")
    assert path.read_text().startswith('{"prompt"')


def of_format(path: Path, version: int) -> bytes:
    """A file of another version of referee; its bytes."""
    filled(path)
    link = sqlite3.connect(path)
    link.execute("DROP TABLE entry")
    link.execute("CREATE TABLE entry (mark INTEGER NOT NULL UNIQUE)")
    link.execute("INSERT INTO entry VALUES (7)")
    link.execute(f"PRAGMA user_version = {version}")
    link.commit()
    link.close()
    return path.read_bytes()


@pytest.mark.parametrize("version", [1, 2, 3])
def test_a_file_of_an_earlier_format(path: Path, caplog: pytest.LogCaptureFixture, version: int) -> None:
    """It is kept, byte for byte, under another name that one line tells; a new one is begun, and caching goes on."""
    before = of_format(path, version)
    filled(path)
    aside = path.with_name(f"{path.name}.format-{version}")
    assert aside.read_bytes() == before
    [record] = caplog.records
    assert aside.name in record.getMessage()
    again = SqliteCache(path)
    assert again.problem == ""
    assert again.stats()["rows"] > 0
    again.close()
    assert len(caplog.records) == 1


def test_a_file_of_a_later_format(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A newer referee may be using it: it is left as it is, and one line says what to do."""
    before = of_format(path, 99)
    check_degraded(path, caplog, "another version", "format 99", "move it away, or name another file")
    assert path.read_bytes() == before


def test_a_file_locked_from_the_start(
    path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Opening waits a little for another process, then goes on without the file."""
    filled(path)
    monkeypatch.setattr(schema, "WRITE_WAIT_S", 0.01)
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    check_degraded(path, caplog, "locked")
    other.execute("ROLLBACK")
    other.close()
