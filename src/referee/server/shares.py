"""A limited number of places, held by callers. State only: no loop, no clock.

One caller alone may hold all of them. When they are taken, a caller with less than an equal share is admitted all the
same: otherwise the first to fill the queue would keep the others out of it for minutes. So n callers together
can hold up to 1 + 1/2 + … + 1/n times the limit.
"""

from __future__ import annotations

from collections import Counter


class Shares:
    """Places, by caller."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._held: Counter[str] = Counter()

    @property
    def callers(self) -> int:
        """How many hold at least one place."""
        return len(self._held)

    def held(self, caller: str) -> int:
        """Places that this caller holds."""
        return self._held[caller]

    def share(self, caller: str) -> int:
        """Places that this caller may hold when all are taken: an equal part, this caller included."""
        return self.limit // (self.callers + (caller not in self._held))

    def fits(self, caller: str, count: int) -> bool:
        """Whether there is room for this many more."""
        if self._held.total() + count <= self.limit:
            return True
        return self._held[caller] + count <= self.share(caller)

    def take(self, caller: str, count: int) -> None:
        """Hold that many more."""
        if count:
            self._held[caller] += count

    def give_back(self, caller: str, count: int) -> None:
        """Hold that many less; a caller with none is forgotten."""
        self._held[caller] -= count
        if not self._held[caller]:
            del self._held[caller]

    def __repr__(self) -> str:
        return f"Shares({self._held.total()} of {self.limit} held by {self.callers})"
