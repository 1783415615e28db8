"""The criteria of rubrics: each over the steps, against the length of the response, and what it added to a score.
Fed sample by sample, no files.

A criterion is known by its judge and its name. Memory is bounded by constants, whatever number of names there are.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from referee.judging.folding import PASSED, RULES, Credit
from referee.ledger.criteria import CriterionResult, CriterionTally, PartRow, part_rows
from referee.ledger.lines import judges_in
from referee.report.lengths import Scatter, Within
from referee.report.shape import CriterionReport, CriterionStep, Point
from referee.report.steps import Step

MOST_SHOWN = 50
"""Rows of the table: the most frequent criteria."""
MOST_DRAWN = 8
"""Criteria whose steps are in the report."""
MOST_HELD = 400
"""Criteria that are followed. Beyond that the rarer half is dropped."""
MOST_GROUPS = 4096
"""Groups whose spread is followed, the latest."""
MOST_STEPS = 200
"""Rows of steps; beyond that two neighbours become one."""
MOST_POINTS = 400
"""Samples from which a correlation with length is estimated, chosen evenly."""
FEWEST_POINTS = 20
LONGEST_NAME, LONGEST_TEXT = 200, 500
"""Characters that the report keeps."""
SURE = 1e-6
"""How near the contributions must add up to the score to be shown."""


class SampleCriteria(NamedTuple):
    """The criteria of one sample, as far as they have to be taken back when a later start judges it again."""

    of: tuple[_Criterion, ...]
    good: bytes
    met: array[float]
    """Not a number: no verdict."""
    group: int
    """The number of its group, 0 if it has none."""

    def each(self) -> Iterator[tuple[_Criterion, CriterionResult]]:
        """Each criterion and what was said of it."""
        for criterion, good, met in zip(self.of, self.good, self.met, strict=True):
            yield criterion, CriterionResult(criterion.name, bool(good), None if math.isnan(met) else met)

    def by_judge(self) -> list[tuple[str, list[CriterionResult]]]:
        """The same by judge, for the metrics."""
        return [(criterion.judge, [one]) for criterion, one in self.each()]


class _Criterion:
    """One criterion of one judge."""

    def __init__(self, judge: str, row: PartRow) -> None:
        self.judge, self.name = judge, row.name
        self.tally = CriterionTally()
        self.low, self.high = math.inf, -math.inf
        self._text: str | None = row.text
        self._weight: float | None = row.weight
        self._true_is = row.true_is
        self._steps: dict[Step, list[int]] = {}
        self._width = 1
        self._points = Scatter(MOST_POINTS)
        self.groups = self.flat = 0
        """Groups with two verdicts on it, and those of them where all are equal."""

    def describe(self, row: PartRow) -> None:
        """What it is called by in this sample; where samples differ there is nothing to say."""
        self._text = self._text if row.text == self._text else None
        self._weight = self._weight if row.weight == self._weight else None
        self._true_is = self._true_is if row.true_is == self._true_is else ""

    def count(self, one: CriterionResult, step: Step, times: int = 1) -> None:
        """One verdict in a step."""
        self.tally.add(one, times)
        if one.met is None:
            return
        merit = one.met if one.good else 1.0 - one.met
        self.low, self.high = min(self.low, merit), max(self.high, merit)
        sums = self._steps.setdefault(self._place(step), [0, 0])
        sums[0] += times
        sums[1] += times * (merit > PASSED)
        if len(self._steps) > MOST_STEPS:
            self._widen()

    def length(self, one: CriterionResult, length: float, row: int, times: int = 1) -> None:
        """The length of the response that it was judged on."""
        if one.met is not None:
            point = Point(length, one.met if one.good else 1.0 - one.met, None, row)
            (self._points.add if times > 0 else self._points.remove)(point)

    def report(self, drawn: bool) -> CriterionReport:
        """What is known of it; with its steps if they are drawn."""
        tally, lengths = self.tally, self._points.lengths(Within())
        ended = tally.judged + tally.missing
        return CriterionReport(
            judge=self.judge,
            name=self.name[:LONGEST_NAME],
            text=None if self._text is None else self._text[:LONGEST_TEXT],
            weight=self._weight,
            true_is=self._true_is,
            judged=tally.judged,
            passed=tally.passed,
            unscored_share=tally.missing / ended if ended else None,
            constant=tally.judged > 0 and self.low == self.high,
            groups=self.groups,
            flat_groups=self.flat,
            length_correlation=lengths.correlation if lengths.samples >= FEWEST_POINTS else None,
            steps=self._rows() if drawn else [],
        )

    def _place(self, step: Step) -> Step:
        return None if step is None else step // self._width * self._width

    def _widen(self) -> None:
        self._width *= 2
        before, self._steps = self._steps, {}
        for step, (judged, passed) in before.items():
            sums = self._steps.setdefault(self._place(step), [0, 0])
            sums[0] += judged
            sums[1] += passed

    def _rows(self) -> list[CriterionStep]:
        last = self._width - 1
        return [
            CriterionStep(step, None if step is None else step + last, judged, passed / judged)
            for step, (judged, passed) in sorted(self._steps.items(), key=lambda item: (item[0] is not None, item[0]))
            if judged
        ]


class _Spread:
    """The verdicts on one criterion in one group."""

    __slots__ = ("high", "judged", "low")

    def __init__(self) -> None:
        self.judged = 0
        self.low, self.high = math.inf, -math.inf

    def add(self, criterion: _Criterion, met: float, times: int) -> None:
        """One verdict; `times` = -1 subtracts it, though not from the spread."""
        self._count(criterion, -1)
        self.judged += times
        self.low, self.high = min(self.low, met), max(self.high, met)
        self._count(criterion, 1)

    def _count(self, criterion: _Criterion, times: int) -> None:
        if self.judged >= 2:
            criterion.groups += times
            criterion.flat += times * (self.low == self.high)


class CriteriaSums:
    """Counts the criteria of samples as they end."""

    def __init__(self) -> None:
        self._found: dict[tuple[str, str], _Criterion] = {}
        self._groups: dict[int, dict[_Criterion, _Spread]] = {}

    def add(
        self, said: Iterable[tuple[str, Sequence[Mapping[str, Any]]]], step: Step, group: int
    ) -> SampleCriteria | None:
        """The parts of each judge's verdict on one sample, and its group; None where there are none."""
        held: dict[_Criterion, CriterionResult] = {}
        for judge, parts in said:
            for row in part_rows(parts):
                if not row.applies:
                    continue
                criterion = self._of(judge, row)
                if criterion not in held:
                    criterion.describe(row)
                    held[criterion] = CriterionResult(row.name, row.good, row.met)
                    criterion.count(held[criterion], step)
        if not held:
            return None
        met = [math.nan if one.met is None else one.met for one in held.values()]
        if group:
            self._siblings(group, held.items(), 1)
        return SampleCriteria(tuple(held), bytes([one.good for one in held.values()]), array("d", met), group)

    def lengths(self, held: SampleCriteria, length: float, row: int, times: int = 1) -> None:
        """The length of that sample's response; `times` = -1 subtracts it."""
        for criterion, one in held.each():
            criterion.length(one, length, row, times)

    def take_back(self, held: SampleCriteria, step: Step) -> None:
        """Subtract the criteria of a sample that a later start judged again."""
        for criterion, one in held.each():
            criterion.count(one, step, -1)
        if held.group in self._groups:
            self._siblings(held.group, held.each(), -1)

    def reports(self) -> tuple[list[CriterionReport], int]:
        """The most frequent criteria, and how many others are known."""
        found = self._most_frequent(MOST_SHOWN)
        return [one.report(place < MOST_DRAWN) for place, one in enumerate(found)], len(self._found) - len(found)

    def _siblings(self, group: int, criteria: Iterable[tuple[_Criterion, CriterionResult]], times: int) -> None:
        """Follow the spread of each criterion in one group."""
        spreads = self._groups.setdefault(group, {})
        if len(self._groups) > MOST_GROUPS:
            del self._groups[next(iter(self._groups))]
        for criterion, one in criteria:
            if one.met is not None:
                spreads.setdefault(criterion, _Spread()).add(criterion, one.met, times)

    def _of(self, judge: str, row: PartRow) -> _Criterion:
        found = self._found.get((judge, row.name))
        if found is None:
            if len(self._found) >= MOST_HELD:
                self._found = {(one.judge, one.name): one for one in self._most_frequent(MOST_HELD // 2)}
            found = self._found[judge, row.name] = _Criterion(judge, row)
        return found

    def _most_frequent(self, most: int) -> list[_Criterion]:
        return sorted(self._found.values(), key=lambda one: -one.tally.judged - one.tally.missing)[:most]


ADDITIVE = ("weighted", "healthbench", "signed")
"""Rules under which each criterion adds a part to the score; under the others they decide it together."""


def combine_of(config: Mapping[str, Any]) -> dict[str, str]:
    """How each judge of a run line's configuration combines its criteria, by name."""
    return {str(judge.get("name", "")): str(judge.get("combine") or "") for judge in judges_in(config)}


def shown_parts(parts: Sequence[Mapping[str, Any]], score: float | None, combine: str) -> list[dict[str, Any]]:
    """The parts of a verdict for the page, each with what it adds to the score, where the rule is such that it adds
    something. Without a known rule, one under which the sum is the score."""
    rows = list(part_rows(parts))
    found: list[float | None] = [None] * len(rows)
    for rule in (combine,) if combine in RULES or combine == "threshold" else ADDITIVE:
        adds = contributions(rows, rule) if rule in ADDITIVE else None
        if adds is not None and score is not None and _is_sum(adds, score):
            found = list(adds)
            break
    return [
        {
            "name": row.name,
            "text": row.text,
            "weight": row.weight,
            "true_is": row.true_is,
            "verdict": row.verdict,
            "value": row.met,
            "passed": None if row.met is None or not row.applies else row_passed(row),
            "why": row.why,
            "unscored": row.unscored,
            "adds": adds_,
        }
        for row, adds_ in zip(rows, found, strict=True)
    ]


def row_passed(row: PartRow) -> bool:
    """Whether the criterion speaks for the response."""
    return row.met is not None and Credit(row.weight, row.good, row.met).merit > PASSED


def contributions(rows: Sequence[PartRow], rule: str) -> list[float | None] | None:
    """What each criterion adds under an additive rule; None for one without a verdict, and altogether where nothing
    counts."""
    whole = sum(row.weight for row in rows if row.met is not None)
    if rule == "healthbench":
        best = sum(row.weight for row in rows if row.met is not None and row.good)
        # Of nothing but faults, each that is absent adds its share.
        whole, rule = (best, rule) if best else (whole, "weighted")
    if not whole:
        return None
    return [None if row.met is None else _credit(row, row.met, rule) / whole for row in rows]


def _credit(row: PartRow, met: float, rule: str) -> float:
    if rule == "weighted":
        return row.weight * Credit(row.weight, row.good, met).merit
    return row.weight * met if row.good else 0.0 - row.weight * met


def _is_sum(adds: Sequence[float | None], score: float) -> bool:
    total = math.fsum(one for one in adds if one is not None)
    return abs(total - score) < SURE or abs(min(1.0, max(0.0, total)) - score) < SURE
