"""Juries and cascades: what each member said, which one decided, how far members agree. Fed sample by sample, no files.

A verdict that a gate gave is no member's opinion.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import combinations
from typing import Any, NamedTuple

from referee.judging.cascade import DECIDED
from referee.ledger.criteria import part_rows
from referee.ledger.lines import JudgeLine, VerdictLine, judges_in
from referee.report.judges import MOST_COMPARED, Pair
from referee.report.shape import CompositeReport, MemberReport, Point
from referee.report.sums import mean

KINDS = ("jury", "cascade")
MOST_MEMBERS = 20
"""Of one judge. More are from a forged ledger."""


class SampleMembers(NamedTuple):
    """What one such judge's members said of one sample."""

    judge: str
    said: tuple[tuple[str, float | None, bool], ...]
    """Each member that was asked: its value, and whether it decided."""
    cost: float


class _Member:
    """One member's sums."""

    def __init__(self) -> None:
        self.asked = self.scored = self.decided = 0
        self.total = self.cost = 0.0


class _Composite:
    """A judge and its members."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.samples = 0
        self.members: dict[str, _Member] = {}
        self.pairs: dict[tuple[str, str], Pair] = {}


class Members:
    """Counts what members said."""

    def __init__(self) -> None:
        self._found: dict[str, _Composite] = {}

    def start(self, config: Mapping[str, Any]) -> None:
        """A run with these settings has begun."""
        judges = judges_in(config)
        for judge in judges:
            kind = str(judge.get("kind", ""))
            if kind in KINDS:
                self._found.setdefault(str(judge.get("name", "")) if len(judges) > 1 else "", _Composite(kind))

    def held(self, judge: str, line: VerdictLine | JudgeLine) -> SampleMembers | None:
        """What a judge's line says of its members; None where it has none."""
        if line.how in KINDS:
            self._found.setdefault(judge, _Composite(line.how))
        if judge not in self._found or line.origin == "gate" or (line.how and line.how not in KINDS) or not line.parts:
            return None
        said = tuple((part.name, part.met, part.verdict == DECIDED) for part in part_rows(line.parts[:MOST_MEMBERS]))
        return SampleMembers(judge, said, line.cost)

    def count(self, held: Iterable[SampleMembers], row: int, group: int, times: int = 1) -> None:
        """Count one sample of that row and group; `times` = -1 subtracts it."""
        for one in held:
            whole = self._found[one.judge]
            whole.samples += times
            for name, value, decided in one.said:
                if name not in whole.members and len(whole.members) >= MOST_MEMBERS:
                    continue
                member = whole.members.setdefault(name, _Member())
                member.asked += times
                member.scored += times * (value is not None)
                member.total += times * (value or 0.0)
                member.decided += times * decided
                member.cost += times * decided * one.cost
            if whole.kind == "jury":
                values = {name: value for name, value, _ in one.said if value is not None}
                compared = [name for name in list(whole.members)[:MOST_COMPARED] if name in values]
                for a, b in combinations(compared, 2):
                    pair = whole.pairs.setdefault((a, b), Pair())
                    pair.add(Point(values[a], values[b], None, row), group, times)

    def reports(self) -> list[CompositeReport]:
        """Each such judge so far."""
        return [
            CompositeReport(
                judge=judge,
                kind=whole.kind,
                samples=whole.samples,
                members=[
                    MemberReport(
                        name=name,
                        asked=member.asked,
                        scored=member.scored,
                        mean=mean(member.total, member.scored),
                        decided=member.decided,
                        cost=member.cost,
                    )
                    for name, member in whole.members.items()
                ],
                agreement=[pair.agreement(*names) for names, pair in whole.pairs.items()],
            )
            for judge, whole in self._found.items()
            if whole.samples
        ]
