"""Which requests are late enough to be hedged, and how many may be. No clock, no task."""

from __future__ import annotations

from collections import deque


class Stragglers:
    """At most `share` of the requests are hedged, and only those slower than nearly all the others."""

    MIN_SAMPLE, MAX_SAMPLE = 32, 256
    """Latencies before anything can be called late, and the most recent ones that are considered."""
    LATE_QUANTILE = 0.95
    REFRESH = 16
    """Replies after which the quantile is computed again."""

    def __init__(self, share: float) -> None:
        self.share = share
        self.hedged = 0
        """Requests sent a second time so far."""
        self._sent = 0
        self._latencies: deque[float] = deque(maxlen=self.MAX_SAMPLE)
        self._unseen = 0
        self._late: float | None = None

    def sent(self) -> None:
        """A request went out, for the first time."""
        self._sent += 1

    def answered(self, latency: float) -> None:
        """A reply came after that many seconds."""
        self._latencies.append(latency)
        self._unseen += 1
        if len(self._latencies) >= self.MIN_SAMPLE and (self._late is None or self._unseen >= self.REFRESH):
            self._unseen = 0
            self._late = sorted(self._latencies)[int(self.LATE_QUANTILE * len(self._latencies))]

    @property
    def late_after(self) -> float | None:
        """Seconds after which a request counts as late; None while unknown or with hedging off."""
        return self._late if self.share > 0 else None

    def take(self) -> bool:
        """Permission to hedge one late request. False: the share is used up."""
        if self.hedged + 1 > self.share * self._sent:
            return False
        self.hedged += 1
        return True

    def __repr__(self) -> str:
        return f"Stragglers({self.hedged} of {self._sent} hedged, late after {self._late})"
