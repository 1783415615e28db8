"""Whether two judges put the members of a group in the same order. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

from msgspec import Struct

GROUP_MOST = 512
"""Members of a group that are compared pair by pair; of a larger group, the first ones."""


class Order(Struct, kw_only=True):
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
    found = Order()
    for whole in groups:
        members = whole[:GROUP_MOST]
        if len(members) < 2:
            continue
        found.groups += 1
        found.cut += len(whole) > GROUP_MOST
        top_a, top_b = max(x for x, _ in members), max(y for _, y in members)
        found.best_kept += any(x == top_a and y == top_b for x, y in members)
        for (first_a, first_b), (second_a, second_b) in combinations(members, 2):
            by_a, by_b = first_a - second_a, first_b - second_b
            found.same += by_a * by_b > 0
            found.flipped += by_a * by_b < 0
            found.tied_a += not by_a and by_b != 0
            found.tied_b += not by_b and by_a != 0
    found.pairs = found.same + found.flipped + found.tied_a + found.tied_b
    return found
