"""Who holds how many of a limited number of places. State only: no loop, no clock.

One caller alone may hold all of them. When they are taken, somebody who holds less than an equal share is let in all
the same: otherwise the first to fill the queue would keep everybody else out of it for minutes. So n callers together
can hold up to 1 + 1/2 + … + 1/n times the limit.
"""

from __future__ import annotations

from collections import Counter


class Shares:
    """Places, by who holds them."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._held: Counter[str] = Counter()

    @property
    def callers(self) -> int:
        """How many hold at least one place."""
        return len(self._held)

    def held(self, caller: str) -> int:
        """Places that this caller holds."""
        return self._held[caller]

    def share(self, caller: str) -> int:
        """Places that this caller may hold when all are taken: one part of as many as there are callers with him."""
        return self._limit // (self.callers + (caller not in self._held))

    def fits(self, caller: str, count: int) -> bool:
        """Whether there is room for this many more."""
        if self._held.total() + count <= self._limit:
            return True
        return self._held[caller] + count <= self.share(caller)

    def take(self, caller: str, count: int) -> None:
        """Hold that many more."""
        if count:
            self._held[caller] += count

    def give_back(self, caller: str, count: int) -> None:
        """Hold that many less; who holds none is forgotten."""
        self._held[caller] -= count
        if not self._held[caller]:
            del self._held[caller]

    def __repr__(self) -> str:
        return f"Shares({self._held.total()} of {self._limit} held by {self.callers})"
