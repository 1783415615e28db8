"""Whether the first requests wait in a queue at the server, or are only slow. Fed with every finished request."""

from __future__ import annotations

import math


class QueueDetector:
    """A FIFO queue serves nothing before what arrived earlier. So one reply to a request sent after the first reply,
    while most of those sent before it are still in flight, rules a queue out."""

    LATE = 4.0
    """Multiple of the service time after which the finished share of the first window is judged."""
    PERHAPS_QUEUED, QUEUED = 0.6, 0.3
    """Finished share below which the ramp stops growing, and below which the rest counts as queued."""
    SERVICE_SAMPLE = 3
    """The latency of this reply is taken as the service time without a queue; the very first may be a lucky one."""

    __slots__ = ("_earlier", "_earlier_at_first", "_first_reply", "_replies", "_service_time", "reordered")

    def __init__(self) -> None:
        self._service_time = math.inf
        self._replies = 0
        self.reset()

    def reset(self) -> None:
        """Watch the order of replies from the next one on."""
        self.reordered = False
        """True once a reply came before most of those sent earlier."""
        self._first_reply = math.inf
        self._earlier = self._earlier_at_first = 0

    def on_finished(self, answered: bool, now: float, in_flight: int, latency: float) -> None:
        """A request has finished; `in_flight` excludes it."""
        if answered:
            self._replies += 1
            if self._replies == self.SERVICE_SAMPLE:
                self._service_time = latency
        if now - latency < self._first_reply:
            self._earlier -= 1
        elif answered and 2 * self._earlier > self._earlier_at_first:
            self.reordered = True
        if answered and self._first_reply == math.inf:
            self._first_reply = now
            self._earlier = self._earlier_at_first = in_flight

    def done_share(self, count: int, level: int, age: float) -> float:
        """Finished share of a window of that age; 1 while it is too early to say, or if a queue is ruled out."""
        return 1.0 if self.reordered or age <= self.LATE * self._service_time else count / level
