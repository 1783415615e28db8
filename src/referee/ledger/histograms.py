"""Durations and scores counted in buckets: fixed memory, quantiles for people, cumulative counts for Prometheus."""

from __future__ import annotations

import math
from bisect import bisect_left
from typing import NamedTuple


class Buckets(NamedTuple):
    """How many values do not exceed each bound."""

    bounds: tuple[float, ...]
    """Growing, without the last one, which is infinite."""
    counts: tuple[int, ...]
    """Cumulative: one for each bound, then all."""
    total: float
    """The sum of the values."""

    def plus(self, other: Buckets) -> Buckets:
        """Both together. They have the same bounds."""
        counts = tuple(one + two for one, two in zip(self.counts, other.counts, strict=True))
        return Buckets(self.bounds, counts, self.total + other.total)


class Histogram:
    """Counts of durations in buckets 9 % wide, from 0.1 ms to 3 hours: quantiles to within 5 %, in fixed memory."""

    LEAST, MOST = 1e-4, 1e4
    PER_DOUBLING = 8
    BUCKETS = 214
    SHOWN = range(4, 24)
    """Doublings of LEAST that are bounds for Prometheus: 1.6 ms to 14 minutes."""

    def __init__(self) -> None:
        self.counts = [0] * self.BUCKETS
        self.total = 0
        self.seconds = 0.0

    def add(self, seconds: float) -> None:
        """Count one duration."""
        place = 0
        if seconds > self.LEAST:
            doublings = math.log2(min(seconds, self.MOST) / self.LEAST)
            place = min(math.ceil(doublings * self.PER_DOUBLING), self.BUCKETS - 1)
        self.counts[place] += 1
        self.total += 1
        self.seconds += seconds

    def quantile(self, share: float) -> float:
        """The duration that `share` of the counted ones do not exceed; 0 when nothing was counted."""
        seen = 0
        for place, count in enumerate(self.counts):
            seen += count
            if count and seen >= share * self.total:
                return self.middle(place)
        return 0.0

    @classmethod
    def middle(cls, place: int) -> float:
        """The duration that a bucket stands for."""
        return cls.LEAST * 2.0 ** ((place - 0.5) / cls.PER_DOUBLING) if place else 0.0

    def buckets(self) -> Buckets:
        """The same by doublings."""
        counts = list(self.counts)  # a copy: another thread may be counting
        bounds = tuple(round(self.LEAST * 2**power, 4) for power in self.SHOWN)
        below = [sum(counts[: power * self.PER_DOUBLING + 1]) for power in self.SHOWN]
        return Buckets(bounds, (*below, sum(counts)), self.seconds)


class Scores:
    """Counts of verdicts in [0, 1] by tenths, the ends apart."""

    __slots__ = ("counts", "total")

    BOUNDS = tuple(tenth / 10 for tenth in range(11))

    def __init__(self) -> None:
        self.counts = [0] * (len(self.BOUNDS) + 1)
        self.total = 0.0

    def add(self, value: float, times: int = 1) -> None:
        """Count one verdict; `times` = -1 subtracts it."""
        self.counts[bisect_left(self.BOUNDS, value - 1e-9)] += times  # 0.1 + 0.2 belongs to 0.3
        self.total += times * value

    def buckets(self) -> Buckets:
        """As cumulative counts."""
        counts = list(self.counts)
        return Buckets(self.BOUNDS, tuple(sum(counts[: place + 1]) for place in range(len(counts))), self.total)
