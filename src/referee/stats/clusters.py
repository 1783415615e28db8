"""Rows that are not independent: the answers to one prompt share its difficulty, so a group counts as one draw.

Groups are one name per row; None is a row by itself, and no groups at all means that every row is.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Hashable, Iterable, Sequence

Groups = Sequence[Hashable | None] | None


def clusters(count: int, groups: Groups) -> list[list[int]]:
    """The places of each group's rows, groups in the order of their first row."""
    if groups is None:
        return [[place] for place in range(count)]
    if len(groups) != count:
        raise ValueError(f"{count} rows, but {len(groups)} names of groups")
    members: dict[object, list[int]] = defaultdict(list)
    for place, name in enumerate(groups):
        members[(place,) if name is None else (name, "named")].append(place)
    return list(members.values())


def variance_of_sum(terms: Sequence[float], members: Sequence[Sequence[int]]) -> float:
    """Variance of a sum of centred terms, independent between groups only: G/(G-1) * sum of (group sum)^2."""
    count = len(members)
    squares = math.fsum(math.fsum(terms[place] for place in each) ** 2 for each in members)
    return squares * count / (count - 1) if count > 1 else math.inf


def mean(values: Iterable[float]) -> float:
    """The mean of at least one number, added up without rounding."""
    found = list(values)
    return math.fsum(found) / len(found)
