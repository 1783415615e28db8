"""The criteria of rubrics, counted by name. Memory stays bounded: a data set may name thousands. No files.

A criterion has passed if it speaks for the response: it is true and good, or untrue and bad.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import msgspec
from msgspec import Struct

from referee.judging.folding import PASSED
from referee.judging.statements import NOT_APPLICABLE_LABEL
from referee.records import Part, Verdict

MOST_NAMES = 50
"""Criteria of a judge that metrics name: the most frequent."""
MOST_COUNTED = 4096
"""Criteria of a judge that are counted. Beyond that the rarer half is dropped."""
FEW_VERDICTS = 5
"""A criterion with fewer verdicts is not called always or never true."""


class PartRow(Struct):
    """One criterion in a row of rewards or a line of the ledger: what `Part.row` writes."""

    name: str
    text: str = ""
    weight: float = 1.0
    true_is: str = "good"
    verdict: str = ""
    value: float | None = None
    why: str = ""
    unscored: str = ""

    @property
    def good(self) -> bool:
        """Whether its being true speaks for the response."""
        return self.true_is != "bad"

    @property
    def applies(self) -> bool:
        """False: the judge said that it does not apply to the response, so it neither passed nor failed."""
        return self.verdict != NOT_APPLICABLE_LABEL or self.weight != 0.0

    @property
    def met(self) -> float | None:
        """How far it is true, from 0 to 1; None without a verdict."""
        return None if self.value is None or not math.isfinite(self.value) else min(1.0, max(0.0, self.value))


def part_rows(parts: Iterable[Mapping[str, Any]]) -> Iterator[PartRow]:
    """The criteria of a line. What is none, in a forged ledger or a column of that name, is left out."""
    for part in parts:
        try:
            yield msgspec.convert(part, PartRow)
        except (msgspec.ValidationError, UnicodeEncodeError):  # a key may hold half a character
            continue


class CriterionResult(NamedTuple):
    """What counts of one criterion of one sample."""

    name: str
    good: bool
    met: float | None


def results_in(parts: Iterable[Mapping[str, Any]]) -> list[CriterionResult]:
    """The criteria of a line that apply, each name once."""
    found: dict[str, CriterionResult] = {}
    for row in part_rows(parts):
        if row.applies:
            found.setdefault(row.name, CriterionResult(row.name, row.good, row.met))
    return list(found.values())


def results_of(parts: Iterable[Part]) -> list[CriterionResult]:
    """The same of a verdict that is at hand, for less than half the CPU."""
    return [
        CriterionResult(part.name, part.good, part.verdict.value if isinstance(part.verdict, Verdict) else None)
        for part in parts
        if part.weight or part.label != NOT_APPLICABLE_LABEL
    ]


class CriterionTally:
    """The verdicts on one criterion."""

    __slots__ = ("judged", "missing", "passed", "true")

    def __init__(self) -> None:
        self.judged = self.true = self.passed = 0
        self.missing = 0
        """Without a verdict."""

    def add(self, one: CriterionResult, times: int = 1) -> None:
        """Count one verdict, or its absence; `times` = -1 subtracts it."""
        if one.met is None:
            self.missing += times
            return
        self.judged += times
        self.true += times * (one.met > PASSED)
        self.passed += times * ((one.met if one.good else 1.0 - one.met) > PASSED)


class Criteria:
    """Counts criteria by name."""

    def __init__(self) -> None:
        self._found: dict[str, CriterionTally] = {}
        self.all = CriterionTally()
        """All of them together."""
        self.dropped = False
        """There were more names than are counted."""

    def add(self, criteria: Iterable[CriterionResult], times: int = 1) -> None:
        """Count the criteria of one sample; `times` = -1 subtracts them."""
        for one in criteria:
            self.all.add(one, times)
            found = self._found.get(one.name)
            if found is None:
                if times < 0:
                    continue
                if len(self._found) >= MOST_COUNTED:
                    self._found, self.dropped = dict(self.most_frequent(MOST_COUNTED // 2)), True
                found = self._found[one.name] = CriterionTally()
            found.add(one, times)

    def __len__(self) -> int:
        return len(self._found)

    def most_frequent(self, most: int) -> list[tuple[str, CriterionTally]]:
        """Those that came most often, with or without a verdict; of equals the first."""
        return sorted(self._found.items(), key=lambda item: -item[1].judged - item[1].missing)[:most]

    def metrics(self) -> dict[str, float]:
        """Pass rates by name."""
        frequent = self.most_frequent(MOST_NAMES)
        return {f"criterion/{name}/pass_rate": found.passed / found.judged for name, found in frequent if found.judged}
