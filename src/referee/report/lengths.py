"""Score against length: the fit over all samples, the fit among siblings, and a sample of points to draw."""

from __future__ import annotations

import random

from referee.report.shape import Lengths, Point
from referee.report.sums import Fit, correlation, slope

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
        place = self._places.get(point.row)
        if place is None:
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
        """A sample counts no more. Its place in the picture is its next end's."""
        self.fit.remove(point.length, point.value)

    def lengths(self, within: Within) -> Lengths:
        """The answer so far."""
        rise, start = self.fit.slope(), self.fit.intercept()
        return Lengths(
            samples=self.fit.n,
            points=sorted(self._points, key=lambda point: point.row),
            slope=None if rise is None else rise * 100,
            intercept=start,
            correlation=self.fit.correlation(),
            within_slope=within.slope(),
            within_correlation=within.correlation(),
        )


class Within:
    """The fit among siblings: sums about each group's own mean, kept current as members come in."""

    def __init__(self) -> None:
        self._xx = self._xy = self._yy = 0.0
        self._scale_x = self._scale_y = 0.0

    def add(self, group: Fit, length: float, value: float) -> None:
        """One more member of a group, whose sums so far are `group`; they are updated too."""
        before = group.spreads()
        group.add(length, value)
        after = group.spreads()
        self._xx += after[0] - before[0]
        self._xy += after[1] - before[1]
        self._yy += after[2] - before[2]
        self._scale_x += length * length
        self._scale_y += value * value

    def remove(self, group: Fit, length: float, value: float) -> None:
        """A member that was added counts no more."""
        before = group.spreads()
        group.remove(length, value)
        after = group.spreads()
        self._xx += after[0] - before[0]
        self._xy += after[1] - before[1]
        self._yy += after[2] - before[2]
        self._scale_x -= length * length
        self._scale_y -= value * value

    def slope(self) -> float | None:
        """Score per 100 tokens."""
        rise = slope(self._xx, self._xy, self._scale_x)
        return None if rise is None else rise * 100

    def correlation(self) -> float | None:
        """Pearson's r."""
        return correlation(self._xx, self._xy, self._yy, (self._scale_x, self._scale_y))
