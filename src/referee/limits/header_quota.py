"""Quota left according to x-ratelimit headers, less what was sent since. `now` is an argument.

Headers come late and in any order: each describes the moment its own request was counted and knows nothing of later
ones. So the headers of the request sent last count, minus everything sent since.
"""

from __future__ import annotations

import math
from collections import deque

from referee.limits.limit import Outcome

MAX_HEADER_WAIT_S = 60.0
"""Longest wait that headers can impose: then the server is asked again and may repeat them."""
EPSILON = 1e-6
"""A shortage this small is rounding, and no wait is shorter: a clock must be able to show it."""


class HeaderQuota:
    """Fed with every send and with the headers of replies. Call `wait` before each send. Unlimited before the first."""

    STEADY_REFILL = 1.5
    """Largest ratio of refill rates, told by different headers, of a limit that refills continuously. Where it comes
    back as a whole, they differ as much as the use at those moments."""

    def __init__(self) -> None:
        self._left = math.inf
        """Quota just before the request sent at `_as_of` was counted."""
        self._as_of = -math.inf
        self._last_reset = -math.inf
        self._next_reset = math.inf
        self._limit: float | None = None
        self._sent: deque[tuple[float, float]] = deque()
        self._sent_since = 0.0
        self._min_refill, self._max_refill = math.inf, 0.0
        self._min_used, self._max_used = math.inf, 0.0

    def on_send(self, amount: float, now: float) -> None:
        """This amount goes out."""
        if self._left < math.inf:
            self._sent.append((now, amount))
            self._sent_since += amount

    def on_headers(
        self, limit: float | None, remaining: float | None, reset: float | None, amount: float, sent: float, now: float
    ) -> None:
        """Headers of the reply to a request of that amount and send time. `reset`: seconds."""
        if remaining is None or reset is None or not 0 < reset < math.inf or sent < max(self._as_of, self._last_reset):
            return
        self._limit = limit if limit is not None and limit > 0 else None
        left = max(0.0, remaining) + amount
        # Of those sent in the same moment, the first was counted before all the others: it shows the most.
        self._left = max(self._left, left) if sent == self._as_of else left
        self._as_of = sent
        while self._sent and self._sent[0][0] < sent:
            self._sent_since -= self._sent.popleft()[1]
        if not self._sent:
            self.on_send(amount, sent)
        at = now + min(reset, MAX_HEADER_WAIT_S)
        # A slow reply names the reset too late, by its latency at most; a quick one is more exact.
        same = sent < self._next_reset and at - self._next_reset <= now - sent
        self._next_reset = min(self._next_reset, at) if same else at
        if self._limit is not None and remaining < self._limit:
            used = self._limit - remaining
            self._min_used, self._max_used = min(self._min_used, used), max(self._max_used, used)
            self._min_refill, self._max_refill = (
                min(self._min_refill, used / reset),
                max(self._max_refill, used / reset),
            )

    def wait(self, amount: float, now: float) -> float:
        """Seconds until this amount is left, at most MAX_HEADER_WAIT_S; 0: now, or nothing is known."""
        if now >= self._next_reset:
            self._on_reset()
        if self._left == math.inf or (self._limit is not None and amount > self._limit):
            return 0.0  # an amount above the whole limit can only be tried
        refill = self._refill_rate()
        short = amount - (self._left - self._sent_since + refill * (now - self._as_of))
        if short <= EPSILON * max(1.0, amount):
            return 0.0
        return max(EPSILON, min(self._next_reset - now, short / refill if refill > 0 else MAX_HEADER_WAIT_S))

    def _refill_rate(self) -> float:
        """Per second, from headers at low and at high use; 0 if the limit comes back as a whole."""
        known = self._max_used >= 2 * self._min_used
        return self._min_refill if known and self._max_refill < self.STEADY_REFILL * self._min_refill else 0.0

    def _on_reset(self) -> None:
        """The whole limit is back, if its size is known and there were headers since the previous reset."""
        if self._limit is not None and self._as_of >= self._last_reset:
            self._left = self._limit
            self._last_reset = self._next_reset
            self._next_reset += MAX_HEADER_WAIT_S
        else:
            self._left = self._next_reset = math.inf
            self._sent.clear()
            self._sent_since = 0.0

    def __repr__(self) -> str:
        return f"HeaderQuota({self._left - self._sent_since:g})"


class DistantReset:
    """Headers that say "nothing left" until a reset further away than MAX_HEADER_WAIT_S. A limit per minute cannot mean
    that: it is a limit per day, or wrong. So single probes are sent; a served one refutes such headers, and they are
    ignored until the server refuses something."""

    FIRST_PROBE_S = 1.0

    def __init__(self) -> None:
        self.probe_interval = self.FIRST_PROBE_S
        """Seconds; doubled by each refused probe, up to MAX_HEADER_WAIT_S."""
        self._since = math.inf
        self._until = -math.inf
        self._refuted = False

    def is_probe(self, now: float) -> bool:
        """Whether a request sent now goes against the headers."""
        return self._since <= now < self._until and not self._refuted

    def check(
        self, remaining: float | None, reset: float | None, outcome: Outcome, sent: float, now: float
    ) -> tuple[bool, float | None]:
        """Whether the reply to a request of that send time refutes earlier headers; and the reset to go by."""
        probe, refutes = self.is_probe(sent), False
        if outcome == "throttled" and (probe or self._refuted):
            self._refuted = False
            self.probe_interval = min(MAX_HEADER_WAIT_S, 2 * self.probe_interval)
        elif outcome == "ok" and probe:
            self._refuted = refutes = True
        if reset is None or remaining is None or remaining > 0 or not reset > MAX_HEADER_WAIT_S:
            return refutes, reset
        if self._refuted:
            return refutes, None
        if now >= self._until:
            self._since = now
        self._until = now + reset
        return refutes, self.probe_interval
