"""What moves a score although it should not: length, and the place in which a response is shown."""

from __future__ import annotations

import math
from collections.abc import Sequence

from referee.stats.clusters import Groups, clusters, mean, variance_of_sum
from referee.stats.interval import LEVEL, Estimate, proportion
from referee.stats.quantiles import student


def length_slope(
    scores: Sequence[float],
    lengths: Sequence[float],
    groups: Groups = None,
    labels: Sequence[float] | None = None,
) -> Estimate:
    """Change of a score per standard deviation of log length: sum(x y) / sum(x x) * sd(x), x and y centred.

    With groups both are centred in each, and sd is the one within them: longer against shorter answers to one prompt.
    The variance is that of sum(x * residual) over groups. Long answers may be better: of x and y only what `labels` do
    not explain by a line counts, whatever the scale of each.
    """
    logs = [math.log(max(1.0, length)) for length in lengths]
    return _slope(scores, logs, groups, labels, "lengths do not differ", whole_range=False)


def place_slope(scores: Sequence[float], places: Sequence[float], responses: Groups) -> Estimate:
    """Change of a score from the first place of a list (0) to the last (1), of the same response in several orders; 0
    without bias."""
    return _slope(scores, places, responses, None, "places do not differ", whole_range=True)


def _slope(
    scores: Sequence[float],
    given: Sequence[float],
    groups: Groups,
    labels: Sequence[float] | None,
    too_few: str,
    whole_range: bool,
) -> Estimate:
    """`whole_range`: the change for 1 of what is given, instead of for a standard deviation of it."""
    members = clusters(len(scores), groups)
    # Without groups all rows share one mean, and each is independent of the others.
    blocks = [list(range(len(scores)))] if groups is None else members
    x, y = _centred(given, blocks), _centred(scores, blocks)
    freedom = len(scores) - len(blocks)
    whole = math.fsum(value * value for value in x)
    if labels is not None:
        known = _centred(labels, blocks)
        x, y = _unexplained(x, known), _unexplained(y, known)
    told = [each for each in members if groups is None or any(abs(x[place]) > 1e-9 for place in each)]
    spread = math.fsum(value * value for value in x)
    if len(told) < 3 or spread <= max(1e-18 * len(scores), 1e-9 * whole):
        reason = too_few + (" within enough groups" if groups is not None else "")
        return Estimate(None, n=len(scores), groups=len(told), reason=reason)
    rise = math.fsum(a * b for a, b in zip(x, y, strict=True)) / spread
    unit = 1.0 if whole_range else math.sqrt(whole / freedom)
    # Divided by what a row leaves of itself: residuals of long and short rows are pulled to the line.
    pull = [a * (b - rise * a) / (1 - min(0.99, a * a / spread)) for a, b in zip(x, y, strict=True)]
    error = math.sqrt(variance_of_sum(pull, told)) / spread
    half = student(LEVEL, len(told) - 1) * error
    return Estimate(rise * unit, (rise - half) * unit, (rise + half) * unit, len(scores), len(told))


def _centred(values: Sequence[float], blocks: Sequence[Sequence[int]]) -> list[float]:
    found = [0.0] * len(values)
    for block in blocks:
        middle = mean(values[place] for place in block) if block else 0.0
        for place in block:
            found[place] = values[place] - middle
    return found


def _unexplained(values: Sequence[float], known: Sequence[float]) -> list[float]:
    """What a line through `known` leaves of them; both centred."""
    spread = math.fsum(one * one for one in known)
    rise = math.fsum(a * b for a, b in zip(values, known, strict=True)) / spread if spread > 1e-18 else 0.0
    return [a - rise * b for a, b in zip(values, known, strict=True)]


def position_bias(first_won: Sequence[bool | None], pairs: Groups = None) -> Estimate:
    """Share of comparisons won by the response shown first, ties (None) left out; 0.5 without bias.

    Pairs must be shown in both orders or in a random one. `pairs` names the pair of each comparison: its two orders are
    one draw.
    """
    decided = [place for place, won in enumerate(first_won) if won is not None]
    names = None if pairs is None else [pairs[place] for place in decided]
    return proportion([float(bool(first_won[place])) for place in decided], names, balanced=True)
