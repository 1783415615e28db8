"""Intervals of kappa and of the area under the ROC curve, from the influence of each row, shaped like Wilson's.

Near perfect agreement a bootstrap of either collapses: at 50 rows and an accuracy of 0.97 one of kappa covers 76 %.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from typing import Any, Literal

from referee.stats.clusters import Groups, clusters, mean, variance_of_sum
from referee.stats.interval import Estimate, alone, shaped

Weights = Literal["none", "quadratic"]
DISTANCES: dict[Weights, Callable[[Any, Any], float]] = {
    "none": lambda a, b: float(a != b),
    "quadratic": lambda a, b: (a - b) ** 2,
}


def kappa_interval(
    human: Sequence[Hashable],
    judged: Sequence[Hashable],
    weights: Weights = "none",
    groups: Groups = None,
) -> Estimate:
    """Cohen's kappa, plain or weighted: 1 - D/E, with Wilson's interval for D at the variance of E * kappa.

    D is the mean distance d of a row's two labels, E that of independent draws, e(x) that of x to the other side's
    labels; a row's influence is d - D - D/E * (e(human) + e(judged) - 2E). It costs as many distances as there are
    different human labels times different labels of the judge.
    """
    distance, count = DISTANCES[weights], len(human)
    members = clusters(count, groups)
    if not count:
        return alone(None, count)
    rows, columns = Counter(human), Counter(judged)
    seen = [*rows, *columns]
    largest = 1.0 if weights == "none" else distance(max(seen), min(seen)) or 1.0  # type: ignore[type-var]
    scale = 1 / (largest * count)
    from_human = {a: scale * sum(times * distance(a, b) for b, times in columns.items()) for a in rows}
    from_judged = {b: scale * sum(times * distance(a, b) for a, times in rows.items()) for b in columns}
    expected = sum(times * from_human[a] for a, times in rows.items()) / count
    if expected <= 0.0 or len(rows) == 1:  # kappa would be 0, whatever the judge says
        return Estimate(None, n=count, groups=len(members), reason="one label only")
    each = [distance(a, b) / largest for a, b in zip(human, judged, strict=True)]
    apart = mean(each)
    ratio = apart / expected
    if len(members) < 2:
        return alone(1 - ratio, count)
    influence = [
        one - apart - ratio * (from_human[a] + from_judged[b] - 2 * expected)
        for one, a, b in zip(each, human, judged, strict=True)
    ]
    variance = variance_of_sum(influence, members) / count**2
    if weights == "none":
        # A rare label can make the rows look better than independent ones, by chance.
        variance = max(variance, apart * (1 - apart) / count)
    low, high = shaped(apart, variance, len(members))
    return Estimate(1 - ratio, max(-1.0, 1 - high / expected), 1 - low / expected, count, len(members))


def roc_auc_interval(positive: Sequence[bool], scores: Sequence[float], groups: Groups = None) -> Estimate:
    """The area under the ROC curve with DeLong's variance: of each row, the share of the other class it is ordered
    rightly against, ties half."""
    members = clusters(len(scores), groups)
    high = sorted(score for yes, score in zip(positive, scores, strict=True) if yes)
    low = sorted(score for yes, score in zip(positive, scores, strict=True) if not yes)
    if not high or not low:
        reason = "rows of one class only"
        return Estimate(None, n=len(scores), groups=len(members), reason=reason)
    placed = [
        _below(low, score) / len(low) if yes else 1 - _below(high, score) / len(high)
        for yes, score in zip(positive, scores, strict=True)
    ]
    area = mean(place for yes, place in zip(positive, placed, strict=True) if yes)
    influence = [(place - area) / (len(high) if yes else len(low)) for yes, place in zip(positive, placed, strict=True)]
    rarer = min(
        len({index for index, each in enumerate(members) if any(bool(positive[place]) is kind for place in each)})
        for kind in (True, False)
    )
    return Estimate(area, *shaped(area, variance_of_sum(influence, members), rarer), len(scores), len(members))


def _below(ordered: Sequence[float], score: float) -> float:
    """How many are lower, equal ones counting half."""
    return (bisect_left(ordered, score) + bisect_right(ordered, score)) / 2
