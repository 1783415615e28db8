"""What the engine needs of a cache. Failures are not representable: an Entry holds a Verdict, never an Unscored."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from referee.cache.entry import Entry

Done = Callable[[], None]


class Cache(Protocol):
    """Called from one thread, the loop's. No call waits for a disk, and none raises because of one."""

    def get(self, key: str) -> Entry | None:
        """The entry stored under this key, or None. Facets are not brought back: they are for files and people."""
        ...

    def put(self, key: str, entry: Entry, done: Done | None = None) -> bool:
        """Store an entry. True: `done` will be called, from another thread, once it would survive a kill of this
        process, or once it is known that it cannot be stored. False: there is nothing to wait for and `done` is
        not called."""
        ...

    def close(self) -> None:
        """Write out what is pending, within a few seconds, and let go of everything. May be called twice."""
        ...
