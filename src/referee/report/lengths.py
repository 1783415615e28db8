"""Score against length: a line through all samples, order among siblings, and a sample of points to draw.

Strength is measured by ranks: a single outlier can move a least-squares fit arbitrarily far.
"""

from __future__ import annotations

import math
import random

from referee.report.agreement import GROUP_MOST
from referee.report.shape import Lengths, Point
from referee.report.sums import Fit, slope
from referee.stats import spearman

MOST_POINTS = 2000
"""Points to draw, chosen evenly from all."""


class Scatter:
    """Fed with scored samples whose length is known."""

    def __init__(self, most: int = MOST_POINTS) -> None:
        self.fit = Fit()
        self._most = most
        self._points: list[Point] = []
        self._places: dict[int, int] = {}
        """Where a row's point is, of those that are kept."""
        self._chance = random.Random(0)

    def add(self, point: Point) -> None:
        """One sample. Which ones are kept depends only on their order, so the same ledger gives the same picture."""
        self.fit.add(point.length, point.value)
        place = len(self._points)
        if place < self._most:
            self._points.append(point)
        else:
            place = self._chance.randrange(max(self.fit.n, self._most))
            if place >= self._most:
                return
            del self._places[self._points[place].row]
        self._points[place] = point
        self._places[point.row] = place

    def remove(self, point: Point) -> None:
        """Remove a sample."""
        self.fit.remove(point.length, point.value)
        place = self._places.pop(point.row, None)
        if place is not None:
            last = self._points.pop()
            if last.row != point.row:
                self._points[place] = last
                self._places[last.row] = place

    def lengths(self, within: Within) -> Lengths:
        """The answer so far."""
        rise, start = self.fit.slope(), self.fit.intercept()
        return Lengths(
            samples=self.fit.n,
            points=sorted(self._points, key=lambda point: point.row),
            slope=None if rise is None else rise * 100,
            intercept=start,
            correlation=spearman([point.length for point in self._points], [point.value for point in self._points]),
            within_slope=within.slope(),
            within_correlation=within.correlation(),
            within_samples=within.samples,
            within_groups=within.groups,
        )


class Siblings:
    """Lengths and scores of one group's members."""

    __slots__ = ("fit", "members")

    def __init__(self) -> None:
        self.fit = Fit()
        self.members: list[tuple[float, float]] = []
        """Those whose order is compared; of a very large group, the first."""


class Within:
    """Length and score among siblings, kept current as members come in: the fit about each group's own mean, and the
    pairs of which the longer one has the higher score."""

    def __init__(self) -> None:
        self.samples = self.groups = 0
        self._xx = self._xy = self._scale = 0.0
        self._agree = self._lengths = self._scores = 0
        """Pairs in the same order less those in opposite order; pairs that differ in length, and in score."""

    def add(self, group: Siblings, length: float, value: float) -> None:
        """One more member of a group, which is updated too."""
        self._fit(group.fit, -1)
        group.fit.add(length, value)
        self._fit(group.fit, 1)
        self._scale += length * length
        if len(group.members) < GROUP_MOST:
            self._pairs(group, length, value, 1)
            group.members.append((length, value))

    def remove(self, group: Siblings, length: float, value: float) -> None:
        """Remove a member."""
        self._fit(group.fit, -1)
        group.fit.remove(length, value)
        self._fit(group.fit, 1)
        self._scale -= length * length
        if (length, value) in group.members:
            group.members.remove((length, value))
            self._pairs(group, length, value, -1)

    def _fit(self, fit: Fit, times: int) -> None:
        xx, xy = fit.spreads()
        self._xx += times * xx
        self._xy += times * xy

    def _pairs(self, group: Siblings, length: float, value: float, times: int) -> None:
        """The pairs of this member with all others of its group."""
        others = len(group.members)
        self.samples += times * (others > 0) * (1 + (others == 1))
        self.groups += times * (others == 1)
        for other_length, other_value in group.members:
            longer = (length > other_length) - (length < other_length)
            higher = (value > other_value) - (value < other_value)
            self._agree += times * longer * higher
            self._lengths += times * (longer != 0)
            self._scores += times * (higher != 0)

    def slope(self) -> float | None:
        """Score per 100 tokens."""
        rise = slope(self._xx, self._xy, self._scale)
        return None if rise is None else rise * 100

    def correlation(self) -> float | None:
        """Kendall's tau-b; None where siblings do not differ in length or in score."""
        pairs = self._lengths * self._scores
        return self._agree / math.sqrt(pairs) if pairs else None
