"""Running sums that can be merged: least squares, and duration histograms added up. No lines, no report."""

from __future__ import annotations

from collections.abc import Iterable

from referee.ledger.histograms import Histogram


class Fit:
    """Least squares through points that come one by one."""

    __slots__ = ("n", "x", "xx", "xy", "y")

    def __init__(self) -> None:
        self.n = 0
        self.x = self.y = self.xx = self.xy = 0.0

    def add(self, x: float, y: float) -> None:
        """One more point."""
        self.n += 1
        self.x += x
        self.y += y
        self.xx += x * x
        self.xy += x * y

    def remove(self, x: float, y: float) -> None:
        """Remove a point."""
        self.n -= 1
        self.x -= x
        self.y -= y
        self.xx -= x * x
        self.xy -= x * y

    def spreads(self) -> tuple[float, float]:
        """Sums about the means: of the squares of x, and of the products of x and y."""
        if not self.n:
            return 0.0, 0.0
        return max(0.0, self.xx - self.x * self.x / self.n), self.xy - self.x * self.y / self.n

    def slope(self) -> float | None:
        """Rise per unit of x; None where x does not vary."""
        return slope(*self.spreads(), scale=self.xx)

    def intercept(self) -> float | None:
        """Where the line meets x = 0."""
        rise = self.slope()
        return None if rise is None else (self.y - rise * self.x) / self.n


NOISE = 1e-12
"""A sum of squares smaller than this part of its raw sum is rounding, not spread."""


def slope(xx: float, xy: float, scale: float) -> float | None:
    """Rise per unit of x from sums about the mean; `scale` is the raw sum of squares."""
    return xy / xx if xx > NOISE * scale else None


def merge_histogram(into: Histogram, other: Histogram) -> None:
    """Count in `into` all that `other` counted."""
    if other.total:
        into.counts = [mine + theirs for mine, theirs in zip(into.counts, other.counts, strict=True)]
        into.total += other.total
        into.seconds += other.seconds


def covered(spans: Iterable[tuple[float, float]]) -> float:
    """Seconds in at least one of the spans."""
    total, end = 0.0, float("-inf")
    for first, last in sorted(spans):
        total += max(0.0, last - max(first, end))
        end = max(end, last)
    return total


def mean(total: float, count: int) -> float | None:
    """The mean, or None of nothing."""
    return total / count if count else None
