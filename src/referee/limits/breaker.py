"""One endpoint's health. Pure: `now` and chance are arguments.

    healthy ──faults in a row──► suspended: one probe at a time ──an answer──► healthy
       └──────── wrong key, no quota, never reachable ────────► closed, for good
A pause (Retry-After) holds sending back in any state.
"""

from __future__ import annotations

import math

from referee.records import Unscored

FAULTS = 5
"""Faults in a row, with no answer between them, that suspend an endpoint."""
PROBE_FIRST, PROBE_MOST = 0.5, 2.0
"""Seconds between probes, growing: recovery is noticed within two seconds, and an outage costs few requests."""
UNREACHABLE_TRIES, UNREACHABLE_SECONDS = 3, 3.0
"""An endpoint that has never answered and cannot be connected to is a wrong address, not an outage."""


class Breaker:
    """Told of every answer and fault, it says whether and when to send."""

    def __init__(self) -> None:
        self.closed: Unscored | None = None
        """Why nothing will ever be sent here again."""
        self.suspended = False
        self._row = 0
        self._trouble_since = -math.inf
        self._answered = False
        self._first_miss: float | None = None
        self._misses = 0
        self._paused_until = -math.inf
        self._probe_at = -math.inf
        self._interval = PROBE_FIRST
        self._probing = False

    def wait(self, now: float) -> float:
        """Seconds until something may be sent; infinite while a probe is out."""
        pause = max(0.0, self._paused_until - now)
        if not self.suspended:
            return pause
        return math.inf if self._probing else max(pause, self._probe_at - now, 0.0)

    def on_send(self) -> None:
        """A request goes out."""
        self._probing = self.suspended

    def on_gone(self) -> None:
        """A request is over, one way or another: if it was the probe, the next may go."""
        self._probing = False

    def on_answer(self) -> None:
        """The server said something: it can be reached."""
        self._answered = True

    def on_ok(self, sent: float) -> None:
        """It did the work. An answer to a request sent before the trouble began says nothing about now."""
        self._answered = True
        if sent >= self._trouble_since:
            self.suspended = False
            self._row = 0
            self._interval = PROBE_FIRST
            self._trouble_since = -math.inf

    def on_fault(self, now: float, chance: float, connecting: bool = False) -> None:
        """Overloaded, timed out or out of reach."""
        self._row += 1
        if self._row == 1:
            self._trouble_since = now
        if connecting and not self._answered:
            self._misses += 1
            self._first_miss = now if self._first_miss is None else self._first_miss
        if self.suspended and not self._probing:
            return  # sent before the suspension: nothing new
        if self.suspended:
            self._interval = min(PROBE_MOST, self._interval * 1.5)
        if self.suspended or self._row >= FAULTS:
            self.suspended = True
            self._probe_at = now + self._interval * (0.75 + 0.5 * chance)

    def unreachable(self, now: float) -> bool:
        """True once it is clear that nobody is there."""
        if self._answered or self._first_miss is None:
            return False
        return self._misses >= UNREACHABLE_TRIES and now - self._first_miss >= UNREACHABLE_SECONDS

    def pause(self, until: float) -> None:
        """The server asked to be left alone until then."""
        self._paused_until = max(self._paused_until, until)

    def close(self, why: Unscored) -> None:
        """For good. The first reason stays."""
        self.closed = self.closed or why

    def __repr__(self) -> str:
        state = "closed" if self.closed else "suspended" if self.suspended else "healthy"
        return f"Breaker({state}, {self._row} faults in a row)"
