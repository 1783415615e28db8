"""The cache in this process's memory: the most recently used verdicts, and no more than `max_items` of them."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

from referee.cache.entry import Entry, bare
from referee.cache.port import Done


class MemoryCache:
    """An LRU cache. Facets are not kept: they would be half of the memory and are for files only."""

    lost = 0

    def __init__(self, max_items: int) -> None:
        self._max = max_items
        self._entries: OrderedDict[str, Entry] = OrderedDict()

    def get(self, key: str) -> Entry | None:
        """The entry, or None."""
        entry = self._entries.get(key)
        if entry is not None:
            self._entries.move_to_end(key)
        return entry

    def expect(self, keys: Sequence[str]) -> None:
        """Nothing to prepare."""

    def put(self, key: str, entry: Entry, done: Done | None = None) -> bool:
        """Keep it. Always False: memory has nothing to wait for."""
        if not isinstance(entry, Entry):
            raise TypeError(f"only an Entry is ever cached, not {type(entry).__name__}")
        if self._max <= 0:
            return False
        self._entries[key] = bare(entry)
        self._entries.move_to_end(key)
        if len(self._entries) > self._max:
            self._entries.popitem(last=False)
        return False

    def hurry(self) -> None:
        """Nothing is queued."""

    def close(self) -> None:
        """Forget everything."""
        self._entries.clear()

    def __contains__(self, key: str) -> bool:
        return key in self._entries

    def __len__(self) -> int:
        return len(self._entries)

    def __repr__(self) -> str:
        return f"MemoryCache({len(self._entries)} of {self._max})"
