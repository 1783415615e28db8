"""A line in front of a resource that several callers share: whose turn is next. State only.

Of several callers the one who has had least since they came together; of one caller's, what sorts first. Who comes
late starts level with the others: he neither makes up for the time he was away nor pays for it.
"""

from __future__ import annotations

import heapq
from typing import Any, Generic, TypeVar

Item = TypeVar("Item", bound=Any)
REMEMBERED = 256
"""Callers whose count is kept although they wait for nothing. With more of them, all those start level again."""


class FairQueue(Generic[Item]):
    """Who waits."""

    def __init__(self) -> None:
        self._waiting: dict[str, list[Item]] = {}
        self._had: dict[str, int] = {}
        self._level = 0
        """What the caller whose turn was last had had by then: where newcomers start."""

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def push(self, caller: str, item: Item) -> None:
        """Stand in line."""
        if not self._waiting:  # what was had while nobody else waited was taken from nobody
            self._level = max(self._level, self._had.get(caller, 0))
        if caller not in self._waiting:
            self._had[caller] = max(self._had.get(caller, 0), self._level)
        heapq.heappush(self._waiting.setdefault(caller, []), item)
        if len(self._had) > REMEMBERED + len(self._waiting):
            self._had = {name: self._had[name] for name in self._waiting}

    def pop(self) -> Item:
        """Whose turn it is."""
        caller = min(self._waiting, key=self._had.__getitem__)
        self._level = self._had[caller]
        item: Item = heapq.heappop(self._waiting[caller])
        if not self._waiting[caller]:
            del self._waiting[caller]
        return item

    def had(self, caller: str, count: int = 1) -> None:
        """So many more for this caller. What is had while nobody waits is taken from nobody, and does not count."""
        if self._waiting:
            self._had[caller] = self._had.get(caller, self._level) + count
