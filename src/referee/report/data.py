"""Ledger lines to report data: `build(lines)`, or a Gathering fed line by line while a run goes on. No files.

Verdict and reward lines of a sample are brought together by run, batch and position. A sample that a later start judged
again counts once. Memory is bounded by the number of steps, not of samples.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from msgspec.structs import replace

from referee.ledger.comparisons import compared
from referee.ledger.groups import OPEN_GROUPS, Groups
from referee.ledger.lines import (
    AlarmLine,
    AuditLine,
    BatchLine,
    ChangeLine,
    JudgeLine,
    LimitsLine,
    Line,
    MeasuresLine,
    RewardLine,
    RunLine,
    VerdictLine,
)
from referee.ledger.metrics import Tally
from referee.records import COMPARED
from referee.report.audit_tally import AuditTally
from referee.report.criteria import CriteriaSums
from referee.report.findings import findings
from referee.report.judges import Judges, scale_of
from referee.report.lengths import Scatter, Siblings, Within
from referee.report.members import Members
from referee.report.resumed_runs import Ended, Samples
from referee.report.run_info import CLUSTER, LARGEST, change_text, on_a_cluster, run_info
from referee.report.shape import Cost, Point, Report, RunInfo, Scale, StepRow, TimeRow
from referee.report.steps import Step, StepSums, Waits, copied, step_rows
from referee.report.sums import covered
from referee.report.times import Times

OPEN = 65_536
"""Samples that may wait for their reward line. Beyond that the oldest are dropped."""
MAX_CHANGES = 10
"""Of the judge, that are told."""


class _Group(Siblings):
    """The verdicts of one group. It counts once the judge has given two: a gate does not tell answers apart."""

    __slots__ = ("high", "judged", "low", "step")

    def __init__(self, step: Step) -> None:
        super().__init__()
        self.step = step
        self.judged = 0
        self.low, self.high = math.inf, -math.inf

    def counts(self, sums: StepSums, times: int) -> None:
        """Put it into its step's sums, or (-1) take it out."""
        if self.judged >= 2:
            sums.groups += times
            sums.flat += times * (self.low == self.high)


