"""Fair queueing among callers that share a resource. State only.

The caller charged least goes next; among one caller's items, the smallest. A new or returning caller starts at the
virtual time of the last turn: idle time earns no credit and costs none.
"""

from __future__ import annotations

import heapq
from typing import Any, Generic, TypeVar

Item = TypeVar("Item", bound=Any)
MAX_IDLE_CALLERS = 256
"""Callers remembered although none of their items wait. Beyond that all idle ones start level again."""


class FairQueue(Generic[Item]):
    """Waiting items by caller."""

    def __init__(self) -> None:
        self._waiting: dict[str, list[Item]] = {}
        self._charged: dict[str, int] = {}
        self._virtual_time = 0
        """What the caller of the last turn had been charged: where new callers start."""

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def push(self, caller: str, item: Item) -> None:
        """Add an item."""
        if not self._waiting:  # what was served without competition is not held against the caller
            self._virtual_time = max(self._virtual_time, self._charged.get(caller, 0))
        if caller not in self._waiting:
            self._charged[caller] = max(self._charged.get(caller, 0), self._virtual_time)
        heapq.heappush(self._waiting.setdefault(caller, []), item)
        if len(self._charged) > MAX_IDLE_CALLERS + len(self._waiting):
            self._charged = {name: self._charged[name] for name in self._waiting}

    def head(self) -> Item:
        """The next item, which stays."""
        return self._waiting[min(self._waiting, key=self._charged.__getitem__)][0]

    def pop(self) -> Item:
        """The next item."""
        caller = min(self._waiting, key=self._charged.__getitem__)
        self._virtual_time = self._charged[caller]
        item: Item = heapq.heappop(self._waiting[caller])
        if not self._waiting[caller]:
            del self._waiting[caller]
        return item

    def charge(self, caller: str, count: int = 1) -> None:
        """This caller was served. Free while no item waits: then nothing was taken from another caller."""
        if self._waiting:
            self._charged[caller] = self._charged.get(caller, self._virtual_time) + count
