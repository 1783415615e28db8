"""Order: ranks, and correlations of values and of ranks. None where undefined."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import groupby
from operator import itemgetter, mul


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
    places = _doubled(Counter(values))
    return [places[value] / 2 for value in values]


def _doubled(counts: Mapping[float, int]) -> dict[float, int]:
    """Twice the mean place of each distinct value: whole numbers, so that sums of them are exact and fast."""
    places, below = {}, 0
    for value in sorted(counts):
        times = counts[value]
        places[value] = 2 * below + times + 1
        below += times
    return places


def spearman(a: Sequence[float], b: Sequence[float]) -> float | None:
    """Rank correlation: Pearson's of the ranks, ties sharing theirs.

    In doubled ranks u, whose sum is n(n+1): sum(u_a u_b) - n(n+1)^2 over the same of each side with itself, which is
    (n^3 - sum of t^3) / 3 with ties of t.
    """
    count, counts_a, counts_b = len(a), Counter(a), Counter(b)
    if count != len(b):
        raise ValueError(f"{count} values against {len(b)}")
    ranks_a, ranks_b = _doubled(counts_a), _doubled(counts_b)
    both = sum(map(mul, map(ranks_a.__getitem__, a), map(ranks_b.__getitem__, b)))
    both = 3 * (both - count * (count + 1) ** 2)
    spread_a, spread_b = (count**3 - sum(n**3 for n in each.values()) for each in (counts_a, counts_b))
    return max(-1.0, min(1.0, both / math.sqrt(spread_a * spread_b))) if spread_a and spread_b else None


def kendall(a: Sequence[float], b: Sequence[float]) -> float | None:
    """Kendall's tau-b: (concordant - discordant) / sqrt(pairs untied in a * pairs untied in b).

    O(d log d) in the number of distinct pairs of values: scores on a scale of ten are no more than a hundred.
    """
    cells = Counter(zip(a, b, strict=True))
    pairs = len(a) * (len(a) - 1) // 2
    untied_a, untied_b = (pairs - sum(n * (n - 1) // 2 for n in Counter(side).values()) for side in (a, b))
    if not untied_a or not untied_b:
        return None
    return max(-1.0, min(1.0, _concordance(cells) / math.sqrt(untied_a * untied_b)))


def _concordance(cells: Mapping[tuple[float, float], int]) -> int:
    """Concordant less discordant pairs: each cell against those of smaller a, counted by b in a Fenwick tree."""
    level = {value: place for place, value in enumerate(sorted({y for _, y in cells}), 1)}
    tree, seen, found = [0] * (len(level) + 1), 0, 0
    for _, block in groupby(sorted(cells), key=itemgetter(0)):
        same_a = list(block)
        for cell in same_a:
            place = level[cell[1]]
            found += cells[cell] * (_sum(tree, place - 1) + _sum(tree, place) - seen)
        for cell in same_a:
            place, times = level[cell[1]], cells[cell]
            seen += times
            while place < len(tree):
                tree[place] += times
                place += place & -place
    return found


def _sum(tree: Sequence[int], place: int) -> int:
    total = 0
    while place:
        total += tree[place]
        place &= place - 1
    return total
