"""How long a batch of judge calls takes: lognormal answer times, bounds on calls in flight and on starts. Pure."""

from __future__ import annotations

import math
from statistics import NormalDist

from msgspec import Struct

_NORMAL = NormalDist()
_BISECTIONS = 40
_SINGLY, _COARSER = 16, 1.2


class Latency(Struct, frozen=True):
    """Answer times of a provider: lognormal, which is what they look like. `sigma` 0 is a constant."""

    median: float
    sigma: float = 0.0

    @property
    def mean(self) -> float:
        """Seconds of an answer on average."""
        return self.median * math.exp(self.sigma**2 / 2)

    @property
    def spread(self) -> float:
        """Standard deviation over mean."""
        return math.sqrt(math.expm1(self.sigma**2))

    def quantile(self, share: float) -> float:
        """Seconds that `share` of the answers do not exceed."""
        return self.median * math.exp(self.sigma * _NORMAL.inv_cdf(_inside(share)))

    def beyond(self, seconds: float) -> float:
        """Share of the answers that take longer."""
        if seconds <= 0:
            return 1.0
        if not self.sigma:
            return float(self.median > seconds)
        return _NORMAL.cdf(math.log(self.median / seconds) / self.sigma)

    def left_beyond(self, seconds: float) -> float:
        """Share of the calls under way at some moment that still need longer than this."""
        if seconds <= 0:
            return 1.0
        if not self.sigma:
            return max(0.0, 1.0 - seconds / self.median)
        distance = math.log(self.median / seconds) / self.sigma
        over = self.mean * _NORMAL.cdf(distance + self.sigma) - seconds * _NORMAL.cdf(distance)
        return min(1.0, max(0.0, over / self.mean))

    def left_quantile(self, share: float) -> float:
        """Seconds that `share` of the calls under way at some moment do not need any more."""
        low, high = 0.0, self.mean
        while self.left_beyond(high) > 1.0 - share and high < 1e12:
            high *= 2
        for _ in range(_BISECTIONS):
            middle = (low + high) / 2
            if self.left_beyond(middle) > 1.0 - share:
                low = middle
            else:
                high = middle
        return high


def longest(calls: float, latency: Latency, share: float = 0.5) -> float:
    """Seconds the slowest of `calls` takes; in `share` of the batches it takes no longer."""
    return latency.quantile(share ** (1.0 / max(1.0, calls))) if calls > 0 else 0.0


def with_places(calls: float, places: float, latency: Latency, share: float = 0.5) -> float:
    """Seconds for a batch when `places` calls may be in flight at once.

    By Little's law `places` calls give places / mean answers per second. When the last call starts all places are
    busy with calls partly done; what is left of the slowest of them is the tail.
    """
    slowest = longest(calls, latency, share)
    if calls <= places:
        return slowest
    mean, spread = latency.mean, latency.spread
    work = calls * mean + max(0.0, _NORMAL.inv_cdf(share)) * spread * mean * math.sqrt(calls)
    last_start = work / places - mean * (1 + spread**2) / 2
    steady = last_start + latency.left_quantile(share ** (1.0 / max(1.0, places)))
    # Barely more calls than places: no steady state yet, the slowest call is nearly all of it.
    return max(slowest, work / places, min(steady, slowest + (work - places * mean) / places))


def with_pace(calls: float, per_second: float, latency: Latency, share: float = 0.5) -> float:
    """Seconds for a batch when `per_second` calls may start per second; the first second's worth goes at once.

    No call waits for another, so the batch is done by a time with the product of the chances of all its calls.
    """
    burst, count = max(1.0, per_second), max(1.0, calls)
    slowest = longest(calls, latency, share)
    last_start = max(0.0, count - burst) / per_second
    if not last_start or not calls:
        return slowest
    starts = [(max(0.0, place - burst) / per_second, size) for place, size in _from_the_end(count)]
    low, high, wanted = slowest, slowest + last_start, math.log(share)
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        if sum(size * _log(1.0 - latency.beyond(middle - start)) for start, size in starts) < wanted:
            low = middle
        else:
            high = middle
    return high


def _from_the_end(count: float) -> list[tuple[float, float]]:
    """Calls in blocks of (place of the middle one, how many): the last ones singly, earlier ones together."""
    blocks, end, size = [], count, 1.0
    while end > 0:
        size = min(size, end)
        blocks.append((end - (size - 1.0) / 2, size))
        end -= size
        if len(blocks) >= _SINGLY:
            size *= _COARSER
    return blocks


def _log(chance: float) -> float:
    return math.log(chance) if chance > 0 else -math.inf


def _inside(share: float) -> float:
    return min(max(share, 1e-12), 1 - 1e-12)
