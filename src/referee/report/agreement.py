"""How well two lists of numbers agree: correlations, kappa, the order within groups. Pure; None where undefined."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Sequence

from msgspec import Struct

GROUP_MOST = 512
"""Members of a group that are compared pair by pair; of a larger group, the first ones."""


def pearson(a: Sequence[float], b: Sequence[float]) -> float | None:
    """Linear correlation; None for fewer than two pairs or where one side is constant."""
    if len(a) < 2:
        return None
    mean_a, mean_b = math.fsum(a) / len(a), math.fsum(b) / len(b)
    over_a, over_b = [x - mean_a for x in a], [y - mean_b for y in b]
    # Scaled before they are squared, so that tiny differences do not vanish.
    high_a, high_b = max(map(abs, over_a)), max(map(abs, over_b))
    if high_a <= 1e-12 * max(1.0, abs(mean_a)) or high_b <= 1e-12 * max(1.0, abs(mean_b)):
        return None
    over_a, over_b = [x / high_a for x in over_a], [y / high_b for y in over_b]
    both = math.fsum(x * y for x, y in zip(over_a, over_b, strict=True))
    return max(-1.0, min(1.0, both / math.sqrt(math.fsum(x * x for x in over_a) * math.fsum(y * y for y in over_b))))


def ranks(values: Sequence[float]) -> list[float]:
    """The place of each value in order, from 1; equal values share the mean of their places."""
    order = sorted(range(len(values)), key=values.__getitem__)
    found = [0.0] * len(values)
    begin = 0
    while begin < len(order):
        end = begin
        while end < len(order) and values[order[end]] == values[order[begin]]:
            end += 1
        for place in order[begin:end]:
            found[place] = (begin + 1 + end) / 2
        begin = end
    return found


def spearman(a: Sequence[float], b: Sequence[float]) -> float | None:
    """Rank correlation."""
    return pearson(ranks(a), ranks(b))


def kappa(a: Sequence[Hashable], b: Sequence[Hashable]) -> float | None:
    """Cohen's kappa: agreement beyond chance. None where chance alone agrees fully (one class on both sides)."""
    if not a:
        return None
    count = len(a)
    agreed = sum(x == y for x, y in zip(a, b, strict=True)) / count
    seen_a, seen_b = Counter(a), Counter(b)
    by_chance = sum(seen_a[name] * seen_b[name] for name in seen_a) / count**2
    return None if by_chance >= 1.0 else (agreed - by_chance) / (1.0 - by_chance)


def weighted_kappa(a: Sequence[float], b: Sequence[float]) -> float | None:
    """Kappa with squared distances, for scores on a scale: being off by one counts less than by five."""
    if not a:
        return None
    count = len(a)
    seen = math.fsum((x - y) ** 2 for x, y in zip(a, b, strict=True)) / count
    mean_a, mean_b = math.fsum(a) / count, math.fsum(b) / count
    # The mean squared distance of two independent draws, without going through all pairs of classes.
    spread = math.fsum((x - mean_a) ** 2 for x in a) / count + math.fsum((y - mean_b) ** 2 for y in b) / count
    expected = spread + (mean_a - mean_b) ** 2
    return None if expected <= 1e-18 else 1.0 - seen / expected


class Order(Struct, frozen=True, kw_only=True):
    """Siblings compared two by two: does the other judge put them in the same order?"""

    groups: int = 0
    pairs: int = 0
    """Pairs that at least one side tells apart."""
    same: int = 0
    flipped: int = 0
    tied_a: int = 0
    tied_b: int = 0
    """Told apart by the other side only."""
    best_kept: int = 0
    """Groups whose best sample of a is also (among) the best of b."""
    cut: int = 0
    """Groups too large to compare whole."""


def order(groups: Sequence[Sequence[tuple[float, float]]]) -> Order:
    """The order within each group of (a, b) values."""
    used = same = flipped = tied_a = tied_b = best_kept = cut = 0
    for whole in groups:
        members = whole[:GROUP_MOST]
        if len(members) < 2:
            continue
        used += 1
        cut += len(whole) > GROUP_MOST
        top_a, top_b = max(x for x, _ in members), max(y for _, y in members)
        best_kept += any(x == top_a and y == top_b for x, y in members)
        for place, (first_a, first_b) in enumerate(members):
            for second_a, second_b in members[place + 1 :]:
                by_a, by_b = first_a - second_a, first_b - second_b
                if by_a and by_b:
                    same += (by_a > 0) == (by_b > 0)
                    flipped += (by_a > 0) != (by_b > 0)
                elif by_b:
                    tied_a += 1
                elif by_a:
                    tied_b += 1
    return Order(
        groups=used,
        pairs=same + flipped + tied_a + tied_b,
        same=same,
        flipped=flipped,
        tied_a=tied_a,
        tied_b=tied_b,
        best_kept=best_kept,
        cut=cut,
    )
