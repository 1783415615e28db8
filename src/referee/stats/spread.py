"""Self-consistency: what a judge says of the same item when it is asked again. An item is the list of its answers."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Sequence

from referee.stats.clusters import Groups, mean
from referee.stats.interval import LEVEL, Estimate, proportion


def within_sd(items: Sequence[Sequence[float]]) -> float | None:
    """Standard deviation of one answer about its item's mean: sqrt(sum of squares within / sum of (answers - 1))."""
    freedom = sum(len(item) - 1 for item in items if item)
    return math.sqrt(_within(items) / freedom) if freedom else None


def icc(items: Sequence[Sequence[float]]) -> float | None:
    """Intra-class correlation ICC(1), (B - W) / (B + (k-1) W): the share of variance that is between items.

    B and W are the mean squares between and within items, k the number of answers, (N - sum of k^2 / N) / (items - 1)
    where it varies. Below 0 where items differ less than their own answers do.
    """
    items = [item for item in items if item]
    sizes = [len(item) for item in items]
    total, freedom = sum(sizes), sum(sizes) - len(items)
    if len(items) < 2 or not freedom:
        return None
    grand = mean(value for item in items for value in item)
    between = math.fsum(len(item) * (mean(item) - grand) ** 2 for item in items) / (len(items) - 1)
    within = _within(items) / freedom
    usual = (total - sum(size * size for size in sizes) / total) / (len(items) - 1)
    whole = between + (usual - 1) * within
    return (between - within) / whole if whole > 0 else None


def changed(items: Sequence[Sequence[Hashable]], groups: Groups = None, level: float = LEVEL) -> Estimate:
    """Share of items with two or more answers that are not all the same; it grows with the number of answers."""
    return _share([(float(len(set(item)) > 1) if len(item) > 1 else None) for item in items], groups, level)


def flips(items: Sequence[Sequence[Hashable]], groups: Groups = None, level: float = LEVEL) -> Estimate:
    """P(two answers about an item differ): the mean of 1 - sum of n(n-1) / k(k-1), whatever the number of answers k."""
    return _share([_differ(item) for item in items], groups, level)


def _differ(item: Sequence[Hashable]) -> float | None:
    pairs = len(item) * (len(item) - 1)
    return 1 - sum(n * (n - 1) for n in Counter(item).values()) / pairs if pairs else None


def _share(values: Sequence[float | None], groups: Groups, level: float) -> Estimate:
    asked = [place for place, value in enumerate(values) if value is not None]
    names = None if groups is None else [groups[place] for place in asked]
    return proportion([value for value in values if value is not None], names, level)


def _within(items: Sequence[Sequence[float]]) -> float:
    return math.fsum((value - mean(item)) ** 2 for item in items if item for value in item)
