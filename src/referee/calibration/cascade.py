"""A cascade's threshold, replayed on verdicts that are there: agreement against cost. Pure.

Every member has judged every row once. Which of them would have decided at a threshold, and what that would have cost,
needs no further call.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence

from msgspec import Struct

from referee.calibration.measures import headline, less
from referee.calibration.truth import Kind
from referee.records import Settled, Verdict
from referee.stats import Estimate

STEPS = 12
"""Thresholds tried between the surest and the least sure verdict, each at an equal share of the rows."""


class Point(Struct, frozen=True, kw_only=True):
    """One threshold."""

    threshold: float | None
    """Of the uncertainty, above which the next member is asked. None: the last one decides everything."""
    shares: tuple[float, ...]
    """How many rows each member decides."""
    agreement: float | None
    """With people: kappa."""
    difference: Estimate
    """That, less what the last member alone reaches."""
    cost_per_1000: float

    @property
    def within_noise(self) -> bool:
        """Not worse than the last member alone, as far as these rows show; where they show nothing it is not."""
        return self.difference.high is not None and self.difference.high >= 0.0


class Curve(Struct, frozen=True, kw_only=True):
    """Agreement against cost, cheapest first."""

    members: tuple[str, ...]
    rows: int
    points: tuple[Point, ...]
    chosen: Point | None = None
    """The cheapest of those that are as good as the last member alone."""

    def line(self) -> str:
        """The line for the configuration."""
        if self.chosen is None or self.chosen.threshold is None:
            return ""
        return f"until = {{ uncertainty = {self.chosen.threshold} }}"


def replay(
    members: Sequence[str],
    said: Sequence[Sequence[Settled]],
    human: Sequence[float | None],
    prompts: Sequence[Hashable],
    kind: Kind,
    seed: int,
) -> Curve:
    """What a cascade of these members does at each threshold. `said`: what each member's asking ended in, for every
    row. Rows without a label, or without a verdict of the last member, are left out."""
    kept = [
        place for place, label in enumerate(human) if label is not None and isinstance(said[-1][place].verdict, Verdict)
    ]
    true = [_number(human[place]) for place in kept]
    groups = [prompts[place] for place in kept]
    strong = [_value(said[-1][place]) for place in kept]
    found = []
    for threshold in (None, *_thresholds(said[:-1], kept)):
        deciders = [_decider(said, place, threshold) for place in kept]
        values = [_value(said[member][place]) for member, place in zip(deciders, kept, strict=True)]
        paid = sum(
            _cost(said[number][place])
            for member, place in zip(deciders, kept, strict=True)
            for number in range(member + 1)
        )
        shares = tuple(deciders.count(member) / max(1, len(kept)) for member in range(len(members)))
        found.append(
            Point(
                threshold=threshold,
                shares=shares,
                agreement=headline(kind)(true, values) if kept else None,
                difference=less(true, values, strong, groups, kind, seed),
                cost_per_1000=1000 * paid / max(1, len(kept)),
            )
        )
    found.sort(key=lambda point: point.cost_per_1000)
    good = next((point for point in found if point.within_noise), None)
    return Curve(members=tuple(members), rows=len(kept), points=tuple(found), chosen=good if kept else None)


def _thresholds(said: Sequence[Sequence[Settled]], kept: Sequence[int]) -> list[float]:
    """Where the share of rows that go on changes, at even steps."""
    unsure = sorted(
        settled.verdict.uncertainty
        for ends in said
        for settled in (ends[place] for place in kept)
        if isinstance(settled.verdict, Verdict) and settled.verdict.uncertainty is not None
    )
    if not unsure:
        return []
    places = {round(step * (len(unsure) - 1) / STEPS) for step in range(STEPS + 1)}
    return sorted({_upwards(unsure[place]) for place in places})


def _decider(said: Sequence[Sequence[Settled]], place: int, threshold: float | None) -> int:
    """Which member decides a row."""
    for member, ends in enumerate(said[:-1]):
        verdict = ends[place].verdict
        if threshold is None or not isinstance(verdict, Verdict):
            continue
        if verdict.how == "gate" or (verdict.uncertainty is not None and verdict.uncertainty <= threshold):
            return member
    return len(said) - 1


def _value(settled: Settled) -> float:
    assert isinstance(settled.verdict, Verdict)
    return settled.verdict.value


def _cost(settled: Settled) -> float:
    """What it cost once, from the cache or not."""
    return settled.cost + settled.saved


def _number(value: float | None) -> float:
    assert value is not None
    return value


def _upwards(threshold: float) -> float:
    """With three digits, and never below: what it decides must still be decided."""
    return math.ceil(threshold * 1000) / 1000
