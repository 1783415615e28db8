"""How well what was said agrees with what people said: every measure with an interval, over rows that have both. Pure.

Rows of one prompt are one draw. A row without a verdict is counted, and is in no measure.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from random import Random
from typing import Any

from msgspec import Struct

from referee.calibration.ratings import Rater
from referee.calibration.truth import Kind, pairs
from referee.stats import (
    Bin,
    Confusion,
    Estimate,
    bootstrap,
    confusion,
    ece_floor,
    ece_interval,
    kappa,
    kappa_interval,
    kendall,
    mean_interval,
    proportion,
    reliability,
    roc_auc_interval,
    spearman,
    weighted_kappa,
)
from referee.stats.clusters import clusters

RESAMPLES, RESAMPLES_OF_MANY, MANY = 1000, 300, 1000
"""Bootstrap resamples, and those from this many rows: Kendall's tau would take minutes."""
BINS, ROWS_OF_A_BIN = 10, 8
"""Bins of a calibration curve at most, and rows that one needs to say something."""
CUT = 0.5
"""A value above it says yes."""
NONE = Estimate(None, reason="not defined for these labels")


class Measures(Struct, frozen=True, kw_only=True):
    """What can be said of one rater's agreement. For preferences, n is pairs of responses; else rows."""

    kind: Kind
    n: int
    prompts: int
    """Independent draws."""
    labelled: int
    unscored: int
    """Labelled rows without a verdict."""
    reasons: dict[str, int]
    accuracy: Estimate
    accuracy_of: str
    kappa: Estimate
    kappa_of: str
    spearman: Estimate = NONE
    kendall: Estimate = NONE
    roc_auc: Estimate = NONE
    ece: Estimate = NONE
    ece_floor: float | None = None
    """Of yes and no: what a perfectly calibrated judge would have with so few rows."""
    bias: Estimate = NONE
    """Judge less people, in [0, 1] terms."""
    sensitivity: Estimate = NONE
    specificity: Estimate = NONE
    within_one: Estimate = NONE
    order: Estimate = NONE
    """Of two responses to one prompt that people tell apart, the share in which the better one is scored higher."""
    best: Estimate = NONE
    """Share of prompts at which a preferred response is scored above all others."""
    mean_human: float | None = None
    mean_judge: float | None = None
    curve: tuple[Bin, ...] = ()
    confusion: Confusion | None = None


class Common(Struct, frozen=True):
    """What all raters of a file share: which rows are compared, and which are not independent."""

    contests: Sequence[Hashable]
    prompts: Sequence[Hashable]


