"""What every cache promises. A test class inherits these and says how its cache is opened."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from referee.cache import Cache, Entry
from referee.cache.entry import bare
from referee.records import Reason, Reply, Unscored, Verdict

PATIENCE = 20.0
"""Seconds to wait for a writer thread on a busy machine. Nothing is asserted about time."""


def entry(number: int = 1, **more: Any) -> Entry:
    """Some verdict, different for each number."""
    fields: dict[str, Any] = {
        "verdict": Verdict(score=number, value=0.5, reason=f"reason {number} é", how="schema", uncertainty=0.1),
        "reply": Reply(text=f"text {number} \U0001f600", finish="stop", model="m", tokens_in=5, tokens_out=number),
        "cost": 0.001 * number,
        "created": 1e9 + number,
        "endpoint": "host",
        "common": {"judge": "score/1"},
        "own": {"response": f"digest {number}"},
    }
    return Entry(**(fields | more))


def key(number: int = 1) -> str:
    """A key as the key maker makes them."""
    return f"{number:032x}"


def store(cache: Cache, name: str, value: Entry) -> None:
    """Put and wait until it is done. Nothing follows, so the commit need not wait."""
    done = threading.Event()
    if cache.put(name, value, done.set):
        cache.hurry()
        assert done.wait(PATIENCE), "`done` was never called"


class CacheContract:
    """Inherit, and give `open`."""

    def open(self, path: Path) -> Cache:
        raise NotImplementedError

    @pytest.fixture
    def cache(self, tmp_path: Path) -> Any:
        cache = self.open(tmp_path / "cache" / "cache.sqlite")
        yield cache
        cache.close()

    def test_what_was_never_put_is_not_there(self, cache: Cache) -> None:
        """A miss is None."""
        assert cache.get(key()) is None

    def test_what_was_put_is_found(self, cache: Cache) -> None:
        """Verdict, reply, cost and origin come back as they were; facets stay behind."""
        store(cache, key(), entry())
        assert cache.get(key()) == bare(entry())

    def test_keys_do_not_mix(self, cache: Cache) -> None:
        """Each key has its own entry."""
        for number in range(20):
            store(cache, key(number), entry(number))
        assert [cache.get(key(number)) for number in range(20)] == [bare(entry(number)) for number in range(20)]
        assert cache.get(key(99)) is None

    def test_the_last_put_counts(self, cache: Cache) -> None:
        """An entry can be replaced, as when a damaged one was paid for again."""
        store(cache, key(), entry(1))
        store(cache, key(), entry(2))
        assert cache.get(key()) == bare(entry(2))

    def test_done_is_called_once_if_it_was_promised(self, cache: Cache) -> None:
        """True means exactly one call, False means none."""
        calls: list[int] = []
        last = threading.Event()
        promised = [n for n in range(50) if cache.put(key(n), entry(n), lambda n=n: calls.append(n))]  # type: ignore[misc]
        if cache.put(key(50), entry(50), last.set):
            assert last.wait(PATIENCE)
        assert calls == promised

    def test_done_may_be_left_out(self, cache: Cache) -> None:
        """Nobody has to listen."""
        cache.put(key(1), entry(1))
        store(cache, key(2), entry(2))
        assert cache.get(key(1)) == bare(entry(1))

    def test_a_failure_cannot_be_stored(self, cache: Cache) -> None:
        """Unscored does not fit into an Entry, and what is not an Entry does not fit into a cache."""
        failed = Unscored(reason=Reason.TIMEOUT)
        with pytest.raises(TypeError, match="only a Verdict"):
            cache.put(key(), Entry(verdict=failed, reply=Reply(text="")))  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="only an Entry"):
            cache.put(key(), failed)  # type: ignore[arg-type]
        assert cache.get(key()) is None

    def test_close_can_be_called_twice_and_ends_everything(self, cache: Cache) -> None:
        """After close nothing is found, nothing is stored, nothing raises, and no thread is left."""
        store(cache, key(), entry())
        cache.close()
        cache.close()
        assert cache.get(key(7)) is None
        assert not [thread for thread in threading.enumerate() if thread.name.startswith("referee-cache")]
