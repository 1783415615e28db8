"""judge.abstain_above: verdicts that are less certain than the user asks for are none."""

from __future__ import annotations

from collections.abc import Sequence

from referee.judging.kind import Deliberation, Form, Judge
from referee.judging.members import calls_of, columns_of
from referee.records import Reason, Sample, Unscored, Verdict


class AbstainingJudge:
    """Another judge, whose uncertain verdicts are Unscored."""

    def __init__(self, judge: Judge, most: float) -> None:
        self._judge = judge
        self._most = most
        self.unit = judge.unit
        self.columns = columns_of([judge])

    def calls(self, count: int) -> int:
        """As the other judge's."""
        return calls_of(self._judge, count)

    def deliberate(self, samples: Sequence[Sample], form: Form) -> Deliberation:
        """What the other judge asks."""
        verdicts = yield from self._judge.deliberate(samples, form)
        return [self._or_none(verdict) for verdict in verdicts]

    def _or_none(self, verdict: Verdict | Unscored) -> Verdict | Unscored:
        if isinstance(verdict, Unscored) or verdict.uncertainty is None or not verdict.uncertainty > self._most:
            return verdict
        detail = (
            f"the judge's {verdict.value:.3g} has an uncertainty of {verdict.uncertainty:.3g}, and "
            f"judge.abstain_above is {self._most:g}"
        )
        return Unscored(reason=Reason.UNCERTAIN, detail=detail, parts=verdict.parts)
