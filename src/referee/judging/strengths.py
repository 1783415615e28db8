"""How good each of several items is, from comparisons of two at a time: Bradley–Terry."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from math import copysign, exp, log1p
from typing import NamedTuple

PRIOR = 0.1
"""The penalty on squared strengths, which is a Gaussian prior of standard deviation sqrt(1 / (2 * PRIOR)), about 2.2.

Without one, an item that never lost would be infinitely strong, which is common with two comparisons each; at 1 all
values are near one half. In simulations the order of the items hardly depends on it, and values are nearest to the true
ones at 0.5 with a noisy judge, at 0.15 with a fair one and at 0.03 with a precise one.
"""

TOLERANCE = 1e-11
"""How far a strength may be from its exact value."""

MAX_SWEEPS = 1000
"""Reached only with priors far below PRIOR. A group needs 15 to 50 sweeps, thousands of comparisons about 100."""


class Comparison(NamedTuple):
    """One comparison of two items. A comparison that failed is left out of the list, it is not a tie."""

    first: int
    second: int
    outcome: float
    """1: the first is better, 0: the second is, 0.5: a tie."""


def strengths(count: int, comparisons: Sequence[Comparison], prior: float = PRIOR) -> list[float]:
    """The log-strengths, of zero mean, that minimise -log likelihood + `prior` * sum of their squares (`prior` > 0).

    A tie is half a win for each. Coordinate by coordinate: the order of the comparisons does not matter, that of the
    items only within TOLERANCE.
    """
    wins, met = _tally(count, comparisons)
    opponents = [sorted(each.items()) for each in met]

    def slope(item: int) -> tuple[float, float]:
        """Of the penalised log likelihood, along one item's strength: its slope, and how fast that falls."""
        own = thetas[item]
        rise, fall = wins[item] - 2 * prior * own, 2 * prior
        for other, times in opponents[item]:
            chance = _sigmoid(own - thetas[other])
            rise -= times * chance
            fall += times * chance * (1 - chance)
        return rise, fall

    thetas = [0.0] * count
    for _ in range(MAX_SWEEPS):
        # In each row of the curvature the diagonal exceeds the rest by 2 * prior: the largest slope bounds the error.
        if all(abs(slope(item)[0]) <= 2 * prior * TOLERANCE for item in range(count)):
            break
        for item in range(count):
            rise, fall = slope(item)
            # A Newton step, rise / fall, overshoots without end where the curve is flat. The curvature changes by at
            # most e^|step|, so this one never passes the maximum, and near it the two are the same.
            thetas[item] += copysign(log1p(abs(rise) / fall), rise)
        # Comparisons do not see a common shift, so that it alone would need thousands of sweeps.
        mean = sum(thetas) / count
        thetas = [theta - mean for theta in thetas]
    return thetas


def _tally(count: int, comparisons: Sequence[Comparison]) -> tuple[list[float], list[Counter[int]]]:
    """For each item how often it won, and how often it met which other."""
    wins = [0.0] * count
    met: list[Counter[int]] = [Counter() for _ in range(count)]
    for first, second, outcome in comparisons:
        wins[first] += outcome
        wins[second] += 1 - outcome
        met[first][second] += 1
        met[second][first] += 1
    return wins, met


def _sigmoid(difference: float) -> float:
    # exp of a large positive number would overflow.
    if difference >= 0:
        return 1 / (1 + exp(-difference))
    odds = exp(difference)
    return odds / (1 + odds)
