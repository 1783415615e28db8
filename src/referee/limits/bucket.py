"""A pace: so many requests, or tokens, per minute. Pure: `now` is an argument.

The bucket holds one second's worth and refills so that no sixty seconds pass the limit: some providers look at each
second, others at each minute. What the server's headers say can only slow it down; `remaining` counts down what they
say is left.
"""

from __future__ import annotations

import math

from referee.limits.header_quota import DUST, LONGEST, FarReset, HeaderQuota
from referee.limits.limit import Outcome

BURST = 1.0
"""Seconds' worth that may go at once."""
SPREAD = 1.0
"""Seconds by which requests may differ in the time they take to arrive: the server's minute holds what leaves here in a
minute and this much more, because the first were late and the last were not."""


class Bucket:
    """Wait, take, settle. An amount larger than the burst passes when the bucket is full, and leaves a debt."""

    def __init__(self, per_minute: float | None) -> None:
        self.per_minute = per_minute
        """The limit in force: the configured one, or the server's if that is lower."""
        self.remaining = HeaderQuota()
        self._far = FarReset()
        self._configured = per_minute
        self._blocked_until = -math.inf
        self._last = -math.inf
        self._burst, self._rate = _pace(per_minute)
        self._level = self._burst

    def wait(self, amount: float, now: float) -> float:
        """Seconds until this amount may be sent; 0: now."""
        blocked = max(0.0, self._blocked_until - now, self.remaining.wait(amount, now))
        if self.per_minute is None:
            return blocked
        needed = min(amount, self._burst)
        short = needed - self._at(now)
        if short <= DUST * max(1.0, needed):
            return blocked
        return max(blocked, DUST, short / self._rate)

    def take(self, amount: float, now: float) -> None:
        """This amount goes out."""
        self.remaining.sent(amount, now)
        if self._far.doubtful(now):  # one request finds out whether it is true; more would be refused with it
            self._blocked_until = now + self._far.patience
        self._add(-amount, now)

    def settle(self, estimated: float, actual: float, now: float) -> None:
        """Replace an estimate by what was used: a refund, or more debt."""
        self._add(estimated - actual, now)

    def heard(
        self,
        limit: float | None,
        remaining: float | None,
        reset: float | None,
        amount: float,
        outcome: Outcome,
        sent: float,
        now: float,
    ) -> None:
        """What the headers of an answer say: how the request of this amount, sent at that time, ended."""
        refuted, reset = self._far.believed(remaining, reset, outcome, sent, now)
        if refuted:
            self._blocked_until, self.remaining = -math.inf, HeaderQuota()
        if reset is None:
            remaining = None
        self.observe(limit, remaining, reset, now)
        self.remaining.heard(limit, remaining, reset, amount, sent, now)

    def observe(self, limit: float | None, remaining: float | None, reset: float | None, now: float) -> None:
        """What the server's headers say: a lower limit is adopted; nothing left means wait for the reset (seconds)."""
        if limit is not None and limit > 0 and self._configured is not None:
            lower = min(float(limit), self._configured)
            if lower != self.per_minute:
                self._add(0.0, now)
                self.per_minute = lower
                self._burst, self._rate = _pace(lower)
                self._level = min(self._level, self._burst)
        if remaining is not None and remaining <= 0 and reset is not None and reset > 0:
            self._blocked_until = max(self._blocked_until, now + min(reset, LONGEST))

    def _add(self, amount: float, now: float) -> None:
        if self.per_minute is not None:
            self._level = min(self._burst, self._at(now) + amount)
            self._last = max(self._last, now)

    def _at(self, now: float) -> float:
        if self._last == -math.inf:
            return self._level
        return min(self._burst, self._level + max(0.0, now - self._last) * self._rate)

    def __repr__(self) -> str:
        return f"Bucket({self.per_minute}/min, level {self._level:.1f})"


def _pace(per_minute: float | None) -> tuple[float, float]:
    """Burst and refill per second: together at most the limit in any minute of the server's."""
    if per_minute is None:
        return 0.0, 0.0
    burst = max(1.0, per_minute * BURST / 60.0)
    return burst, (per_minute - burst + 1.0) / (60.0 + SPREAD)
