"""What the audit asked and found: alarms with their samples, and the curves behind them by step. Fed line by line."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from referee.ledger import AlarmLine, AuditLine, MeasuresLine, VerdictLine
from referee.report.columns import link_of
from referee.report.shape import AlarmReport, AlarmSample, AuditReport, AuditStep

HIGH, APART = 0.75, 0.3
"""A score that is high, and that the shadow's is below by so much, is exploited; as in the audit's own signal."""
MOST_ALARMS = 100
MOST_STEPS = 200
"""Rows of steps; beyond that two neighbours become one."""
FEW, MOST_POINTS = 16, 32
"""Least questions behind a point of a curve (or a quarter of them all, if that is less), and most points of a curve."""
RECORDED = frozenset(("phrase", "length", "style", "variety", "overlap", "criteria_credited"))
"""Of the signals' numbers, those that have a curve."""
MOST_SAMPLES = 65_536
"""Samples that an alarm may still name, the latest."""
MOST_NUMBERS = 20
LONGEST = 400
"""Characters of a sample's text, or of a piece of evidence."""

Sums = dict[str, tuple[float, float, int]]
"""By curve: what was added up, the weights, and how many."""


class AuditTally:
    """Counts lines of the audit. `on` from the first sign of one on: until then samples cost nothing here."""

    def __init__(self) -> None:
        self.on = False
        self._asked = 0
        self._cost = 0.0
        self._alarms: list[AlarmReport] = []
        self._open: dict[str, tuple[int, set[str]]] = {}
        """By signal: its alarm's place in the list, and the processes in which it is not over."""
        self._more = 0
        self._steps: dict[int, Sums] = {}
        self._width = 1
        self._links: dict[tuple[str, str, int], str] = {}

    def start(self, config: Mapping[str, Any]) -> None:
        """A run with these settings has begun."""
        audit = config.get("audit")
        self.on = self.on or (isinstance(audit, Mapping) and audit.get("enable") is True)

    def sample(self, line: VerdictLine, source: str) -> None:
        """A sample that an alarm may name."""
        self._links[source, line.batch, line.index] = f"{int(link_of(line)):013x}"
        if len(self._links) > MOST_SAMPLES:
            del self._links[next(iter(self._links))]

    def asked(self, line: AuditLine) -> None:
        """One question of the audit."""
        self.on = True
        self._asked += 1
        self._cost += line.cost
        if line.value is None or line.step is None or not math.isfinite(line.chance) or line.chance <= 0:
            return
        if line.what == "canary" and line.wrong is not None:
            self._add(line.step, "wrong" if line.wrong else "right", line.value, 1.0)
        elif line.what == "shadow" and line.before is not None:
            weight = 1.0 / line.chance  # high scores are drawn more often than they are
            gap = line.before - line.value
            self._add(line.step, "gap", gap, weight)
            self._add(line.step, "agreement", float(abs(gap) < APART), weight)
            self._add(line.step, "exploited", float(line.before >= HIGH and gap >= APART), weight)
        elif line.what in ("probe", "fixed") and line.before is not None:
            self._add(line.step, line.what, line.value - line.before, 1.0)

    def measured(self, line: MeasuresLine) -> None:
        """Numbers of the signals."""
        self.on = True
        if line.step is not None:
            for name in RECORDED & line.measures.keys():
                if math.isfinite(line.measures[name]):
                    self._add(line.step, name, line.measures[name], 1.0)

    def alarm(self, line: AlarmLine, source: str, process: str) -> None:
        """An alarm began, became critical or is over. One of several processes is one alarm: they train one policy."""
        self.on = True
        place, processes = self._open.get(line.signal, (-1, set()))
        if line.over:
            processes.discard(process)
            if place >= 0 and not processes:
                del self._open[line.signal]
                self._alarms[place] = replace(self._alarms[place], over=True, over_step=line.step)
            return
        processes.add(process)
        begun = self._alarm_of(line, source)
        if place >= 0:
            known = self._alarms[place]
            if begun.level == "critical" != known.level:
                self._alarms[place] = replace(begun, step=known.step, critical_step=line.step)
        elif len(self._alarms) >= MOST_ALARMS:
            self._more += 1
        else:
            self._open[line.signal] = len(self._alarms), processes
            self._alarms.append(begun)

    def _alarm_of(self, line: AlarmLine, source: str) -> AlarmReport:
        return AlarmReport(
            signal=line.signal,
            level="critical" if line.level == "critical" else "warning",
            step=line.step,
            sentence=line.sentence,
            evidence={name: _plain(value) for name, value in list(line.evidence.items())[:MOST_NUMBERS]},
            samples=[self._sample(one, source) for one in line.samples[:3]],
            advice=line.advice,
            action="" if line.action == "log" else line.action,
            weight=line.weight,
        )

    def report(self) -> AuditReport | None:
        """Everything so far; None where no audit ran."""
        if not self.on:
            return None
        curves: dict[float, dict[str, float]] = {}
        for name in sorted({name for sums in self._steps.values() for name in sums}):
            for step, value in self._points(name):
                curves.setdefault(step, {})[name] = value
        steps = [AuditStep(step, found) for step, found in sorted(curves.items())]
        return AuditReport(self._asked, self._cost, list(self._alarms), self._more, steps)

    def _points(self, name: str) -> list[tuple[float, float]]:
        """A curve's points: neighbouring steps together until there are answers enough for a mean."""
        rows = [
            (step + (self._width - 1) / 2, *sums[name]) for step, sums in sorted(self._steps.items()) if name in sums
        ]
        count = sum(many for *_, many in rows)
        enough = 1.0 if name in RECORDED else max(1.0, min(FEW, count // 4), count / MOST_POINTS)
        found: list[tuple[float, float]] = []
        steps = total = weight = 0.0
        many = 0
        for step, more, heavier, number in rows:
            steps, total, weight, many = steps + step * number, total + more, weight + heavier, many + number
            if many >= enough:
                found.append((round(steps / many), total / weight))
                steps = total = weight = 0.0
                many = 0
        if many >= enough / 2:
            found.append((round(steps / many), total / weight))
        return found

    def _sample(self, given: Mapping[str, Any], source: str) -> AlarmSample:
        value, index = given.get("value"), given.get("index")
        name = (source, str(given.get("batch", "")), index if isinstance(index, int) else -1)
        known = str(given.get("id", ""))[:LONGEST]
        return AlarmSample(
            link=self._links.get(name, known),
            id=known,
            value=float(value) if isinstance(value, int | float) and math.isfinite(value) else None,
            text=str(given.get("text", ""))[:LONGEST],
        )

    def _add(self, step: int, name: str, value: float, weight: float) -> None:
        _count(self._steps.setdefault(step // self._width * self._width, {}), name, value * weight, weight, 1)
        if len(self._steps) > MOST_STEPS:
            self._width *= 2
            before, self._steps = self._steps, {}
            for place, old in before.items():
                into = self._steps.setdefault(place // self._width * self._width, {})
                for curve, sums in old.items():
                    _count(into, curve, *sums)


def _count(into: Sums, name: str, total: float, weight: float, many: int) -> None:
    before = into.get(name, (0.0, 0.0, 0))
    into[name] = before[0] + total, before[1] + weight, before[2] + many


def _plain(value: Any) -> float | str:
    return float(value) if isinstance(value, int | float) and math.isfinite(value) else str(value)[:LONGEST]
