"""The memory cache forgets the least recently used, and only then; and memory in front of a file."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.contracts.cache_suite import entry, key, store

from referee.cache import Entry, LayeredCache, MemoryCache, SqliteCache


def test_the_least_recently_used_goes_first() -> None:
    """A look counts as use."""
    cache = MemoryCache(2)
    cache.put(key(1), entry(1))
    cache.put(key(2), entry(2))
    assert cache.get(key(1)) is not None
    cache.put(key(3), entry(3))
    assert cache.get(key(2)) is None
    assert cache.get(key(1)) is not None
    assert len(cache) == 2


def test_facets_are_not_kept() -> None:
    """They would be half of the memory."""
    cache = MemoryCache(2)
    cache.put(key(1), entry(1))
    found = cache.get(key(1))
    assert found is not None
    assert found.facets == {}


def test_size_zero_keeps_nothing() -> None:
    """A switched-off cache is a cache of no size."""
    cache = MemoryCache(0)
    cache.put(key(1), entry(1))
    assert cache.get(key(1)) is None


@given(st.integers(1, 4), st.lists(st.tuples(st.booleans(), st.integers(0, 6)), max_size=40))
@settings(max_examples=100, deadline=None)
def test_it_behaves_like_the_plain_model(size: int, steps: list[tuple[bool, int]]) -> None:
    """Any sequence of puts and gets leaves the same keys as a list kept in order of use."""
    cache, order = MemoryCache(size), list[int]()
    for is_put, number in steps:
        if is_put:
            cache.put(key(number), entry(number))
        else:
            assert (cache.get(key(number)) is not None) == (number in order)
        if is_put or number in order:
            order = [n for n in order if n != number] + [number]
            order = order[-size:]
    assert [n for n in range(7) if cache.get(key(n)) is not None] == sorted(order)


class CountingFile(SqliteCache):
    """Counts how often the file is searched for a single key."""

    searches = 0

    def get(self, key: str) -> Entry | None:
        self.searches += 1
        return super().get(key)


def test_what_several_expect_is_looked_up_together(tmp_path: Path) -> None:
    """Batches take turns: what one of them expects next must not make the cache forget what another does."""
    disk = CountingFile(tmp_path / "cache.sqlite")
    cache = LayeredCache(MemoryCache(100), disk)
    store(cache, key(1), entry(1))
    cache.memory.close()
    cache.expect([key(1), key(2)])
    cache.expect([key(3), key(4)])
    assert [cache.get(key(n)) is not None for n in (1, 2, 3)] == [True, False, False]
    assert disk.searches == 0
    assert cache.get(key(2)) is None
    assert disk.searches == 1, "asked again, it may have been stored by another process meanwhile"
    store(disk, key(4), entry(4))
    cache.expect([key(4)])
    assert cache.get(key(4)) is not None, "expected before it was there, and again since"
    cache.close()