class Gathering:
    """Counts lines as they come. `source` tells files apart that are read side by side; one after the other need none.

    `report()` may be asked at any time. `scale`, and by judge `scales`: of rows that come without a run line, from a
    file that was judged.
    """

    def __init__(self, scale: Scale | None = None, scales: Mapping[str, Scale] | None = None) -> None:
        self._given = scale
        self._tally = Tally()
        self._runs: list[RunInfo] = []
        self._scales: list[Scale] = []
        self._starts: dict[str, int] = {}
        self._steps: dict[Step, StepSums] = {}
        self._times = Times()
        self._waits = Waits()
        self._scatter, self._within = Scatter(), Within()
        self._judges = Judges(scales)
        self._criteria = CriteriaSums()
        self._members = Members()
        self._audit = AuditTally()
        self._numbers = Groups()
        self._groups: dict[int, _Group] = {}
        self._open: dict[tuple[str, str, int], Ended | None] = {}
        self._samples = Samples()
        self._changes: dict[str, None] = {}
        self._spans: dict[str, tuple[float, float]] = {}
        """First and last record of each start."""
        self._clusters: dict[str, float] = {}
        """Sources whose run judges on a Ray cluster, and when it began."""

    def add(self, line: Line, source: str = "") -> None:
        """Count one line."""
        line = sane(line)
        if isinstance(line, RunLine):
            self._start(line, source)
        if line.wall:
            run = self._run(source)
            first, last = self._spans.get(run, (line.wall, line.wall))
            self._spans[run] = (min(first, line.wall), max(last, line.wall))
        if isinstance(line, RewardLine):
            self._reward(line, source)
            return
        self._tally.add(line)
        if isinstance(line, VerdictLine):
            self._verdict(line, source)
        elif isinstance(line, JudgeLine):
            self._judges.add(line, source)
        elif isinstance(line, ChangeLine):
            self._changes[change_text(line)] = None
        elif isinstance(line, AuditLine):
            self._audit.asked(line)
        elif isinstance(line, AlarmLine):
            self._audit.alarm(line, source, self._run(source))
        elif isinstance(line, MeasuresLine):
            self._audit.measured(line)
        elif isinstance(line, BatchLine):
            self._waits.add(line, self._run(source))
        elif isinstance(line, LimitsLine):
            began = self._clusters.get(source)
            if began is None:
                self._times.limits(line, self._run(source))
            else:  # its clients all report the same engines
                self._times.limits(line, CLUSTER, began)

    def _start(self, line: RunLine, source: str) -> None:
        self._starts[source] = self._starts.get(source, 0) + 1
        self._samples.start(line, source)
        self._numbers.start(line, source)
        self._judges.start(line.config)
        self._members.start(line.config)
        self._audit.start(line.config)
        self._runs.append(run_info(line))
        self._scales.append(scale_of(line.config))
        self._clusters.pop(source, None)
        if on_a_cluster(line):
            self._clusters[source] = line.wall

    def report(self) -> Report:
        """Everything so far."""
        metrics = self._tally.metrics()
        times = self._times.rows()
        if len(self._spans) > 1:
            metrics.update(self._together(times, metrics["wait_s"]))
        scale = self._scale()
        calls = metrics["calls"]
        steps = copied(self._steps.items())
        self._waits.give(steps)
        rows = step_rows(steps, scale, metrics["cost_usd"] / calls if calls else 0.0)
        report = Report(
            metrics=metrics,
            runs=list(self._runs),
            scale=scale,
            steps=rows,
            times=times,
            changes=list(self._changes)[:MAX_CHANGES],
            slice_s=self._times.width,
            lengths=self._scatter.lengths(self._within),
            cost=cost_of(rows, metrics, any(run.priced for run in self._runs)),
            again=self._samples.repeated,
            trainer=self._given is None and (not self._runs or not all(run.file for run in self._runs)),
            judges=self._judges.reports(),
            agreement=self._judges.agreement(),
            made_of=self._members.reports(),
            latencies=self._times.latencies(),
            audit=self._audit.report(),
        )
        report.criteria, report.more_criteria = self._criteria.reports()
        report.findings = findings(report)
        return report

    def _together(self, times: list[TimeRow], waited: float) -> dict[str, float]:
        """Several starts: those side by side share their time, and each waits for itself."""
        points = [point for row in times for point in row.endpoints.values()]
        alone = sum(last - first for first, last in self._spans.values())
        return {
            "elapsed_s": covered(self._spans.values()),
            "wait_fraction": min(1.0, waited / alone) if alone > 0 else 0.0,
            "requests": float(sum(point.requests for point in points)),
            "throttled": float(sum(point.throttled for point in points)),
        }

    def _run(self, source: str) -> str:
        return f"{source}#{self._starts.get(source, 0)}"

    def _verdict(self, line: VerdictLine, source: str) -> None:
        ended, before = self._samples.end(line, source)
        if self._audit.on:
            self._audit.sample(line, source)
        said, lines = self._judges.end(line, source)
        parts = [(judge_of(one), one.parts) for one in lines if one.how == "rubric"]
        held = self._criteria.add(parts, line.step, self._numbers.number(line, source)) if parts else None
        compared_ = tuple(
            (judge_of(one), compared(one.how, one.parts, one.uncertainty)) for one in lines if one.how in COMPARED
        )
        made_of = [x for one in lines if (x := self._members.held(judge_of(one), one)) is not None]
        self._step(line.step).verdict(line)
        if line.wall:
            self._times.verdict(line)
        if before is not None:
            self._take_back(before)
        if ended is None:
            # Given up by this start, ended by an earlier one: that counts already.
            given_up = Ended(line, 0)
            given_up.judges, given_up.criteria, given_up.compared = said, held, compared_
            self._take_back(given_up)
        else:
            ended.criteria, ended.compared = held, compared_
            if line.value is not None:
                ended.group = self._grouped(line, source)
            if said or made_of:
                ended.judges, ended.number, ended.made_of = said, self._numbers.number(line, source), made_of
                self._judges.compare(said, ended.row, ended.number)
                self._members.count(made_of, ended.row, ended.number)
        _limited(self._open, (source, line.batch, line.index), ended)

    def _reward(self, line: RewardLine, source: str) -> None:
        name = (source, line.batch, line.index)
        if name in self._open and self._open[name] is None:
            del self._open[name]
            return
        self._tally.add(line)
        sums = self._step(line.step)
        sums.reward_of(line)
        ended = self._open.pop(name, None)
        if ended is None:
            return
        ended.reward = line
        if ended.value is None or ended.gated or not 0 < line.length <= LARGEST:
            return  # a gate's verdict is not the judge's opinion of a length
        ended.point = Point(line.length, ended.value, line.step, ended.row)
        self._scatter.add(ended.point)
        if ended.criteria is not None:
            self._criteria.lengths(ended.criteria, line.length, ended.row)
        if ended.group is not None:
            self._within.add(ended.group, line.length, ended.value)

    def _take_back(self, ended: Ended) -> None:
        """Subtract this end of a sample: a later start has judged it again."""
        said = [(line.judge, line.value) for line in ended.judges]
        held = ended.criteria
        criteria = held.by_judge() if held else ()
        self._tally.take_back(ended.value, ended.unscored, ended.reward, said, criteria, ended.compared)
        if held is not None:
            self._criteria.take_back(held, ended.step)
            if ended.point is not None:
                self._criteria.lengths(held, ended.point.length, ended.row, -1)
        if said:
            self._judges.take_back(ended.judges, ended.step)
            self._judges.compare(ended.judges, ended.row, ended.number, -1)
        self._members.count(ended.made_of, ended.row, ended.number, -1)
        self._step(ended.step).take_back(ended.value, ended.unscored, ended.gated)
        if ended.value is None and ended.wall:
            self._times.take_back(ended.wall, ended.unscored)
        if ended.reward is not None:
            self._step(ended.reward.step).reward_of(ended.reward, -1)
        point, group = ended.point, ended.group
        if point is not None:
            self._scatter.remove(point)
            if group is not None:
                self._within.remove(group, point.length, point.value)
        if group is not None:
            sums = self._step(group.step)
            group.counts(sums, -1)
            group.judged -= not ended.gated
            group.counts(sums, 1)

    def _grouped(self, line: VerdictLine, source: str) -> _Group | None:
        """Follow the spread of the sample's group, where it names one."""
        number = self._numbers.number(line, source)
        if not number or line.value is None:
            return None
        group = self._groups.get(number)
        if group is None:
            group = _Group(line.step)
            _limited(self._groups, number, group, OPEN_GROUPS)
        sums = self._step(group.step)
        group.counts(sums, -1)
        group.low, group.high = min(group.low, line.value), max(group.high, line.value)
        group.judged += line.origin != "gate"
        group.counts(sums, 1)
        return group

    def _step(self, step: Step) -> StepSums:
        sums = self._steps.get(step)
        if sums is None:
            sums = self._steps[step] = StepSums()
        return sums

    def _scale(self) -> Scale:
        """The scale all runs share; continuous where they do not."""
        first = self._scales[0] if self._scales else self._given or Scale()
        return first if all(scale == first for scale in self._scales) else Scale()


