"""A token bucket for requests, or tokens, per minute. `now` is an argument.

It holds one second's worth and refills so that no sixty seconds pass the limit: some providers count per second, others
per minute. The server's headers can only slow it down; `header_quota` counts down what they say is left.
"""

from __future__ import annotations

import math

from referee.limits.header_quota import EPSILON, MAX_HEADER_WAIT_S, DistantReset, HeaderQuota
from referee.limits.limit import Outcome

BURST_S = 1.0
"""Seconds' worth that may go at once."""
ARRIVAL_JITTER_S = 1.0
"""Most by which request latencies to the server may differ: its minute holds what leaves here in a minute and this much
more, if the first requests were late and the last were not."""


class Bucket:
    """Wait, take, settle. An amount above the burst passes when the bucket is full, and leaves a debt."""

    def __init__(self, per_minute: float | None) -> None:
        self.per_minute = per_minute
        """The limit in force: the configured one, or the server's if that is lower."""
        self._header_quota = HeaderQuota()
        self._distant_reset = DistantReset()
        self._configured = per_minute
        self._blocked_until = -math.inf
        self._last = -math.inf
        self._burst, self._rate = _burst_and_rate(per_minute)
        self._level = self._burst

    def wait(self, amount: float, now: float) -> float:
        """Seconds until this amount may be sent; 0: now."""
        blocked = max(0.0, self._blocked_until - now, self._header_quota.wait(amount, now))
        if self.per_minute is None:
            return blocked
        needed = min(amount, self._burst)
        short = needed - self._at(now)
        if short <= EPSILON * max(1.0, needed):
            return blocked
        return max(blocked, EPSILON, short / self._rate)

    def take(self, amount: float, now: float) -> None:
        """This amount goes out."""
        self._header_quota.on_send(amount, now)
        if self._distant_reset.is_probe(now):  # one at a time: more would be refused with it
            self._blocked_until = now + self._distant_reset.probe_interval
        self._add(-amount, now)

    def settle(self, estimated: float, actual: float, now: float) -> None:
        """Replace an estimate by what was used: a refund, or more debt."""
        self._add(estimated - actual, now)

    def on_headers(
        self,
        limit: float | None,
        remaining: float | None,
        reset: float | None,
        amount: float,
        outcome: Outcome,
        sent: float,
        now: float,
    ) -> None:
        """Headers of a reply, with the amount, outcome and send time of its request."""
        refuted, reset = self._distant_reset.check(remaining, reset, outcome, sent, now)
        if refuted:
            self._blocked_until, self._header_quota = -math.inf, HeaderQuota()
        if reset is None:
            remaining = None
        self.observe(limit, remaining, reset, now)
        self._header_quota.on_headers(limit, remaining, reset, amount, sent, now)

    def observe(self, limit: float | None, remaining: float | None, reset: float | None, now: float) -> None:
        """Adopt a lower limit; with nothing left, block until the reset (seconds)."""
        if limit is not None and limit > 0 and self._configured is not None:
            lower = min(float(limit), self._configured)
            if lower != self.per_minute:
                self._add(0.0, now)
                self.per_minute = lower
                self._burst, self._rate = _burst_and_rate(lower)
                self._level = min(self._level, self._burst)
        if remaining is not None and remaining <= 0 and reset is not None and reset > 0:
            self._blocked_until = max(self._blocked_until, now + min(reset, MAX_HEADER_WAIT_S))

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


def _burst_and_rate(per_minute: float | None) -> tuple[float, float]:
    """Burst and refill per second: together at most the limit in any minute by the server's clock."""
    if per_minute is None:
        return 0.0, 0.0
    burst = max(1.0, per_minute * BURST_S / 60.0)
    return burst, (per_minute - burst + 1.0) / (60.0 + ARRIVAL_JITTER_S)