def measure(rater: Rater, common: Common, seed: int, places: Sequence[int] | None = None) -> Measures:
    """Everything, over these places or all."""
    among = range(len(rater.said)) if places is None else places
    labelled = [place for place in among if rater.truth.values[place] is not None]
    scored = [place for place in labelled if rater.said[place].value is not None]
    reasons = Counter(rater.said[place].unscored for place in labelled if rater.said[place].value is None)
    counts: dict[str, Any] = {
        "kind": rater.truth.kind,
        "labelled": len(labelled),
        "unscored": len(labelled) - len(scored),
        "reasons": dict(reasons.most_common()),
    }
    if rater.truth.kind == "preference":
        return Measures(**counts, **_preferences(rater, common, scored))
    human = [_known(rater.truth.values[place]) for place in scored]
    judged = [_known(rater.said[place].value) for place in scored]
    groups = [common.prompts[rater.keys[place][0]] for place in scored]
    found: dict[str, Any] = {
        "n": len(scored),
        "prompts": len(set(groups)),
        "bias": mean_interval([said - true for true, said in zip(human, judged, strict=True)], groups),
        "mean_human": _mean(human),
        "mean_judge": _mean(judged),
        **(_binary if rater.truth.kind == "binary" else _ordinal)(rater, human, judged, groups),
    }
    if scored:
        chance = Random(seed)
        times = RESAMPLES_OF_MANY if len(scored) > MANY else RESAMPLES
        bins = max(2, min(BINS, len(scored) // ROWS_OF_A_BIN))

        def resampled(statistic: Callable[..., float | None], *columns: Sequence[float]) -> Estimate:
            return bootstrap(statistic, columns, chance, groups, times)

        found |= {
            "spearman": resampled(spearman, human, judged),
            "kendall": resampled(kendall, human, judged),
            "ece": ece_interval(judged, human, chance, groups, bins, resamples=times),
            "ece_floor": ece_floor(judged, chance, bins) if rater.truth.kind == "binary" else None,
            "curve": tuple(reliability(judged, human, bins)),
            "order": _order(rater, common, scored)[0],
        }
    return Measures(**counts, **found)


def headline(kind: Kind) -> Callable[[Sequence[float], Sequence[float]], float | None]:
    """Kappa of a rater, from people's values and the judge's; for preferences from 1s and whether each pair is
    right."""
    if kind == "binary":
        return lambda human, judged: kappa([value > CUT for value in human], [value > CUT for value in judged])
    if kind == "ordinal":
        return weighted_kappa
    return lambda _, right: 2 * sum(right) / len(right) - 1 if right else None


def less(
    human: Sequence[float], a: Sequence[float], b: Sequence[float], groups: Sequence[Hashable], kind: Kind, seed: int
) -> Estimate:
    """Kappa of one less that of the other, by a paired bootstrap."""
    statistic = headline(kind)

    def apart(people: Sequence[float], one: Sequence[float], other: Sequence[float]) -> float | None:
        first, second = statistic(people, one), statistic(people, other)
        return None if first is None or second is None else first - second

    # Equal ones are equal in every resample, from which no bootstrap has an interval.
    if list(a) == list(b) or (kind == "binary" and [x > CUT for x in a] == [y > CUT for y in b]):
        return Estimate(0.0, 0.0, 0.0, len(a))
    return bootstrap(apart, (human, a, b), Random(seed), groups)


def right(rater: Rater, pair: tuple[int, int]) -> float | None:
    """Whether the better response has the higher value, a tie half; None where one has none."""
    better, worse = (rater.said[place].value for place in pair)
    return None if better is None or worse is None else (better > worse) + (better == worse) / 2


def contests(rater: Rater, common: Common) -> list[Hashable]:
    """What each value competes with: others of the same contest, and of the same criterion."""
    return [(common.contests[row], criterion) for row, criterion in rater.keys]


def _known(value: float | None) -> float:
    assert value is not None
    return value


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None


def _binary(rater: Rater, human: list[float], judged: list[float], groups: list[Hashable]) -> dict[str, Any]:
    true, said = [value > CUT for value in human], [value > CUT for value in judged]

    def hits(kind: bool) -> Estimate:
        rows = [place for place, yes in enumerate(true) if yes is kind]
        return proportion([float(said[place] is kind) for place in rows], [groups[place] for place in rows])

    return {
        "accuracy": proportion([float(a == b) for a, b in zip(true, said, strict=True)], groups),
        "accuracy_of": "same answer, yes or no",
        "kappa": kappa_interval(true, said, "none", groups),
        "kappa_of": "Cohen's",
        "roc_auc": roc_auc_interval(true, judged, groups),
        "sensitivity": hits(True),
        "specificity": hits(False),
        "confusion": confusion(_words(true), _words(said), ("no", "yes")),
    }


def _words(given: Sequence[bool]) -> list[str]:
    return ["yes" if yes else "no" for yes in given]


def _ordinal(rater: Rater, human: list[float], judged: list[float], groups: list[Hashable]) -> dict[str, Any]:
    truth = rater.truth
    found: dict[str, Any] = {
        "kappa": kappa_interval(human, judged, "quadratic", groups),
        "kappa_of": "quadratic weights",
    }
    if not truth.levels:
        same = [float((a > CUT) == (b > CUT)) for a, b in zip(human, judged, strict=True)]
        return {**found, "accuracy": proportion(same, groups), "accuracy_of": "same side of the middle"}
    unit = truth.high - truth.low
    levels = [[_level(value, truth.low, unit) for value in values] for values in (human, judged)]
    apart = [abs(a - b) for a, b in zip(*levels, strict=True)]
    return {
        **found,
        "accuracy": proportion([float(distance == 0) for distance in apart], groups),
        "accuracy_of": "same score",
        "within_one": proportion([float(distance <= 1) for distance in apart], groups),
        "confusion": confusion(levels[0], levels[1], truth.levels),
    }


def _level(value: float, low: float, unit: float) -> int:
    """The nearest score; a jury's mean may lie between two."""
    return int(low + value * unit + 0.5) if low >= 0 else round(low + value * unit)


def _preferences(rater: Rater, common: Common, scored: Sequence[int]) -> dict[str, Any]:
    accuracy, count, prompts = _order(rater, common, scored)
    return {
        "n": count,
        "prompts": prompts,
        "accuracy": accuracy,
        "accuracy_of": "the preferred response scores higher; ties half",
        "kappa": accuracy.line(2, -1),
        "kappa_of": "2 * accuracy - 1",
        "order": accuracy,
        "best": _best(rater, common, scored),
    }


def _order(rater: Rater, common: Common, scored: Sequence[int]) -> tuple[Estimate, int, int]:
    """The share of pairs in the right order, of how many pairs and prompts."""
    known = set(scored)
    values = [value if place in known else None for place, value in enumerate(rater.truth.values)]
    compared = pairs(values, contests(rater, common))
    found = [_known(right(rater, pair)) for pair in compared]
    groups = [common.prompts[rater.keys[better][0]] for better, _ in compared]
    return proportion(found, groups), len(found), len(set(groups))


def _best(rater: Rater, common: Common, scored: Sequence[int]) -> Estimate:
    """As RewardBench 2 counts: the highest score is a preferred response's, and no other has it."""
    places, hits, groups = list(scored), list[float](), list[Hashable]()
    for each in clusters(len(places), [contests(rater, common)[place] for place in places]):
        members = [places[at] for at in each]
        human = [_known(rater.truth.values[place]) for place in members]
        judged = [_known(rater.said[place].value) for place in members]
        if len(set(human)) < 2:
            continue
        top = {true for true, said in zip(human, judged, strict=True) if said == max(judged)}
        hits.append(float(top == {max(human)}))
        groups.append(common.prompts[rater.keys[members[0]][0]])
    return proportion(hits, groups)
