"""Whether intervals hold what they promise: how often 95 % ones cover the truth of a simulated population."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from statistics import NormalDist
from typing import Any

from bench.common import table
from referee import stats
from referee.stats import Estimate

SIZES = (50, 200)
GROUP = 8
"""Rows of a group, all about one prompt."""
UNLABELLED = 1000
MANY = 200_000
"""Rows from which a truth without a formula is computed."""
CUTS = (-1.0, -0.3, 0.4, 1.2)
"""Where a normal number becomes one of five levels."""
TOLD = (
    "Share of {seeds} samples whose 95 % interval covers the truth (by chance alone 0.93 to 0.97); mean width; samples "
    f"without an interval, which say why. Corrected means: n labelled rows and {UNLABELLED:,} others. Spearman and the "
    "difference: bootstrap of {resamples} resamples; everything else is in closed form. Groups: n rows in groups of "
    f"{GROUP} that share how hard they are, and pairs in both orders; then the same intervals, groups not named."
)

Rows = tuple[Sequence[Any], ...]
Draw = Callable[[random.Random, int], Rows]


@dataclass(frozen=True)
class Case:
    """A population and an interval: rows are drawn, the interval is made of them, the truth is known."""

    name: str
    truth: Callable[[], float]
    draw: Draw
    interval: Callable[..., Estimate]
    """Of the columns drawn, a source of chance and the number of resamples."""
    grouped: bool = False
    """The last column names the group."""


def labels(prevalence: float, sensitivity: float, specificity: float) -> Draw:
    """Yes and no, and a judge with these rates."""

    def draw(chance: random.Random, count: int) -> Rows:
        human = [chance.random() < prevalence for _ in range(count)]
        return human, [chance.random() < sensitivity if yes else chance.random() >= specificity for yes in human]

    return draw


def true_kappa(prevalence: float, sensitivity: float, specificity: float) -> float:
    """Kappa of such a judge."""
    agreed = prevalence * sensitivity + (1 - prevalence) * specificity
    said = prevalence * sensitivity + (1 - prevalence) * (1 - specificity)
    by_chance = prevalence * said + (1 - prevalence) * (1 - said)
    return (agreed - by_chance) / (1 - by_chance)


def scores(rho: float, levels: bool = False) -> Draw:
    """Two normal numbers with this correlation, or the level of each."""

    def draw(chance: random.Random, count: int) -> Rows:
        human = [chance.gauss(0, 1) for _ in range(count)]
        judged = [rho * x + math.sqrt(1 - rho * rho) * chance.gauss(0, 1) for x in human]
        return ([level(x) for x in human], [level(y) for y in judged]) if levels else (human, judged)

    return draw


def level(value: float) -> int:
    """One of five."""
    return sum(value > cut for cut in CUTS)


def rank_correlation(rho: float) -> float:
    """Spearman's of two normal numbers whose correlation is given."""
    return 6 / math.pi * math.asin(rho / 2)


def two_judges(chance: random.Random, count: int) -> Rows:
    """People, a judge, and one with more noise."""
    human, judged = scores(0.8)(chance, count)
    return human, judged, [y + chance.gauss(0, 0.6) for y in judged]


def separated(distance: float) -> Draw:
    """Two classes, one in four positive, whose scores are so many standard deviations apart."""

    def draw(chance: random.Random, count: int) -> Rows:
        positive = [chance.random() < 0.25 for _ in range(count)]
        return positive, [distance * yes + chance.gauss(0, 1) for yes in positive]

    return draw


def generous(chance: random.Random, count: int) -> Rows:
    """Scores of people with mean 0.6, of a judge that is 0.1 too generous, and of the judge on other rows."""
    human = [chance.betavariate(3, 2) for _ in range(count + UNLABELLED)]
    judged = [y + 0.1 + chance.gauss(0, 0.12) for y in human]
    return human[:count], judged[:count], judged[count:]


def checked(chance: random.Random, count: int) -> Rows:
    """Yes and no of people and a judge, and of the judge on other rows."""
    human, judged = labels(0.6, 0.85, 0.8)(chance, count + UNLABELLED)
    return human[:count], judged[:count], judged[count:]


def probabilities(generous: float) -> Draw:
    """Probabilities that a judge gives, so much above the true ones, and what was true."""

    def draw(chance: random.Random, count: int) -> Rows:
        said = [chance.betavariate(1.5, 1.5) for _ in range(count)]
        return said, [float(chance.random() < p - generous) for p in said]

    return draw


