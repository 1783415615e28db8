"""What each of several judges said: joined with its sample, summed by step, and compared with the others. No files.

A judge's line comes before the verdict line of its sample, which says the step and the group.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from typing import Any

from msgspec.structs import replace

from referee.ledger.groups import OPEN_GROUPS
from referee.ledger.lines import JudgeLine, VerdictLine, judges_in
from referee.report.lengths import Scatter, Siblings, Within
from referee.report.shape import Agreement, JudgeReport, Point, Scale
from referee.report.steps import Step, StepSums, step_rows

MOST_LEVELS = 21
"""A scale with more levels is drawn as if it were continuous."""
MOST_COMPARED = 5
"""Judges that are compared two by two: the first ones."""
OPEN = 65_536
"""Samples that may wait for their verdict line. Beyond that the oldest are dropped."""


class Judges:
    """Counts judge lines as their samples end."""

    def __init__(self, scales: Mapping[str, Scale] | None = None) -> None:
        """`scales`: by judge, where no run line will say them."""
        self._scales = scales or {}
        self._found: dict[str, JudgeReport] = {}
        self._steps: dict[str, dict[Step, StepSums]] = {}
        self._pairs: dict[tuple[str, str], Pair] = {}
        self._waiting: dict[tuple[str, str, int], list[JudgeLine]] = {}

    def start(self, config: Mapping[str, Any]) -> None:
        """A run with these settings has begun."""
        judges = judges_in(config)
        for judge in judges if len(judges) > 1 else ():
            found = self._of(str(judge.get("name", "")))
            found.kind, found.scale = str(judge.get("kind", "")), scale_of_judge(judge)
            weight = judge.get("weight", 1.0)
            found.weight = float(weight) if isinstance(weight, int | float) else None

    def add(self, line: JudgeLine, source: str) -> None:
        """What a judge said of a sample whose verdict line is to come."""
        self._waiting.setdefault((source, line.batch, line.index), []).append(line)
        if len(self._waiting) > OPEN:
            del self._waiting[next(iter(self._waiting))]

    def end(self, line: VerdictLine, source: str) -> tuple[tuple[JudgeLine, ...], list[VerdictLine | JudgeLine]]:
        """The sample's verdict line is here: its judges' lines are counted. Returns what must be known of them to take
        them back, without their texts, which would fill memory; and the lines of each judge's own verdict."""
        lines = self._waiting.pop((source, line.batch, line.index), None)
        if lines is None:
            return (), [line]
        for said in lines:
            found = self._of(said.judge)
            if said.model and said.model not in found.models:
                found.models.append(said.model)
            self._step(said.judge, line.step).verdict(said)
        kept = [JudgeLine(judge=x.judge, origin=x.origin, value=x.value, unscored=x.unscored) for x in lines]
        return tuple(kept), [*lines]

    def compare(self, lines: Sequence[JudgeLine], row: int, group: int, times: int = 1) -> None:
        """Compare the judges' verdicts on one sample, two by two; `times` = -1 subtracts them."""
        for one, other in combinations(self._opinions(lines), 2):
            pair = self._pairs.get((one.judge, other.judge))
            if pair is None:
                pair = self._pairs[one.judge, other.judge] = Pair()
            pair.add(Point(one.value or 0.0, other.value or 0.0, None, row), group, times)

    def take_back(self, lines: Sequence[JudgeLine], step: Step) -> None:
        """Subtract what was said of a sample that a later start judged again; what it cost was spent."""
        for line in lines:
            self._step(line.judge, step).take_back(line.value, line.unscored, line.origin == "gate")

    def reports(self) -> list[JudgeReport]:
        """Each judge so far, in the order of the configuration."""
        reports = []
        for name, found in self._found.items():
            steps = step_rows(self._steps.get(name, {}), found.scale, 0.0)
            reports.append(replace(found, models=list(found.models), steps=steps))
        return reports

    def agreement(self) -> list[Agreement]:
        """Every two judges that gave verdicts on the same samples."""
        return [pair.agreement(*names) for names, pair in self._pairs.items()]

    def _opinions(self, lines: Sequence[JudgeLine]) -> Iterator[JudgeLine]:
        """Verdicts that judges gave, in the order of the configuration; a gate's is no opinion."""
        compared = list(self._found)[:MOST_COMPARED]
        given = {line.judge: line for line in lines if line.value is not None and line.origin != "gate"}
        return (given[name] for name in compared if name in given)

    def _of(self, name: str) -> JudgeReport:
        found = self._found.get(name)
        if found is None:
            found = self._found[name] = JudgeReport(name=name, scale=self._scales.get(name, Scale()))
        return found

    def _step(self, name: str, step: Step) -> StepSums:
        return self._steps.setdefault(name, {}).setdefault(step, StepSums())


class Pair:
    """Two judges', or members', values of the same samples: ranks over all, and the order among siblings."""

    def __init__(self) -> None:
        self._scatter, self._within = Scatter(), Within()
        self._groups: dict[int, Siblings] = {}

    def add(self, point: Point, group: int, times: int) -> None:
        """Both values of one sample; `times` = -1 subtracts them."""
        siblings = self._groups.get(group)
        if siblings is None and group and times > 0:
            siblings = self._groups[group] = Siblings()
            if len(self._groups) > OPEN_GROUPS:
                del self._groups[next(iter(self._groups))]
        (self._scatter.add if times > 0 else self._scatter.remove)(point)
        if siblings is not None:
            (self._within.add if times > 0 else self._within.remove)(siblings, point.length, point.value)

    def agreement(self, a: str, b: str) -> Agreement:
        """How far they agree, under their names."""
        found = self._scatter.lengths(self._within)
        return Agreement(
            a=a,
            b=b,
            samples=found.samples,
            correlation=found.correlation,
            within_correlation=found.within_correlation,
            within_groups=found.within_groups,
        )


def scale_of(config: Mapping[str, Any]) -> Scale:
    """How this configuration's scores are binned. What several judges said as one is between 0 and 1."""
    judges = judges_in(config)
    return scale_of_judge(judges[0]) if len(judges) == 1 else Scale()


def scale_of_judge(judge: Mapping[str, Any]) -> Scale:
    """How one judge's scores are binned."""
    low, high = judge.get("low"), judge.get("high")
    kind = judge.get("kind")
    scaled = kind in ("score", "integer") or (kind == "listwise" and not judge.get("ranks"))
    if scaled and isinstance(low, int) and isinstance(high, int):
        levels = high - low + 1 if kind != "listwise" or judge.get("permutations", 1) == 1 else 0  # else a mean
        return Scale(levels if 2 <= levels <= MOST_LEVELS else 0, float(low), float(high))
    return Scale()
