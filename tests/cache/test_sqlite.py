"""The SQLite cache: what happens to its file never reaches scoring, and never gives a wrong verdict."""

from __future__ import annotations

import logging
import os
import random
import shutil
import sqlite3
import threading
from pathlib import Path
from typing import Any

import pytest
from tests.contracts.cache_suite import PATIENCE, entry, key, store

from referee.cache import LayeredCache, MemoryCache, SqliteCache, file, open_cache, schema, sqlite
from referee.cache.entry import bare
from referee.config import CacheConfig
from referee.errors import ConfigError
from referee.records import Reply


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "c" / "cache.sqlite"


def filled(path: Path, rows: int = 5) -> None:
    """A closed cache file with some rows."""
    cache = SqliteCache(path)
    for number in range(rows):
        cache.put(key(number), entry(number))
    store(cache, key(rows), entry(rows))
    cache.close()


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [r.getMessage() for r in caplog.records if r.name == "referee.cache" and r.levelno >= logging.WARNING]


def test_entries_outlive_the_process(path: Path) -> None:
    """What one cache stored the next one finds, and the log is folded into the file."""
    filled(path)
    cache = SqliteCache(path)
    assert cache.get(key(3)) == bare(entry(3))
    cache.close()
    assert [found.name for found in path.parent.iterdir()] == ["cache.sqlite"]


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
        sqlite.run_all(calls)

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
    for notify in (fails, sqlite.run_all):
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


def test_a_name_no_filesystem_takes(caplog: pytest.LogCaptureFixture) -> None:
    """Even that is a warning."""
    check_degraded(Path("/tmp/bad\0name/cache.sqlite"), caplog)


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


