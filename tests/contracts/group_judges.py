"""A judge of whole groups, for tests. Worker processes import this module and call `register`.

Where it is registered, it is the judge of KIND.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Literal

from msgspec.structs import replace

from referee.config import Config
from referee.judging import Deliberation, Form, Judge, make_judge, together
from referee.judging.registry import COMPOSED, Composed, Materials
from referee.records import Sample, Unscored, Verdict
from referee.scoring.build import build_worker
from referee.scoring.lines import LineMaker
from referee.scoring.worker import Emit, JudgeWorker

MakeJudge = Callable[[Materials], Judge]
KIND = "ranks"
BOOT = "from tests.contracts.group_judges import register; register()\n"
"""For programs that start a worker."""


class RankJudge:
    """Asks twice about every sample of a group, in two rounds. A verdict's value is the share of siblings with a lower
    score; its reason names the group as the judge was given it."""

    unit: Literal["group"] = "group"

    def __init__(self, given: Materials) -> None:
        self._one = make_judge(replace(given.config, kind="score"), given.secret)

    def deliberate(self, samples: Sequence[Sample], form: Form) -> Deliberation:
        """Two rounds, then a rank among those that have a score."""
        yield from together([self._one.deliberate((sample,), form) for sample in samples])
        second = [replace(sample, response=f"{sample.response} Once more.") for sample in samples]
        verdicts = yield from together([self._one.deliberate((sample,), form) for sample in second])
        scores = [verdict.score for verdict in verdicts if isinstance(verdict, Verdict)]
        return [_ranked(verdict, scores, samples) for verdict in verdicts]


def _ranked(verdict: Verdict | Unscored, scores: Sequence[float], samples: Sequence[Sample]) -> Verdict | Unscored:
    if isinstance(verdict, Unscored):
        return verdict
    share = sum(score < verdict.score for score in scores) / len(scores)
    return Verdict(score=verdict.score, value=share, reason=",".join(sample.id for sample in samples))


def register(make: MakeJudge = RankJudge) -> None:
    """Have such a judge built for KIND in this process, until it ends."""
    COMPOSED[KIND] = Composed(make, lambda _: "group")


@contextlib.contextmanager
def registered(make: MakeJudge = RankJudge) -> Iterator[None]:
    """The same for a while."""
    before = dict(COMPOSED)
    register(make)
    try:
        yield
    finally:
        COMPOSED.clear()
        COMPOSED.update(before)


def build_with_groups(config: Config, lines: LineMaker, emit: Emit) -> JudgeWorker:
    """For a process that is only sent what builds its worker."""
    register()
    return build_worker(config, lines, emit)
