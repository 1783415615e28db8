"""Looking into a cache file, clearing it out, and choosing a cache."""

from __future__ import annotations

import sqlite3
import threading
from pathlib import Path
from typing import Any

import pytest
from tests.cache.files import filled
from tests.contracts.cache_suite import entry, key, store

from referee.cache import LayeredCache, MemoryCache, SqliteCache, open_cache, schema, sqlite
from referee.cache.entry import bare
from referee.config import CacheConfig
from referee.errors import ConfigError
from referee.records import Reply


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
    monkeypatch.setattr(schema, "MAX_CHECKED_BYTES", 0)
    cache = SqliteCache(path)
    with pytest.raises(ConfigError, match=r"cache\.path"):
        list(cache.entries())
    cache.close()


def test_find_brings_facets_back(path: Path) -> None:
    """By the beginning of a key, with what the key was made of; common facets are stored once."""
    filled(path, 70)
    cache = SqliteCache(path)
    (found,) = cache.find(key(17))
    assert found == (key(17), entry(17))
    store(cache, key(17), entry(50))
    assert cache.find(key(17)) == [(key(17), entry(50))]
    assert [name for name, _ in cache.find(key(48)[:-1])] == [key(number) for number in range(48, 64)]
    assert cache.find("f") == cache.find(key(17) + "0") == []
    assert cache.find("%") == cache.find("A") == cache.find("-1") == cache.find("0_0") == []
    assert len(cache.find("", limit=7)) == 7
    assert [name for name, _ in cache.entries()] == [key(number) for number in (*range(17), *range(18, 71), 17)]
    cache.close()
    link = sqlite3.connect(path)
    assert link.execute("SELECT count(*) FROM shared").fetchone() == (1,)
    link.close()


@pytest.mark.parametrize("damaged", ["0.5", "'text'", "x'00'"])
def test_a_row_whose_key_is_damaged_is_passed_over(path: Path, damaged: str) -> None:
    """One flipped bit can make a value of another type of it."""
    filled(path, 5)
    link = sqlite3.connect(path)
    link.execute(f"UPDATE entry SET key = {damaged} WHERE key = ?", (bytes.fromhex(key(3)),))
    link.commit()
    link.close()
    cache = SqliteCache(path)
    assert [name for name, _ in cache.entries()] == [key(number) for number in (0, 1, 2, 4, 5)]
    cache.close()


def test_common_facets_survive_a_failed_commit(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A common part whose commit was rolled back is stored again with the next row."""
    now = [1000.0]
    monkeypatch.setattr(sqlite.clock, "monotonic", lambda: now[0])
    cache = SqliteCache(path)
    assert cache._writer is not None
    pages = cache._writer.execute("PRAGMA page_count").fetchone()[0]
    cache._writer.execute(f"PRAGMA max_page_count = {pages}")
    facets = {"common": {"judge": "fits"}, "own": {"response": "r"}}
    store(cache, key(1), entry(1, **facets, reply=Reply(text="does not fit" * 10_000)))
    assert cache.find(key(1)) == []
    cache._writer.execute("PRAGMA max_page_count = 100000")
    now[0] += sqlite.RETRY_S + 1
    store(cache, key(2), entry(2, **facets))
    assert cache.find(key(2))[0][1].facets == {"judge": "fits", "response": "r"}
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


def test_beyond_its_bound_the_oldest_make_room(path: Path) -> None:
    """The file stays near its bound however much is stored, and what was stored last is there."""
    bound = 300_000
    cache = SqliteCache(path, max_bytes=bound)
    for number in range(1500):
        store(cache, key(number), entry(number))
    rows = cache.stats()["rows"]
    assert 100 < rows < 1200
    assert cache.get(key(0)) is None
    assert all(cache.get(key(number)) is not None for number in range(1500 - 100, 1500))
    assert cache._writer is not None
    pages, size = (cache._writer.execute(f"PRAGMA {name}").fetchone()[0] for name in ("page_count", "page_size"))
    assert pages * size < 1.2 * bound
    cache.close()


def test_making_room_takes_nothing_of_what_was_just_stored(path: Path) -> None:
    """Also where one commit is larger than all that was there before."""
    cache = SqliteCache(path, max_bytes=100_000)
    for start in (0, 1000, 2000):
        done = threading.Event()
        for number in range(start, start + 1000):
            cache.put(key(number), entry(number), done.set if number == start + 999 else None)
        cache.hurry()
        assert done.wait(30.0)
        assert cache.get(key(start + 999)) is not None
    cache.close()
