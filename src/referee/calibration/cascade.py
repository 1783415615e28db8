"""A cascade's threshold, replayed on verdicts that are there: agreement against cost. Pure.

Every member has judged every row once. Which of them would have decided under another `until`, and what that would have
cost, needs no further call.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator, Sequence

from msgspec import Struct
from msgspec.structs import replace

from referee.calibration.measures import headline, less
from referee.calibration.truth import Kind
from referee.config import Until
from referee.judging.cascade import DECIDED, label_of
from referee.records import Settled, Verdict
from referee.stats import Estimate

STEPS = 12
"""Thresholds tried between the surest and the least sure verdict, each at an equal share of the rows."""


class Point(Struct, frozen=True, kw_only=True):
    """One threshold."""

    until: Until | None
    """Beyond which the next member is asked. None: the last one decides everything."""
    shares: tuple[float, ...]
    """How many rows each member decides."""
    agreement: float | None
    """With people: kappa."""
    difference: Estimate
    """That, less what the last member alone reaches."""
    cost_per_1000: float | None
    """None: an endpoint has no price."""

    @property
    def within_noise(self) -> bool:
        """Not worse than the last member alone, as far as these rows show; where they show nothing it is not."""
        return self.difference.high is not None and self.difference.high >= 0.0


class Curve(Struct, frozen=True, kw_only=True):
    """Agreement against cost, cheapest first; of unknown prices, what asks the later members least."""

    members: tuple[str, ...]
    rows: int
    points: tuple[Point, ...]
    chosen: Point | None = None
    """The cheapest of those that are as good as the last member alone."""

    def line(self) -> str:
        """The line for the configuration."""
        if self.chosen is None or self.chosen.until is None:
            return ""
        return f"until = {{ {words(self.chosen.until)} }}"


def words(until: Until) -> str:
    """As a configuration has it."""
    most, band = until.uncertainty, until.outside
    found = [] if most is None else [f"uncertainty = {most:g}"]
    return ", ".join(found if band is None else [*found, f"outside = [{band[0]:g}, {band[1]:g}]"])


def replay(
    members: Sequence[str],
    said: Sequence[Sequence[Settled]],
    human: Sequence[float | None],
    prompts: Sequence[Hashable],
    kind: Kind,
    seed: int,
    until: Until | None = None,
    priced: bool = True,
) -> Curve:
    """What a cascade of these members does at each threshold. `said`: what each member's asking ended in, for every
    row. Rows without a label, or without a verdict of the last member, are left out. `until`: as configured: only the
    uncertainty in it is varied, or the width of its band if there is none."""
    kept = [
        place for place, label in enumerate(human) if label is not None and isinstance(said[-1][place].verdict, Verdict)
    ]
    true = [_number(human[place]) for place in kept]
    groups = [prompts[place] for place in kept]
    strong = [_value(said[-1][place]) for place in kept]
    found: list[tuple[float, int, Point]] = []
    for one in (None, *_thresholds([ends[place] for ends in said[:-1] for place in kept], until or Until())):
        deciders = [_decider(said, place, one) for place in kept]
        values = [_value(said[member][place]) for member, place in zip(deciders, kept, strict=True)]
        paid = sum(
            _cost(said[number][place])
            for member, place in zip(deciders, kept, strict=True)
            for number in range(member + 1)
        )
        shares = tuple(deciders.count(member) / max(1, len(kept)) for member in range(len(members)))
        point = Point(
            until=one,
            shares=shares,
            agreement=headline(kind)(true, values) if kept else None,
            difference=less(true, values, strong, groups, kind, seed),
            cost_per_1000=1000 * paid / max(1, len(kept)) if priced else None,
        )
        found.append((paid, sum(deciders), point))
    points = [point for *_, point in sorted(found, key=lambda each: each[:2])]
    good = next((point for point in points if point.within_noise), None)
    return Curve(members=tuple(members), rows=len(kept), points=tuple(points), chosen=good if kept else None)


def _thresholds(said: Sequence[Settled], until: Until) -> Iterator[Until]:
    """Where the share of rows that go on changes, at even steps."""
    verdicts = [one.verdict for one in said if isinstance(one.verdict, Verdict) and one.verdict.how != "gate"]
    unsure = [verdict.uncertainty for verdict in verdicts if verdict.uncertainty is not None]
    if unsure and (until.uncertainty is not None or until.outside is None):
        # With three digits, and never below: what it decides must still be decided.
        for most in _steps([math.ceil(one * 1000) for one in unsure]):
            yield replace(until, uncertainty=most / 1000)
        return
    low, high = until.outside or (0.5, 0.5)
    centre = round((low + high) / 2, 3)
    for half in _steps([math.ceil(round(abs(verdict.value - centre) * 1000, 6)) - 1 for verdict in verdicts]):
        if half >= 0:
            yield Until(outside=(round(centre - half / 1000, 3), round(centre + half / 1000, 3)))


def _steps(values: Sequence[int]) -> list[int]:
    ordered = sorted(values)
    return sorted({ordered[round(step * (len(ordered) - 1) / STEPS)] for step in range(STEPS + 1)}) if ordered else []


def _decider(said: Sequence[Sequence[Settled]], place: int, until: Until | None) -> int:
    """Which member decides a row."""
    sure = (
        member
        for member, ends in enumerate(said[:-1])
        if until is not None and label_of(ends[place].verdict, until) == DECIDED
    )
    return next(sure, len(said) - 1)


def _value(settled: Settled) -> float:
    assert isinstance(settled.verdict, Verdict)
    return settled.verdict.value


def _cost(settled: Settled) -> float:
    """What it cost once, from the cache or not."""
    return settled.cost + settled.saved


def _number(value: float | None) -> float:
    assert value is not None
    return value
