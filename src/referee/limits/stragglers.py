"""Which requests are late enough to be asked a second time, and how many may be. Pure: told of events, it counts."""

from __future__ import annotations

from collections import deque

KNOWN = 32
"""Answers before anything can be called late."""
RECENT = 256
"""Answers that say what is usual."""
LATE = 0.95
"""Share of answers that come sooner than what counts as late."""
RENEW = 16
"""Answers after which that is worked out anew."""


class Stragglers:
    """At most `share` of the requests are hedged, and only those slower than nearly all the others."""

    def __init__(self, share: float) -> None:
        self.share = share
        self.hedged = 0
        """Requests asked a second time so far."""
        self._sent = 0
        self._latencies: deque[float] = deque(maxlen=RECENT)
        self._since = 0
        self._late: float | None = None

    def sent(self) -> None:
        """A request went out, for the first time."""
        self._sent += 1

    def answered(self, latency: float) -> None:
        """An answer came after so many seconds."""
        self._latencies.append(latency)
        self._since += 1
        if len(self._latencies) >= KNOWN and (self._late is None or self._since >= RENEW):
            self._since = 0
            self._late = sorted(self._latencies)[int(LATE * len(self._latencies))]

    @property
    def late_after(self) -> float | None:
        """Seconds after which a request counts as late; None while that is not known or hedging is off."""
        return self._late if self.share > 0 else None

    def take(self) -> bool:
        """Leave to ask one late request again. False: the share is used up."""
        if self.hedged + 1 > self.share * self._sent:
            return False
        self.hedged += 1
        return True

    def __repr__(self) -> str:
        return f"Stragglers({self.hedged} of {self._sent} hedged, late after {self._late})"