def grouped_labels(chance: random.Random, count: int) -> Rows:
    """Yes and no, mostly the same in a group, and a judge whose accuracy differs between groups."""
    human, judged, groups = [], [], []
    for group in range(count // GROUP):
        right = 1 / (1 + math.exp(-chance.gauss(1.5, 1.0)))
        usual = chance.random() < 0.5
        for _ in range(GROUP):
            human.append(usual if chance.random() < 0.7 else chance.random() < 0.5)
            judged.append(human[-1] if chance.random() < right else not human[-1])
            groups.append(group)
    return human, judged, groups


def grouped_scores(chance: random.Random, count: int) -> Rows:
    """Scores of people and a judge that share the group's level, and lengths: the judge gives 0.5 for each log more."""
    human, judged, lengths, groups = [], [], [], []
    for group in range(count // GROUP):
        hard, misread, long = chance.gauss(0, 1), chance.gauss(0, 0.7), chance.gauss(5, 0.5)
        for _ in range(GROUP):
            size = chance.gauss(long, 0.4)
            human.append(hard + chance.gauss(0, 1))
            judged.append(human[-1] + misread + 0.5 * (size - 5) + chance.gauss(0, 0.7))
            lengths.append(math.exp(size))
            groups.append(group)
    return human, judged, lengths, groups


def partly_labelled(chance: random.Random, count: int) -> Rows:
    """Rows of such groups, so many of them labelled, wherever they are: groups have rows of both kinds."""
    human, judged, _, groups = grouped_scores(chance, count + UNLABELLED)
    chosen = set(chance.sample(range(len(human)), count))
    labelled, others = sorted(chosen), [place for place in range(len(human)) if place not in chosen]
    columns = [[side[place] for place in labelled] for side in (human, judged, groups)]
    return *columns[:2], [judged[place] for place in others], [groups[place] for place in others], columns[2]


def positions(chance: random.Random, count: int) -> Rows:
    """Pairs shown in both orders to a judge that takes the first one 60 % of the time when it cannot tell."""
    won, pairs = [], []
    for pair in range(count // 2):
        clear, better = chance.random() < 0.5, chance.random() < 0.5
        for order in (True, False):
            won.append(better is order if clear else chance.random() < 0.6)
            pairs.append(pair)
    return won, pairs


def accuracy(human: Sequence[Any], judged: Sequence[Any], groups: Any = None) -> Estimate:
    """The share of the same labels."""
    return stats.proportion([a == b for a, b in zip(human, judged, strict=True)], groups)


def less(human: Sequence[float], good: Sequence[float], other: Sequence[float]) -> float:
    """By how much one judge's rank correlation is higher than the other's."""
    return (stats.spearman(human, good) or 0.0) - (stats.spearman(human, other) or 0.0)


@cache
def large(statistic: Callable[..., float | None], draw: Draw) -> float:
    """A truth without a formula."""
    found = statistic(*draw(random.Random("truth"), MANY))
    assert found is not None
    return found


def plain(interval: Callable[..., Estimate]) -> Callable[..., Estimate]:
    """An interval that needs no chance."""
    return lambda columns, groups, chance, resamples: interval(*columns, groups=groups)


def resampled(statistic: Callable[..., float | None]) -> Callable[..., Estimate]:
    """The bootstrap's interval."""
    return lambda columns, groups, chance, resamples: stats.bootstrap(statistic, columns, chance, groups, resamples)


def calibration_error(columns: Rows, groups: Any, chance: random.Random, resamples: int) -> Estimate:
    """The ECE in bins of eight rows and more."""
    bins = min(10, len(columns[0]) // 8)
    return stats.ece_interval(columns[0], columns[1], chance, groups, bins, resamples=resamples)


def weighted(human: Sequence[int], judged: Sequence[int], groups: Any = None) -> Estimate:
    """Quadratic kappa."""
    return stats.kappa_interval(human, judged, "quadratic", groups)


def powered(weight: float | None) -> Callable[..., Estimate]:
    """The prediction-powered mean at a weight."""
    return plain(lambda human, judged, others, groups: stats.prediction_powered(human, judged, others, weight, groups))


def slope(human: Sequence[float], judged: Sequence[float], lengths: Sequence[float], groups: Any) -> Estimate:
    """The judge's taste for length; lengths within groups have a standard deviation of 0.4 in logs."""
    return stats.length_slope([f - y for y, f in zip(human, judged, strict=True)], lengths, groups)


def cases() -> Iterator[Case]:
    """All of them."""
    for prevalence, sensitivity, specificity in ((0.6, 0.85, 0.8), (0.5, 0.97, 0.97), (0.1, 0.7, 0.95)):
        rates = (prevalence, sensitivity, specificity)
        name = f"yes {prevalence:g}, sensitivity {sensitivity:g}, specificity {specificity:g}"
        right = prevalence * sensitivity + (1 - prevalence) * specificity
        yield Case(f"accuracy: {name}", lambda right=right: right, labels(*rates), plain(accuracy))
        yield Case(
            f"kappa: {name}", lambda rates=rates: true_kappa(*rates), labels(*rates), plain(stats.kappa_interval)
        )
    ordinal = scores(0.7, levels=True)
    yield Case("quadratic kappa: five levels", lambda: large(stats.weighted_kappa, ordinal), ordinal, plain(weighted))
    normal = scores(0.7)
    yield Case("Spearman: normal", lambda: rank_correlation(0.7), normal, resampled(stats.spearman))
    yield Case("Spearman: five levels", lambda: large(stats.spearman, ordinal), ordinal, resampled(stats.spearman))
    apart = rank_correlation(0.8) - rank_correlation(0.8 / math.sqrt(1 + 0.6**2))
    yield Case("difference of two Spearman", lambda: apart, two_judges, resampled(less))
    for distance in (1.0, 2.5):
        area = NormalDist().cdf(distance / math.sqrt(2))
        name = f"ROC-AUC: one in four positive, {distance:g} sd apart"
        yield Case(name, lambda area=area: area, separated(distance), plain(stats.roc_auc_interval))
    for generous_by in (0.0, 0.15):
        said = probabilities(generous_by)
        name = f"ECE: {generous_by:g} too generous, on the safe side"
        yield Case(name, lambda said=said: large(stats.ece, said), said, calibration_error)
    yield Case("mean of the labels alone", lambda: 0.6, generous, plain(lambda y, f, u, groups: stats.mean_interval(y)))
    yield Case("prediction-powered mean", lambda: 0.6, generous, powered(1.0))
    yield Case("prediction-powered mean, tuned", lambda: 0.6, generous, powered(None))
    yield Case("prediction-powered mean, tuned, of yes and no", lambda: 0.6, checked, powered(None))
    yield Case("Rogan-Gladen", lambda: 0.6, checked, plain(stats.rogan_gladen))
    yield from grouped_cases()


def grouped_cases() -> Iterator[Case]:
    """Those whose rows are not independent."""
    true_accuracy = cache(lambda: large(lambda human, judged, _: accuracy(human, judged).value, grouped_labels))
    yield Case("groups: accuracy", true_accuracy, grouped_labels, plain(accuracy), True)
    agreed = cache(lambda: large(lambda human, judged, _: stats.kappa(human, judged), grouped_labels))
    yield Case("groups: kappa", agreed, grouped_labels, plain(stats.kappa_interval), True)
    ordered = rank_correlation(2 / math.sqrt(2 * (2 + 0.7**2 + 0.5**2 * (0.5**2 + 0.4**2) + 0.7**2)))
    yield Case(
        "groups: Spearman",
        lambda: ordered,
        lambda *given: _without(2, grouped_scores(*given)),
        resampled(stats.spearman),
        True,
    )
    yield Case("groups: slope on length", lambda: 0.5 * 0.4, grouped_scores, plain(slope), True)
    yield Case("groups: prediction-powered mean, tuned", lambda: 0.0, partly_labelled, plain(_powered_by_groups), True)
    # Half of the pairs are clear and count 0.5 in two orders, the others 0.6.
    yield Case("groups: position, both orders", lambda: 0.55, positions, plain(_position), True)


def _without(place: int, columns: Rows) -> Rows:
    return columns[:place] + columns[place + 1 :]


def _powered_by_groups(
    human: Sequence[float], judged: Sequence[float], others: Sequence[float], names: Sequence[int], groups: Any
) -> Estimate:
    return stats.prediction_powered(human, judged, others, None, groups, groups and names)


def _position(won: Sequence[bool], groups: Any) -> Estimate:
    return stats.position_bias(won, groups)


def covered(case: Case, count: int, seeds: int, resamples: int, told: bool = True) -> dict[str, float]:
    """How often the interval covers the truth, over as many samples of so many rows; `told` of the groups or not."""
    truth, hits, widths, missing = case.truth(), 0, 0.0, 0
    for seed in range(seeds):
        chance = random.Random(f"{case.name} {count} {seed}")
        columns = case.draw(chance, count)
        groups = columns[-1] if case.grouped and told else None
        found = case.interval(columns[:-1] if case.grouped else columns, groups, chance, resamples)
        if found.low is None or found.high is None:
            missing += 1
            continue
        hits += found.low <= truth <= found.high
        widths += found.high - found.low
    given = max(1, seeds - missing)
    return {"truth": truth, "covered": hits / given, "width": widths / given, "missing": missing}


def run(quick: bool) -> dict[str, Any]:
    """Every case at every size; of groups, also as if there were none."""
    seeds, resamples = (20, 100) if quick else (500, 500)
    rows = []
    for case in cases():
        for count in SIZES:
            row = {"name": case.name, "n": count, **covered(case, count, seeds, resamples)}
            if case.grouped and "slope" not in case.name:
                row["untold"] = covered(case, count, seeds, resamples, told=False)["covered"]
            rows.append(row)
    return {"seeds": seeds, "resamples": resamples, "rows": rows}


def report(results: dict[str, Any]) -> list[str]:
    """Lines of markdown."""
    head = ["interval", "n", "truth", "covered", "width", "no interval", "covered if groups are ignored"]
    rows = [
        [
            row["name"],
            str(row["n"]),
            *(f"{row[key]:.3f}" for key in ("truth", "covered", "width")),
            str(row["missing"]),
            f"{row['untold']:.3f}" if "untold" in row else "",
        ]
        for row in results["rows"]
    ]
    return [TOLD.format(**results), "", *table(head, rows)]
