"""Intervals in closed form: Wilson's for anything between 0 and 1, Student's for a mean; both by groups.

They need no resampling, cost one pass over the rows, and do not collapse where a judge is never wrong.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from referee.stats.clusters import Groups, clusters, mean, variance_of_sum
from referee.stats.quantiles import normal, student

LEVEL = 0.95


@dataclass(frozen=True, slots=True)
class Estimate:
    """A statistic and its interval. What cannot be given is None, and `reason` says why."""

    value: float | None
    low: float | None = None
    high: float | None = None
    n: int = 0
    """Rows it was computed from."""
    groups: int = 0
    """Independent draws among them."""
    reason: str = ""

    def line(self, factor: float, shift: float = 0.0) -> Estimate:
        """The same of `factor` times the statistic, which is positive, plus `shift`."""
        value, low, high = (None if one is None else factor * one + shift for one in (self.value, self.low, self.high))
        return replace(self, value=value, low=low, high=high)


def wilson(share: float, count: float, z: float) -> tuple[float, float]:
    """Wilson's score interval: every p with |share - p| <= z sqrt(p(1-p) / count)."""
    if math.isinf(z):
        return 0.0, 1.0
    centre = (share + z * z / (2 * count)) / (1 + z * z / count)
    half = z / (1 + z * z / count) * math.sqrt(share * (1 - share) / count + (z / (2 * count)) ** 2)
    return max(0.0, centre - half), min(1.0, centre + half)


def shaped(share: float, variance: float, groups: int) -> tuple[float, float]:
    """Wilson's interval of any statistic between 0 and 1, at the number of rows whose share would have its variance.

    That is share(1-share)/variance, and Student's t for that many groups in place of z. At 0 and 1 no variance can be
    seen, and each group counts as one row.
    """
    inside = 0.0 < share < 1.0 and variance > 0.0
    return wilson(share, share * (1 - share) / variance if inside else groups, student(LEVEL, groups - 1))


def effective_count(values: Sequence[float], members: Sequence[Sequence[int]], balanced: bool = False) -> float:
    """Independent rows that would tell as much about a share as these: share(1-share) / (variance of the mean).

    Never more than without the groups, unless balanced, and (z/t)^2 of it where groups are few. If no variance can be
    seen (all rows are 0, or all 1), each group counts as one row.
    """
    count, groups = len(values), len(members)
    share = mean(values)
    spread = share * (1 - share) * count**2
    apart = math.fsum((value - share) ** 2 for value in values)
    if groups == count:
        return spread / apart if spread and apart else float(groups)
    together = variance_of_sum([value - share for value in values], members)
    variance = together if balanced else max(together, apart)
    return (spread / variance if spread and variance else groups) * (normal(LEVEL) / student(LEVEL, groups - 1)) ** 2


def proportion(values: Sequence[float], groups: Groups = None, balanced: bool = False) -> Estimate:
    """The mean of hits and misses (ties as a half), with Wilson's interval at the effective number of rows.

    For accuracy, preferences, win rates and every other share. `balanced`: rows of a group cancel by design, as the two
    orders of a pair do.
    """
    members = clusters(len(values), groups)
    if len(members) < 2:
        return alone(mean(values) if values else None, len(values))
    share = mean(values)
    low, high = wilson(share, effective_count(values, members, balanced), normal(LEVEL))
    return Estimate(share, low, high, len(values), len(members))


def mean_interval(values: Sequence[float], groups: Groups = None, level: float = LEVEL) -> Estimate:
    """The mean, +- t(G-1) * sqrt(G/(G-1) * sum of (group sum of value - mean)^2) / n."""
    members = clusters(len(values), groups)
    if len(members) < 2:
        return alone(mean(values) if values else None, len(values))
    middle = mean(values)
    error = math.sqrt(variance_of_sum([value - middle for value in values], members)) / len(values)
    half = student(level, len(members) - 1) * error
    return Estimate(middle, middle - half, middle + half, len(values), len(members))


def alone(value: float | None, count: int) -> Estimate:
    """No interval: of no rows, or of rows that are all of one group."""
    reason = "all rows are of one group" if count > 1 else "only one row" if count else "no rows"
    return Estimate(value, n=count, groups=min(count, 1), reason=reason)
