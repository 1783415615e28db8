"""The memory cache forgets the least recently used, and only then."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.contracts.cache_suite import entry, key

from referee.cache import MemoryCache


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