def test_a_file_of_another_version(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """An older or newer referee's file is left for it."""
    filled(path)
    link = sqlite3.connect(path)
    link.execute("PRAGMA user_version = 99")
    link.close()
    check_degraded(path, caplog, "another version", "99")


def test_a_file_locked_from_the_start(
    path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Opening waits a little for another process, then goes on without the file."""
    filled(path)
    monkeypatch.setattr(schema, "WRITE_WAIT", 0.01)
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    check_degraded(path, caplog, "locked")
    other.execute("ROLLBACK")
    other.close()


# A damaged file.


@pytest.mark.parametrize("where", [b"SQLite format 3", b"\x0d", b"entryentry", b"CREATE TABLE entry"])
def test_a_damaged_file_is_set_aside(path: Path, caplog: pytest.LogCaptureFixture, where: bytes) -> None:
    """A broken header, first page or schema: the file is renamed, a new one begun, and one warning says so."""
    filled(path)
    data = path.read_bytes()
    at = data.index(where, 0 if where.startswith(b"SQLite") else 100)
    path.write_bytes(data[:at] + b"\xdc" * 16 + data[at + 16 :])
    cache = SqliteCache(path)
    assert not cache.problem
    assert cache.get(key(1)) is None
    store(cache, key(1), entry(1))
    assert cache.get(key(1)) == bare(entry(1))
    cache.close()
    assert len(warnings(caplog)) == 1
    assert "damaged" in warnings(caplog)[0]
    assert len([found for found in path.parent.iterdir() if ".corrupt-" in found.name]) == 1


def test_damage_found_while_in_use(
    path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A page that breaks under a running cache: a miss, the file set aside, memory from then on."""
    filled(path, 2000)
    monkeypatch.setattr(schema, "CHECKED", 0)
    half = path.stat().st_size // 2
    with path.open("r+b") as stream:
        stream.seek(half)
        stream.write(b"\xff" * half)
    cache = LayeredCache(MemoryCache(10), SqliteCache(path))
    assert not cache.disk.problem
    found = [cache.get(key(number)) for number in range(2000)]
    assert all(value is None or value == bare(entry(number)) for number, value in enumerate(found))
    assert None in found
    assert cache.disk.problem
    assert cache.put(key(1), entry(1)) is False
    assert cache.get(key(1)) == bare(entry(1))
    cache.close()
    assert len(warnings(caplog)) == 1
    assert not path.exists()
    fresh = SqliteCache(path)
    assert not fresh.problem
    fresh.close()


def test_flipped_bytes_never_give_a_wrong_verdict(path: Path, tmp_path: Path) -> None:
    """At any place in the file, in any page: the right entry or none, and nothing raises."""
    filled(path, 60)
    rng = random.Random(7)
    size = path.stat().st_size
    right = {key(number): bare(entry(number)) for number in range(61)}
    hits = 0
    for attempt in range(200):
        copy = tmp_path / f"flip{attempt}" / "cache.sqlite"
        copy.parent.mkdir()
        data = bytearray(path.read_bytes())
        for _ in range(rng.choice([1, 1, 4, 64])):
            data[rng.randrange(size)] ^= rng.randrange(1, 256)
        copy.write_bytes(data)
        cache = SqliteCache(copy)
        for name in rng.sample(sorted(right), 15):
            found = cache.get(name)
            assert found is None or found == right[name]
            hits += found is not None
        if attempt % 10 == 0:  # seldom: each one waits for the disk
            store(cache, key(7), entry(7))
            assert cache.get(key(7)) in (None, right[key(7)])
        cache.close()
        shutil.rmtree(copy.parent)
    assert hits > 500, "most flips should leave most rows readable, or this test tests nothing"


def test_a_swapped_row_is_a_miss(path: Path) -> None:
    """A whole, valid value under another key is not that key's value."""
    filled(path)
    link = sqlite3.connect(path)
    link.execute("UPDATE entry SET data = (SELECT data FROM entry WHERE key = ?) WHERE key = ?", (key(1), key(2)))
    link.commit()
    link.close()
    cache = SqliteCache(path)
    assert cache.get(key(1)) == bare(entry(1))
    assert cache.get(key(2)) is None
    cache.close()


# A file that stops working.


def test_a_full_disk(path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    """Writing stops with one warning, reading goes on, `done` is called, and writing resumes when there is room."""
    now = [1000.0]
    monkeypatch.setattr(sqlite.clock, "monotonic", lambda: now[0])
    cache = SqliteCache(path)
    store(cache, key(1), entry(1))
    assert cache._writer is not None
    pages = cache._writer.execute("PRAGMA page_count").fetchone()[0]
    cache._writer.execute(f"PRAGMA max_page_count = {pages}")
    now[0] += 1
    for number in range(2, 60):
        store(cache, key(number), entry(number))
    assert cache.get(key(1)) == bare(entry(1))
    assert cache.get(key(59)) is None
    assert cache.put(key(60), entry(60)) is False
    assert len(warnings(caplog)) == 1
    assert "full" in warnings(caplog)[0]
    cache._writer.execute("PRAGMA max_page_count = 1000000")
    now[0] += sqlite.PAUSE + 1
    store(cache, key(61), entry(61))
    assert cache.get(key(61)) == bare(entry(61))
    cache.close()
    assert len(warnings(caplog)) == 1


def test_a_lock_held_by_another_process(
    path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reading goes on, writing gives up for a while and then recovers."""
    now = [1000.0]
    monkeypatch.setattr(sqlite.clock, "monotonic", lambda: now[0])
    monkeypatch.setattr(schema, "WRITE_WAIT", 0.01)
    cache = SqliteCache(path)
    store(cache, key(1), entry(1))
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    now[0] += 1
    store(cache, key(2), entry(2))
    assert cache.get(key(1)) == bare(entry(1))
    assert cache.get(key(2)) is None
    assert "lock" in warnings(caplog)[0]
    other.execute("ROLLBACK")
    other.close()
    now[0] += sqlite.PAUSE + 1
    store(cache, key(3), entry(3))
    assert cache.get(key(3)) == bare(entry(3))
    cache.close()
    assert len(warnings(caplog)) == 1


# Upkeep.


def test_stats_count_what_is_there(path: Path) -> None:
    """Rows, size, age and models."""
    cache = SqliteCache(path)
    assert cache.stats()["rows"] == 0
    assert cache.stats()["oldest"] is None
    for number in range(5):
        store(cache, key(number), entry(number, reply=Reply(text="", model="b" if number else "a")))
    found = cache.stats()
    assert (found["rows"], found["models"]) == (5, {"b": 4, "a": 1})
    assert (found["oldest"], found["newest"]) == (1e9, 1e9 + 4)
    assert found["bytes"] > 1000
    cache.close()


@pytest.mark.parametrize(
    ("how", "left"),
    [
        ({"keep_newest": 2}, [3, 4]),
        ({"keep_newest": 0}, []),
        ({"older_than_s": 2.5}, [2, 3, 4]),
        ({"older_than_s": 2.5, "keep_newest": 1}, [4]),
        ({"everything": True}, []),
        ({}, [0, 1, 2, 3, 4]),
    ],
)
def test_prune_deletes_what_it_is_told(
    path: Path, monkeypatch: pytest.MonkeyPatch, how: dict[str, Any], left: list[int]
) -> None:
    """By age, by number, or everything; it says how many went."""
    filled(path, 4)
    monkeypatch.setattr(sqlite.clock, "wall", lambda: 1e9 + 4)
    cache = SqliteCache(path)
    assert cache.prune(**how) == 5 - len(left)
    assert [number for number in range(5) if cache.get(key(number))] == left
    cache.close()


def test_prune_gives_the_space_back(path: Path) -> None:
    """A file that was pruned is smaller."""
    filled(path, 2000)
    before = path.stat().st_size
    cache = SqliteCache(path)
    cache.prune(keep_newest=10)
    cache.close()
    assert path.stat().st_size < before / 4


def test_upkeep_says_what_is_wrong(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever looks through a damaged file is told, with the setting that names it."""
    filled(path, 2000)
    half = path.stat().st_size // 2
    with path.open("r+b") as stream:
        stream.seek(half)
        stream.write(b"\xff" * half)
    monkeypatch.setattr(schema, "CHECKED", 0)
    cache = SqliteCache(path)
    with pytest.raises(ConfigError, match=r"cache\.path"):
        list(cache.entries())
    cache.close()


def test_find_brings_facets_back(path: Path) -> None:
    """By the beginning of a key, with what the key was made of; common facets are stored once."""
    filled(path, 20)
    cache = SqliteCache(path)
    (found,) = cache.find(key(17))
    assert found == (key(17), entry(17))
    assert len(cache.find(key(16)[:-1])) == 5
    assert cache.find("f") == []
    assert cache.find("%") == []
    assert len(cache.find("", limit=7)) == 7
    assert [name for name, _ in cache.entries()] == [key(number) for number in range(21)]
    cache.close()
    link = sqlite3.connect(path)
    assert link.execute("SELECT count(*) FROM shared").fetchone() == (1,)
    link.close()


def test_common_facets_survive_a_failed_commit(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A common part whose commit was rolled back is stored again with the next row."""
    now = [1000.0]
    monkeypatch.setattr(sqlite.clock, "monotonic", lambda: now[0])
    cache = SqliteCache(path)
    assert cache._writer is not None
    pages = cache._writer.execute("PRAGMA page_count").fetchone()[0]
    cache._writer.execute(f"PRAGMA max_page_count = {pages}")
    facets = {"judge": "fits", "response": "r"}
    store(cache, key(1), entry(1, facets=facets, reply=Reply(text="does not fit" * 10_000)))
    assert cache.find(key(1)) == []
    cache._writer.execute("PRAGMA max_page_count = 100000")
    now[0] += sqlite.PAUSE + 1
    store(cache, key(2), entry(2, facets=facets))
    assert cache.find(key(2))[0][1].facets == facets
    cache.close()


# Choice of cache.


def test_open_cache_follows_the_configuration(path: Path) -> None:
    """Off, memory only, or memory before a file."""
    off = open_cache(CacheConfig(enabled=False))
    off.put(key(), entry())
    assert off.get(key()) is None
    assert isinstance(open_cache(CacheConfig(path="")), MemoryCache)
    layered = open_cache(CacheConfig(path=str(path), memory_items=3))
    assert isinstance(layered, LayeredCache)
    store(layered, key(), entry())
    layered.close()
    again = open_cache(CacheConfig(path=str(path)))
    assert again.get(key()) == bare(entry())
    again.close()


def test_what_the_file_has_is_brought_into_memory(path: Path) -> None:
    """The second look does not go to the file."""
    filled(path)
    cache = LayeredCache(MemoryCache(10), SqliteCache(path))
    assert cache.get(key(1)) == bare(entry(1))
    cache.disk.close()
    assert cache.get(key(1)) == bare(entry(1))
    assert cache.get(key(2)) is None
    cache.close()
