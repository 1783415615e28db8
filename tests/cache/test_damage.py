"""A cache file that is damaged or stops working: scoring goes on, and no verdict is wrong."""

from __future__ import annotations

import contextlib
import random
import shutil
import sqlite3
from pathlib import Path

import pytest
from tests.cache.files import filled, warnings
from tests.contracts.cache_suite import entry, key, store

from referee.cache import LayeredCache, MemoryCache, SqliteCache, schema, sqlite
from referee.cache.entry import bare
from referee.errors import ConfigError


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
    monkeypatch.setattr(schema, "MAX_CHECKED_BYTES", 0)
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
    assert len([text for text in warnings(caplog) if "so it is now" in text]) == 1, "the file is set aside once"
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


def looked_through(cache: SqliteCache) -> None:
    """What the commands do with a file. Only the one clear error may come of it."""
    with contextlib.suppress(ConfigError):
        cache.stats()
        list(cache.entries())
        cache.find("0")
        cache.prune(older_than_s=1.0, keep_newest=3)


@pytest.mark.parametrize("flips", [400, pytest.param(6000, marks=[pytest.mark.slow, pytest.mark.timeout(900)])])
def test_one_flipped_bit_costs_at_most_the_verdicts_it_damages(path: Path, tmp_path: Path, flips: int) -> None:
    """Looked up one by one and together, written to, looked through and pruned: the right entry or none."""
    filled(path, 12)
    whole = path.read_bytes()
    used = [at for at, byte in enumerate(whole) if byte]  # a flip in free space says nothing
    right = {key(number): bare(entry(number)) for number in range(13)}
    rng = random.Random(flips)
    hits = 0
    for attempt in range(flips):
        copy = tmp_path / f"flip{attempt}" / "cache.sqlite"
        copy.parent.mkdir()
        data = bytearray(whole)
        data[rng.choice(used)] ^= 1 << rng.randrange(8)
        copy.write_bytes(data)
        cache = SqliteCache(copy)
        found = cache.get_many([*right])
        assert all(right[name] == value for name, value in found.items())
        hits += len(found)
        assert all(cache.get(name) in (None, value) for name, value in right.items())
        if attempt % 20 == 0:  # seldom: each one waits for the disk
            store(cache, key(40), entry(40))
            assert cache.get(key(40)) in (None, bare(entry(40)))
        if attempt % 4 == 0:
            looked_through(cache)
        cache.close()
        shutil.rmtree(copy.parent)
    assert hits > 5 * flips, "most flips should leave most rows readable, or this test tests nothing"


@pytest.mark.parametrize("row", [3, 5])
def test_an_index_that_leads_to_another_row(path: Path, caplog: pytest.LogCaptureFixture, row: int) -> None:
    """That key is a miss, the others are found, and one warning says so."""
    filled(path)
    data = path.read_bytes()
    name = bytes.fromhex(key(3))
    at = data.index(b"\x03\x2c\x01" + name + b"\x04") + 3 + len(name)  # an index record: types, the key, row 4
    path.write_bytes(data[:at] + bytes([row]) + data[at + 1 :])
    cache = SqliteCache(path)
    for _ in range(2):
        found = cache.get_many([key(number) for number in range(6)])
        assert found == {key(number): bare(entry(number)) for number in (0, 1, 2, 4, 5)}
    cache.close()
    assert len(warnings(caplog)) == 1
    assert "damaged" in warnings(caplog)[0]


def test_a_damaged_row_is_one_warning(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """However many rows are damaged and however often they are looked up."""
    filled(path)
    data = path.read_bytes()
    path.write_bytes(data.replace(b"reason 1", b"reason 7").replace(b"reason 2", b"reason 7"))
    cache = SqliteCache(path)
    for _ in range(2):
        assert [cache.get(key(number)) is None for number in range(4)] == [False, True, True, False]
    cache.close()
    assert len(warnings(caplog)) == 1


@pytest.mark.parametrize("created", ["x'00'", "'soon'", "1e300", "-1e300", "9e999"])
def test_a_damaged_time_does_not_stop_the_statistics(path: Path, created: str) -> None:
    """A time that is none is left out: the others say how old the file is."""
    filled(path)
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as link:
        link.execute(f"UPDATE entry SET created = {created} WHERE key = ?", (bytes.fromhex(key(3)),))
    cache = SqliteCache(path)
    found = cache.stats()
    cache.close()
    assert (found["rows"], found["oldest"], found["newest"]) == (6, 1e9, 1e9 + 5)


def test_a_swapped_row_is_a_miss(path: Path) -> None:
    """A whole, valid value under another key is not that key's value."""
    filled(path)
    link = sqlite3.connect(path)
    swap = "UPDATE entry SET data = (SELECT data FROM entry WHERE key = ?) WHERE key = ?"
    link.execute(swap, (bytes.fromhex(key(1)), bytes.fromhex(key(2))))
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
    assert cache.lost == sum(cache.get(key(number)) is None for number in range(2, 61))
    assert len(warnings(caplog)) == 1
    assert "full" in warnings(caplog)[0]
    cache._writer.execute("PRAGMA max_page_count = 1000000")
    now[0] += sqlite.RETRY_S + 1
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
    monkeypatch.setattr(schema, "WRITE_WAIT_S", 0.01)
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
    now[0] += sqlite.RETRY_S + 1
    store(cache, key(3), entry(3))
    assert cache.get(key(3)) == bare(entry(3))
    cache.close()
    assert len(warnings(caplog)) == 1
