"""Whether a judge that says 0.8 is right eight times out of ten: reliability curve, ECE."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from referee.stats.bootstrap import Chance, bootstrap
from referee.stats.clusters import Groups, mean
from referee.stats.interval import LEVEL, Estimate, wilson
from referee.stats.quantiles import normal
from referee.stats.ranks import ranks

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


def reliability(said: Sequence[float], true: Sequence[float], bins: int = BINS) -> list[Bin]:
    """The reliability curve, from low to high, in bins of about as many rows each; empty ones are left out.

    Equal probabilities share a bin, so the order of rows does not matter.
    """
    held: dict[int, list[tuple[float, float]]] = {}
    for place, row in zip(_places(said, bins), zip(said, true, strict=True), strict=True):
        held.setdefault(place, []).append(row)
    curve = []
    for _, rows in sorted(held.items()):
        share = mean(y for _, y in rows)
        curve.append(Bin(len(rows), mean(p for p, _ in rows), share, *wilson(share, len(rows), normal(LEVEL))))
    return curve


def _places(said: Sequence[float], bins: int) -> list[int]:
    return [int((rank - 0.5) / len(said) * bins) for rank in ranks(said)]


def ece(said: Sequence[float], true: Sequence[float], bins: int = BINS) -> float | None:
    """Expected calibration error: the mean over rows of |said - true| of their bin. Noise raises it: `ece_floor`."""
    if not said:
        return None
    return math.fsum(each.count * abs(each.said - each.true) for each in reliability(said, true, bins)) / len(said)


def ece_interval(
    said: Sequence[float],
    true: Sequence[float],
    chance: Chance,
    groups: Groups = None,
    bins: int = BINS,
    resamples: int = 1000,
) -> Estimate:
    """The ECE, give or take the largest error of all bins together that resampling shows at this level, not below 0.

    Quantiles of resampled ECEs would not do: each has the noise of the rows and that of drawing them, so that 0 is
    never among them. The sum of the bins' errors is no less than that of the ECE: the interval is on the safe side.
    """
    value, places = ece(said, true, bins), _places(said, bins)
    apart = [p - y for p, y in zip(said, true, strict=True)]

    def means(within: Sequence[int], rows: Sequence[float]) -> list[float]:
        sums = [0.0] * bins
        for place, row in zip(within, rows, strict=True):
            sums[place] += row / len(rows)
        return sums

    seen = means(places, apart)

    def error(within: Sequence[int], rows: Sequence[float]) -> float | None:
        return math.fsum(abs(a - b) for a, b in zip(means(within, rows), seen, strict=True)) if rows else None

    noise = bootstrap(error, (places, apart), chance, groups, resamples)
    if value is None or noise.high is None:
        return Estimate(value, n=noise.n, groups=noise.groups, reason=noise.reason)
    return Estimate(value, max(0.0, value - noise.high), value + noise.high, noise.n, noise.groups)


def ece_floor(said: Sequence[float], chance: Chance, bins: int = BINS, draws: int = 100) -> float | None:
    """The mean ECE of labels drawn with exactly these probabilities: what a perfectly calibrated judge would have."""
    if not said:
        return None
    drawn = ([float(chance.random() < p) for p in said] for _ in range(draws))
    return mean(ece(said, labels, bins) or 0.0 for labels in drawn)
