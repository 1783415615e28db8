"""Whether a judge that says 0.8 is right eight times out of ten: reliability curve, ECE, Brier score."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from referee.stats.bootstrap import Chance, bootstrap
from referee.stats.clusters import Groups, mean
from referee.stats.interval import LEVEL, Estimate, wilson
from referee.stats.quantiles import normal
from referee.stats.ranks import ranks

Binning = Literal["mass", "width"]
BINS = 10


@dataclass(frozen=True, slots=True)
class Bin:
    """Rows of similar probability: what the judge said on average, and what was true of them."""

    count: int
    said: float
    true: float
    low: float
    high: float
    """Wilson's interval of `true`, as of independent rows."""


def reliability(
    said: Sequence[float], true: Sequence[float], bins: int = BINS, by: Binning = "mass", level: float = LEVEL
) -> list[Bin]:
    """The reliability curve, from low to high; empty bins are left out.

    Bins of equal mass hold about as many rows each; equal probabilities share a bin, so the order of rows does not
    matter. Bins of equal width divide 0 to 1.
    """
    held: dict[int, list[tuple[float, float]]] = {}
    for place, row in zip(_places(said, bins, by), zip(said, true, strict=True), strict=True):
        held.setdefault(place, []).append(row)
    curve = []
    for _, rows in sorted(held.items()):
        share = mean(y for _, y in rows)
        curve.append(Bin(len(rows), mean(p for p, _ in rows), share, *wilson(share, len(rows), normal(level))))
    return curve


def _places(said: Sequence[float], bins: int, by: Binning) -> list[int]:
    if by == "mass":
        return [int((rank - 0.5) / len(said) * bins) for rank in ranks(said)]
    return [min(int(p * bins), bins - 1) for p in said]


def ece(said: Sequence[float], true: Sequence[float], bins: int = BINS, by: Binning = "mass") -> float | None:
    """Expected calibration error: the mean over rows of |said - true| of their bin. Noise raises it: `ece_floor`."""
    if not said:
        return None
    return math.fsum(each.count * abs(each.said - each.true) for each in reliability(said, true, bins, by)) / len(said)


def ece_interval(
    said: Sequence[float],
    true: Sequence[float],
    chance: Chance,
    groups: Groups = None,
    bins: int = BINS,
    by: Binning = "mass",
    resamples: int = 1000,
    level: float = LEVEL,
) -> Estimate:
    """The ECE, give or take the largest error of all bins together that resampling shows at this level, not below 0.

    Quantiles of resampled ECEs would not do: each has the noise of the rows and that of drawing them, so that 0 is
    never among them. The sum of the bins' errors is no less than that of the ECE: the interval is on the safe side.
    """
    value, places = ece(said, true, bins, by), _places(said, bins, by)
    apart = [p - y for p, y in zip(said, true, strict=True)]

    def means(within: Sequence[int], rows: Sequence[float]) -> list[float]:
        sums = [0.0] * bins
        for place, row in zip(within, rows, strict=True):
            sums[place] += row / len(rows)
        return sums

    seen = means(places, apart)

    def error(within: Sequence[int], rows: Sequence[float]) -> float | None:
        return math.fsum(abs(a - b) for a, b in zip(means(within, rows), seen, strict=True)) if rows else None

    noise = bootstrap(error, (places, apart), chance, groups, resamples, level)
    if value is None or noise.high is None:
        return Estimate(value, n=noise.n, groups=noise.groups, level=level, reason=noise.reason)
    return Estimate(value, max(0.0, value - noise.high), value + noise.high, noise.n, noise.groups, level)


def ece_floor(
    said: Sequence[float], chance: Chance, bins: int = BINS, by: Binning = "mass", draws: int = 100
) -> float | None:
    """The mean ECE of labels drawn with exactly these probabilities: what a perfectly calibrated judge would have."""
    if not said:
        return None
    drawn = ([float(chance.random() < p) for p in said] for _ in range(draws))
    return mean(ece(said, labels, bins, by) or 0.0 for labels in drawn)


def brier(said: Sequence[float], true: Sequence[float]) -> float | None:
    """Mean of (said - true)^2: 0 at best, 0.25 for one that always says 0.5."""
    return mean((p - y) ** 2 for p, y in zip(said, true, strict=True)) if said else None