def judge_of(line: VerdictLine | JudgeLine) -> str:
    """Its name; empty where it is the only one."""
    return line.judge if isinstance(line, JudgeLine) else ""


def build(lines: Iterable[Line]) -> Report:
    """The report of a whole ledger."""
    gathering = Gathering()
    for line in lines:
        gathering.add(line)
    return gathering.report()


def sane(line: Line) -> Line:
    """The line without a step that no trainer can mean."""
    if isinstance(line, VerdictLine | RewardLine | BatchLine) and line.step is not None and abs(line.step) > LARGEST:
        return replace(line, step=None)
    return line


def cost_of(steps: list[StepRow], metrics: dict[str, float], priced: bool) -> Cost:
    """What was spent, and what comes if it goes on like this."""
    named = [row for row in steps if row.first is not None]
    later = named[1:] if len(named) > 2 else named
    count = sum((row.last or 0) - (row.first or 0) + 1 for row in later)
    per_step = sum(row.cost for row in later) / count if count else None
    spent, samples = metrics["cost_usd"], metrics["samples"]
    return Cost(
        priced=priced or spent > 0,
        spent=spent,
        saved_cache=sum(row.saved_cache for row in steps),
        saved_shared=sum(row.saved_shared for row in steps),
        per_step=per_step,
        per_1000_samples=spent / samples * 1000 if samples else None,
        per_1000_steps=None if per_step is None else per_step * 1000,
        tokens_in=int(metrics["tokens_in"]),
        tokens_out=int(metrics["tokens_out"]),
        tokens_cached=int(metrics["tokens_cached"]),
    )


def _limited(held: dict[Any, Any], name: Any, value: Any, most: int = OPEN) -> None:
    """Add an entry, and evict the oldest when there are too many."""
    held[name] = value
    if len(held) > most:
        del held[next(iter(held))]
