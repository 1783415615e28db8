"""What the engine needs of a cache. Failures are not representable: an Entry holds a Verdict, never an Unscored."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, runtime_checkable

from referee.cache.entry import Entry

Done = Callable[[], None]
Found = Callable[[tuple[str, Entry] | None], None]
"""Told once how a search ended: the key and its entry, or None."""


class Cache(Protocol):
    """Called from one thread, the loop's. Keys are digests in hex. No call waits for a disk, and none raises because of
    one."""

    def get(self, key: str) -> Entry | None:
        """The entry stored under this key, or None. Facets are not brought back: they are for files and people."""
        ...

    def expect(self, keys: Sequence[str]) -> None:
        """These will be asked for next. Looking them up together is cheaper than one by one."""
        ...

    def put(self, key: str, entry: Entry, done: Done | None = None) -> bool:
        """Store an entry. True: `done` will be called, from another thread, once it would survive a kill of this
        process, or once it is known that it cannot be stored. False: there is nothing to wait for and `done` is
        not called."""
        ...

    def hurry(self) -> None:
        """Nothing more will be put for now: what is queued need not wait for company."""
        ...

    def close(self) -> None:
        """Write out what is pending, within a few seconds, and let go of everything. May be called twice."""
        ...


class Claim(Protocol):
    """A search under way, and after it, if nothing was found, the right to judge this request for everybody."""

    def release(self) -> None:
        """Over: stop searching, or let others judge it. May be called twice; `found` is not called afterwards."""
        ...


@runtime_checkable
class SharedCache(Cache, Protocol):
    """A cache that others fill too, so that looking there takes a while: `get` sees what is near, `claim` the rest."""

    def claim(self, keys: Sequence[str], patience: float, found: Found) -> Claim | None:
        """Search for any of these keys, and if somebody else is judging the request, wait for them: `patience` seconds
        at most. Then `found` is called, never from inside this call. None: there is nowhere to look now."""
        ...

    async def finish(self) -> None:
        """Before `close`, on the loop: send what is pending, within a second."""
        ...
