"""What the engine needs of a cache. Failures are not representable: an Entry holds a Verdict, never an Unscored."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Protocol, runtime_checkable

from referee.cache.entry import Entry

log = logging.getLogger("referee.cache")

Done = Callable[[], None]
Found = Callable[[tuple[str, Entry] | None], None]
"""Called once with the result of a search: the key and its entry, or None."""


def run_all(calls: list[Done]) -> None:
    """All calls, here; one that fails does not keep the others from being called."""
    for call in calls:
        try:
            call()
        except Exception:
            log.exception("a listener failed when its verdict was stored")


class Cache(Protocol):
    """Called from one thread, the loop's. Keys are digests in hex. No call waits for a disk, and none raises because of
    one."""

    def get(self, key: str) -> Entry | None:
        """The entry stored under this key, or None. Without its facets, which are for `referee cache explain`."""
        ...

    def expect(self, keys: Sequence[str]) -> None:
        """These keys will be asked for next. Looking them up together is cheaper than one by one."""
        ...

    def put(self, key: str, entry: Entry, done: Done | None = None) -> bool:
        """Store an entry. True: `done` will be called, from another thread, once the entry would survive a kill of this
        process, or cannot be stored. False: there is nothing to wait for, and `done` is not called."""
        ...

    def hurry(self) -> None:
        """Nothing more will be put for now: commit what is queued without waiting for more."""
        ...

    @property
    def lost(self) -> int:
        """Verdicts that a file did not take: memory has them, as long as it does."""
        ...

    def close(self) -> None:
        """Write out what is pending, within a few seconds, and release everything. May be called twice."""
        ...


class Claim(Protocol):
    """A search under way; after it, if nothing was found, the lock under which this job judges the request for all."""

    def release(self) -> None:
        """Stop searching, or release the lock. May be called twice; `found` is not called afterwards."""
        ...


@runtime_checkable
class SharedCache(Cache, Protocol):
    """A cache that other jobs fill too, over a network: `get` looks up the local part, `claim` the rest."""

    def claim(self, keys: Sequence[str], patience: float, found: Found, team: str = "") -> Claim | None:
        """Search for any of these keys; if another job is judging the request for the same team, wait for it,
        `patience` seconds at most. Then `found` is called, never from inside this call. None: there is nowhere to
        search now."""
        ...

    async def finish(self) -> None:
        """Before `close`, on the loop: send what is pending, within a second."""
        ...
