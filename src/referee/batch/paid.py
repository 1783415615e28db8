"""The cache as a resumed batch run sees it: what an earlier process of the same run has paid for, and written no row
of, is asked again. The journal answers it, so that its row says what it cost.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from referee.batch.journal import Journal, item_of
from referee.cache import Cache, Done, Entry


class PaidCache:
    """A cache behind that view."""

    def __init__(self, cache: Cache, journal: Journal, kept: Collection[str], opened: float) -> None:
        """`kept`: keys that rows have paid for. `opened`: wall time; younger entries are of this process."""
        self._cache = cache
        self._journal = journal
        self._kept = kept
        self._opened = opened

    def get(self, key: str) -> Entry | None:
        """See Cache."""
        entry = self._cache.get(key)
        if entry is None or entry.created >= self._opened or key in self._kept:
            return entry
        return None if self._has_answer(entry.reply.request_id) else entry

    def _has_answer(self, name: str) -> bool:
        item = item_of(name) if name.startswith(f"{self._journal.run}-") else None
        found = self._journal.find(item.digest).get(item.n) if item is not None else None
        return found is not None and found.reply is not None

    def expect(self, keys: Sequence[str]) -> None:
        """See Cache."""
        self._cache.expect(keys)

    def put(self, key: str, entry: Entry, done: Done | None = None) -> bool:
        """See Cache."""
        return self._cache.put(key, entry, done)

    @property
    def lost(self) -> int:
        """See Cache."""
        return self._cache.lost

    def hurry(self) -> None:
        """See Cache."""
        self._cache.hurry()

    def close(self) -> None:
        """See Cache."""
        self._cache.close()
