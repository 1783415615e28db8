"""Judges from outside that ask or answer what they must not: their own samples are unscored, all others are judged."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

import pytest
from msgspec.structs import replace
from tests.engine.harness import Run, run, samples

from referee.judging import Deliberation, Form, make_judge
from referee.judging.registry import COMPOSED, Composed, Materials
from referee.records import Ask, Reason, Sample, Unscored, Verdict
from referee.sim import ProviderSpec

Twist = Callable[[Ask], Any]
TWISTS: dict[str, Twist] = {
    "no Ask": lambda request: "hello",
    "unknown pool": lambda request: replace(request, pool="nope"),
    "unknown pool in text": lambda request: replace(request, in_text=lambda: replace(request, pool="nope")),
    "facet": lambda request: replace(request, facets=(*request.facets, ("x", object()))),
    "reader": lambda request: replace(request, read=lambda asked, reply: Verdict(score=None, value=0.5)),  # type: ignore[arg-type]
}
BAD = Sample(prompt="p", response="BAD [[quality=5]]")


def judged(
    twist: Twist, before: int = 0, returned: Verdict | None = None, spec: ProviderSpec | None = None, **more: Any
) -> Run:
    """Five samples and a bad one, about which the judge asks a twisted question after `before` usual ones."""

    class Judge:
        unit: Literal["sample"] = "sample"

        def __init__(self, given: Materials) -> None:
            self._one: Any = make_judge(replace(given.config, kind="score"), given.secret)

        def deliberate(self, given: Sequence[Sample], form: Form) -> Deliberation:
            (sample,) = given
            if sample == BAD:
                for number in range(before):
                    yield (self._one.plan(replace(sample, response=f"[[quality=5]] {number}"), form),)
                verdicts: Sequence[Verdict | Unscored] = yield (twist(self._one.plan(sample, form)),)
                return verdicts if returned is None else (returned,)
            judged: Sequence[Verdict | Unscored] = yield from self._one.deliberate(given, form)
            return judged

    known = dict(COMPOSED)
    COMPOSED["odd"] = Composed(Judge)
    try:
        return run([*samples(5), BAD], spec or ProviderSpec(), judge={"kind": "odd"}, **more)
    finally:
        COMPOSED.clear()
        COMPOSED.update(known)


@pytest.mark.parametrize("before", [0, 1])
@pytest.mark.parametrize("name", TWISTS)
def test_a_question_that_cannot_be_asked_fails_its_case_alone(name: str, before: int) -> None:
    """In the first round, where cases are looked up together, and later."""
    missing = {"policy": "abstain", "abort_above": 1.0}
    spec = ProviderSpec(unsupported=("response_format",)) if name.endswith("text") else None
    found = judged(TWISTS[name], before, spec=spec, missing=missing)
    assert found.error is None
    assert found.reasons() == {"scored": 5, "config": 1}


def test_an_odd_verdict_at_the_deadline_does_not_keep_the_others_from_ending() -> None:
    """All samples have their end, the odd one too."""
    odd = Verdict(score=10**400, value=0.5)
    missing = {"policy": "abstain", "abort_above": 1.0}
    found = judged(
        lambda request: request, returned=odd, spec=ProviderSpec(latency_median=1000.0), seconds=5.0, missing=missing
    )
    ends = [verdict.reason for verdict in found.verdicts() if isinstance(verdict, Unscored)]
    assert ends == [Reason.DEADLINE] * 5 + [Reason.CONFIG]
