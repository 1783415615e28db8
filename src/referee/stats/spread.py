"""Self-consistency: what a judge says of the same item when it is asked again. An item is the list of its answers."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Sequence

from referee.stats.clusters import Groups, mean
from referee.stats.interval import Estimate, proportion


def within_sd(items: Sequence[Sequence[float]]) -> float | None:
    """Standard deviation of one answer about its item's mean: sqrt(sum of squares within / sum of (answers - 1))."""
    freedom = sum(len(item) - 1 for item in items if item)
    within = math.fsum((value - mean(item)) ** 2 for item in items if item for value in item)
    return math.sqrt(within / freedom) if freedom else None


def flips(items: Sequence[Sequence[Hashable]], groups: Groups = None) -> Estimate:
    """P(two answers about an item differ): the mean of 1 - sum of n(n-1) / k(k-1), whatever the number of answers k."""
    asked = [place for place, item in enumerate(items) if len(item) > 1]
    names = None if groups is None else [groups[place] for place in asked]
    return proportion([_differ(items[place]) for place in asked], names)


def _differ(item: Sequence[Hashable]) -> float:
    return 1 - sum(n * (n - 1) for n in Counter(item).values()) / (len(item) * (len(item) - 1))
