"""Whether the first requests stand in line in front of the server. Told of every request that is over, it counts."""

from __future__ import annotations

import math

LATE, PERHAPS_IN_LINE, IN_LINE = 4.0, 0.6, 0.3
"""If so many times what the first answers took has passed and no more than this share of the requests is done, perhaps
the rest stands in line, and the start is not raised; at the smaller share it does, and the start was too many."""
FIRST_ANSWERS = 3
"""As many answers tell what one takes when nothing waits before it. The very first may be a lucky one."""


class QueueDetector:
    """In a line nobody is served before those who came earlier. One answer to a request sent after the first answer,
    while most of those sent before are still out, says that there is none: they are only slow."""

    __slots__ = ("_ahead", "_answers", "_first", "_most", "overtaken", "usual")

    def __init__(self) -> None:
        self.usual = math.inf
        """Seconds an answer takes when nothing waits before it."""
        self._answers = 0
        self.begin()

    def begin(self) -> None:
        """Look anew at who is served first, from the next answer on."""
        self.overtaken = False
        self._first = math.inf
        self._ahead = self._most = 0

    def over(self, answered: bool, now: float, in_flight: int, latency: float) -> None:
        """A request is over, and so many others are in flight."""
        if answered:
            self._answers += 1
            if self._answers == FIRST_ANSWERS:
                self.usual = latency
        if now - latency < self._first:
            self._ahead -= 1
        elif answered and 2 * self._ahead > self._most:
            self.overtaken = True
        if answered and self._first == math.inf:
            self._first = now
            self._ahead = self._most = in_flight

    def done(self, count: int, level: int, age: float) -> float:
        """Share of a window that is done after so many seconds; 1 if it is early, or if somebody was overtaken."""
        return 1.0 if self.overtaken or age <= LATE * self.usual else count / level
