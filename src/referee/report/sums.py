"""Running sums that can be merged: least squares, and duration histograms added up. No lines, no report."""

from __future__ import annotations

import math

from referee.ledger.metrics import Histogram


class Fit:
    """Least squares through points that come one by one."""

    __slots__ = ("n", "x", "xx", "xy", "y", "yy")

    def __init__(self) -> None:
        self.n = 0
        self.x = self.y = self.xx = self.xy = self.yy = 0.0

    def add(self, x: float, y: float) -> None:
        """One more point."""
        self.n += 1
        self.x += x
        self.y += y
        self.xx += x * x
        self.xy += x * y
        self.yy += y * y

    def remove(self, x: float, y: float) -> None:
        """A point that was added counts no more."""
        self.n -= 1
        self.x -= x
        self.y -= y
        self.xx -= x * x
        self.xy -= x * y
        self.yy -= y * y

    def merge(self, other: Fit) -> None:
        """All points of another."""
        for name in self.__slots__:
            setattr(self, name, getattr(self, name) + getattr(other, name))

    def spreads(self) -> tuple[float, float, float]:
        """Sums of squares and products about the means: of x, of x and y, of y."""
        if not self.n:
            return 0.0, 0.0, 0.0
        return (
            max(0.0, self.xx - self.x * self.x / self.n),
            self.xy - self.x * self.y / self.n,
            max(0.0, self.yy - self.y * self.y / self.n),
        )

    def slope(self) -> float | None:
        """Rise per unit of x; None where x does not vary."""
        return slope(*self.spreads()[:2], scale=self.xx)

    def intercept(self) -> float | None:
        """Where the line meets x = 0."""
        rise = self.slope()
        return None if rise is None else (self.y - rise * self.x) / self.n

    def correlation(self) -> float | None:
        """Pearson's r; None where x or y does not vary."""
        return correlation(*self.spreads(), scales=(self.xx, self.yy))


NOISE = 1e-12
"""A sum of squares smaller than this part of its raw sum is rounding, not spread."""


def slope(xx: float, xy: float, scale: float) -> float | None:
    """Rise per unit of x from sums about the mean; `scale` is the raw sum of squares."""
    return xy / xx if xx > NOISE * scale else None


def correlation(xx: float, xy: float, yy: float, scales: tuple[float, float]) -> float | None:
    """Pearson's r from sums about the mean."""
    if xx <= NOISE * scales[0] or yy <= NOISE * scales[1]:
        return None
    return max(-1.0, min(1.0, xy / math.sqrt(xx * yy)))


def merge_histogram(into: Histogram, other: Histogram) -> None:
    """Count in `into` all that `other` counted."""
    if other.total:
        into.counts = [mine + theirs for mine, theirs in zip(into.counts, other.counts, strict=True)]
        into.total += other.total


def mean(total: float, count: int) -> float | None:
    """The mean, or None of nothing."""
    return total / count if count else None
