"""What people would have said on average, from a judge on many rows and people on a few of them.

Prediction-powered inference needs labelled rows that were drawn like the others. Rogan-Gladen needs a judge that errs
on the others as it does on the labelled ones, which may then be chosen by their label.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from referee.stats.clusters import Groups, clusters, mean
from referee.stats.interval import LEVEL, Estimate, effective_count
from referee.stats.quantiles import normal, student

FEWEST = 3
"""Labelled groups below which no interval is given: the tuned weight and the mean take two degrees of freedom."""


def tuned_weight(human: Sequence[float], judged: Sequence[float], unlabelled: Sequence[float]) -> float:
    """PPI++'s weight of the judge, cov(human, judge) / ((1 + n/N) var(judge)), kept within 0 and 1.

    A judge that knows nothing gets 0, and the corrected mean is that of the labels alone.
    """
    if len(human) < 2 or not unlabelled:
        return 0.0
    mean_human, mean_judged = mean(human), mean(judged)
    everywhere = mean([*judged, *unlabelled])
    together = math.fsum((y - mean_human) * (f - mean_judged) for y, f in zip(human, judged, strict=True))
    spread = mean((f - everywhere) ** 2 for f in [*judged, *unlabelled])
    if spread <= 0.0:
        return 0.0
    weight = together / (len(human) - 1) / ((1 + len(human) / len(unlabelled)) * spread)
    return min(1.0, max(0.0, weight))


def prediction_powered(
    human: Sequence[float],
    judged: Sequence[float],
    unlabelled: Sequence[float],
    weight: float | None = None,
    groups: Groups = None,
    unlabelled_groups: Groups = None,
) -> Estimate:
    """Prediction-powered mean: w * mean(judge on unlabelled) + mean(human - w * judge on labelled).

    `weight` 1 is the plain form, None the tuned one (PPI++). The variance is added up over groups, which labelled and
    unlabelled rows may share; t has one degree of freedom less than there are labelled groups, two less if tuned. Yes
    and no, or labels that are all the same, may hide a rare other one: the labelled rows count at least the variance of
    one group in which all is wrong. Shares stay within 0 and 1.
    """
    if not human or (weight and not unlabelled):
        return Estimate(None, reason=f"no {'unlabelled' if human else 'labelled'} rows")
    scale = tuned_weight(human, judged, unlabelled) if weight is None else weight
    rest = [y - scale * f for y, f in zip(human, judged, strict=True)]
    lead = [scale * f for f in unlabelled] if scale else []
    value = mean(rest) + (mean(lead) if lead else 0.0)
    independent = len(clusters(len(rest), groups))
    rows = len(human) + len(unlabelled)
    if independent < FEWEST or (lead and len(clusters(len(lead), unlabelled_groups)) < 2):
        return Estimate(value, n=rows, groups=independent, reason="too few independent groups of rows")
    shares = all(0.0 <= one <= 1.0 for values in (human, judged, unlabelled) for one in values)
    if len(set(human)) == 1 and not shares:
        return Estimate(value, n=rows, groups=independent, reason="one label only")
    own = _terms(rest, groups)
    terms = own + _terms(lead, unlabelled_groups)
    names = [*(groups or [None] * len(rest)), *((unlabelled_groups or [None] * len(lead)) if lead else [])]
    variance = math.fsum(math.fsum(terms[row] for row in each) ** 2 for each in clusters(len(terms), names))
    if len(set(human)) == 1 or set(human) <= {0.0, 1.0}:
        seen = math.fsum(math.fsum(own[row] for row in each) ** 2 for each in clusters(len(own), groups))
        variance += max(0.0, independent**-2 - seen)
    half = student(LEVEL, independent - (2 if weight is None else 1)) * math.sqrt(variance)
    low, high = value - half, value + half
    if shares:
        value, low, high = _inside(value), _inside(low), _inside(high)
    return Estimate(value, low, high, rows, independent)


def _terms(values: Sequence[float], groups: Groups) -> list[float]:
    """What each row adds to the error of the mean, enlarged for few groups."""
    if not values:
        return []
    count, middle = len(clusters(len(values), groups)), mean(values)
    return [math.sqrt(count / (count - 1)) * (value - middle) / len(values) for value in values]


def rogan_gladen(
    human: Sequence[bool],
    judged: Sequence[bool],
    unlabelled: Sequence[bool],
    groups: Groups = None,
    unlabelled_groups: Groups = None,
) -> Estimate:
    """The true share of yes, (p + specificity - 1) / (sensitivity + specificity - 1), p being the judge's share of yes
    among unlabelled rows, with Lang and Reiczigel's interval at the effective numbers of rows.

    Where sensitivity + specificity is not above 1 by more than its own noise, `reason` says so in place of an interval.
    """
    counted = len(human) + len(unlabelled)
    found, sizes = [], []
    for hits, names, what in (
        *(_side(human, judged, groups, kind) for kind in (True, False)),
        (list(unlabelled), unlabelled_groups, "unlabelled row"),
    ):
        if not hits:
            return Estimate(None, n=counted, reason=f"no {what}")
        members = clusters(len(hits), names)
        if len(members) < min(2, len(hits)):
            return Estimate(None, n=counted, groups=1, reason=f"every {what} is of one group")
        found.append(sum(hits) / len(hits))
        sizes.append(effective_count(hits, members))
    sensitivity, specificity, share = found
    independent = len(clusters(len(human), groups))
    told = sensitivity + specificity - 1
    if told <= 0:
        reason = (
            f"sensitivity {sensitivity:.2f} + specificity {specificity:.2f} is not above 1: the judge tells nothing"
        )
        return Estimate(None, n=counted, groups=independent, reason=reason)
    value = _inside((share + specificity - 1) / told)
    z = normal(LEVEL)
    # One more hit and one more miss for each rate, z^2/2 of each for the share: rates of 0 and 1 have noise too.
    n_sensitivity, n_specificity, n_share = sizes[0] + 2, sizes[1] + 2, sizes[2] + z * z
    a = (sizes[0] * sensitivity + 1) / n_sensitivity
    b = (sizes[1] * specificity + 1) / n_specificity
    p = (sizes[2] * share + z * z / 2) / n_share
    noise_a, noise_b = a * (1 - a) / n_sensitivity, b * (1 - b) / n_specificity
    if a + b - 1 <= z * math.sqrt(noise_a + noise_b):
        reason = f"sensitivity {sensitivity:.2f} + specificity {specificity:.2f} is above 1 by no more than noise"
        return Estimate(value, n=counted, groups=independent, reason=reason)
    centre = (p + b - 1) / (a + b - 1)
    shift = 2 * z * z * (centre * noise_a - (1 - centre) * noise_b)
    error = math.sqrt(p * (1 - p) / n_share + centre**2 * noise_a + (1 - centre) ** 2 * noise_b) / (a + b - 1)
    low, high = _inside(centre + shift - z * error), _inside(centre + shift + z * error)
    return Estimate(value, low, high, counted, independent)


def _side(human: Sequence[bool], judged: Sequence[bool], groups: Groups, kind: bool) -> tuple[list[bool], Groups, str]:
    """Whether the judge is right, on the labelled rows of one kind."""
    places = [place for place, yes in enumerate(human) if bool(yes) is kind]
    hits = [bool(judged[place]) is kind for place in places]
    return hits, groups and [groups[place] for place in places], f"labelled row that is {'yes' if kind else 'no'}"


def _inside(share: float) -> float:
    return min(1.0, max(0.0, share))
