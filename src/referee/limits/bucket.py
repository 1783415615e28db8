"""A pace: so many requests, or tokens, per minute. Pure: `now` is an argument.

The bucket holds a small burst and refills so that no window of sixty seconds passes the limit, because providers count
in windows of their own choosing. Server headers can only slow it down.
"""

from __future__ import annotations

BURST = 0.05
"""Share of a minute's limit that may go at once; the refill makes up for it, so no minute passes the limit."""
LONGEST = 60.0
"""Seconds a server's headers can hold us up: after that we ask again and are told again."""


class Bucket:
    """Wait, take, settle. An amount larger than the burst passes when the bucket is full, and leaves a debt."""

    def __init__(self, per_minute: float | None) -> None:
        self.per_minute = per_minute
        self._last: float | None = None
        self._blocked_until = float("-inf")
        self._set(per_minute)
        self._level = self._burst

    def wait(self, amount: float, now: float) -> float:
        """Seconds until this amount may be sent; 0: now."""
        blocked = max(0.0, self._blocked_until - now)
        if self._rate is None:
            return blocked
        short = min(amount, self._burst) - self._at(now)
        return max(blocked, short / self._rate if short > 1e-9 else 0.0)

    def take(self, amount: float, now: float) -> None:
        """Send this amount."""
        if self._rate is not None:
            self._level = self._at(now) - amount
            self._last = now

    def settle(self, estimated: float, actual: float, now: float) -> None:
        """Replace an estimate by what was used: a refund, or more debt."""
        if self._rate is not None:
            self._level = min(self._burst, self._at(now) + estimated - actual)
            self._last = now

    def observe(self, limit: int | None, remaining: int | None, reset: float | None, now: float) -> None:
        """What the server's headers say. A lower limit is adopted; nothing left means wait for the reset."""
        if limit is not None and limit > 0 and self.per_minute is not None and limit < self.per_minute:
            self.per_minute = float(limit)
            self._set(self.per_minute)
            self._level = min(self._level, self._burst)
        if remaining is not None and remaining <= 0 and reset is not None and reset > 0:
            self._blocked_until = max(self._blocked_until, now + min(reset, LONGEST))

    def _set(self, per_minute: float | None) -> None:
        self._burst = 0.0 if per_minute is None else max(1.0, per_minute * BURST)
        self._rate = None if per_minute is None else max(per_minute - self._burst, per_minute / 2) / 60.0

    def _at(self, now: float) -> float:
        if self._last is None or self._rate is None:
            return self._level
        return min(self._burst, self._level + max(0.0, now - self._last) * self._rate)

    def __repr__(self) -> str:
        return f"Bucket({self.per_minute}/min, level {self._level:.1f})"
