"""What `referee.testing` finds in a judge: every fault it promises to notice, and none in a good one."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from referee import Reason, Sample, Unscored, Verdict
from referee.config import JudgeConfig
from referee.judging import KINDS, Deliberation, Form, make_judge, together
from referee.records import Ask, Message, Reply, Sampling
from referee.testing import check_judge, deliberate
from referee.testing.judges import SECRET

SAMPLES = [Sample(prompt="2 + 2?", response="It is 4.")]
MIDDLE = Verdict(score=5.0, value=0.5)
Deliberate = Callable[[Sequence[Sample]], Deliberation]


def read_any(ask: Ask, reply: Reply) -> Verdict | Unscored:
    return MIDDLE if reply.text == "5" else Unscored(reason=Reason.NO_VERDICT)


def ask(text: str, facet: str = "", read: Any = read_any) -> Ask:
    return Ask((Message("user", text),), Sampling(), (("text", facet or text),), "nonce", 5, read)


class Made:
    """A judge of one function."""

    unit = "group"

    def __init__(self, deliberate: Deliberate) -> None:
        self._deliberate = deliberate

    def deliberate(self, samples: Sequence[Sample], form: Form) -> Deliberation:
        return self._deliberate(samples)


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_shipped_judges_pass(kind: str) -> None:
    """Whatever they are asked to read."""
    check_judge(make_judge(JudgeConfig(kind=kind), b"0123456789abcdef"), SAMPLES)  # type: ignore[arg-type]


def test_a_list_of_one_is_answered_by_a_plain_verdict() -> None:
    """As where all responses of a group are equal."""
    found = deliberate(make_judge(JudgeConfig(kind="listwise"), SECRET), SAMPLES * 2, [MIDDLE])
    assert [verdict.score for verdict in found.verdicts if isinstance(verdict, Verdict)] == [5.0, 5.0]


def test_a_deliberation_shows_its_rounds_and_verdicts() -> None:
    """Readings go in as they are, texts through the question's own reader."""

    def rounds(samples: Sequence[Sample]) -> Deliberation:
        first = yield [ask("one"), ask("two")]
        second = yield [ask("three")]
        return [*first, *second]

    late = Unscored(reason=Reason.DEADLINE)
    found = deliberate(Made(rounds), SAMPLES * 3, [MIDDLE, "5", late])
    assert [len(asks) for asks in found.rounds] == [2, 1]
    assert [asked.messages[0].content for asked in found.asks] == ["one", "two", "three"]
    assert found.verdicts == (MIDDLE, MIDDLE, late)
    by_text = deliberate(Made(rounds), SAMPLES * 3, lambda asked: "5" if "t" in asked.messages[0].content else late)
    assert by_text.verdicts == (late, MIDDLE, MIDDLE)


def test_answers_that_run_out_are_an_error() -> None:
    """A test that gives too few is told so."""

    def two(samples: Sequence[Sample]) -> Deliberation:
        return (yield from together([iter_ask("one"), iter_ask("two")]))

    def iter_ask(text: str) -> Deliberation:
        return (yield [ask(text)])

    with pytest.raises(AssertionError, match="more than the 1 questions"):
        deliberate(Made(two), SAMPLES * 2, [MIDDLE])


def endless(samples: Sequence[Sample]) -> Deliberation:
    while True:
        yield [ask("again")]


def short(samples: Sequence[Sample]) -> Deliberation:
    yield [ask("one")]
    return []


def needs_answers(samples: Sequence[Sample]) -> Deliberation:
    answers = yield [ask("one")]
    return [Verdict(score=answers[0].score, value=0.5) for _ in samples]  # type: ignore[union-attr]


def off_scale(samples: Sequence[Sample]) -> Deliberation:
    yield [ask("one")]
    return [Verdict(score=7.0, value=7.0) for _ in samples]


def colliding(samples: Sequence[Sample]) -> Deliberation:
    return (yield [ask("one", facet="same"), ask("two", facet="same")])[:1]


def raising_reader(samples: Sequence[Sample]) -> Deliberation:
    return (yield [ask("one", read=lambda asked, reply: Verdict(score=float(reply.text), value=0.5))])


def by_chance() -> Deliberate:
    drawn = itertools.count()

    def judge(samples: Sequence[Sample]) -> Deliberation:
        return (yield [ask(f"question {next(drawn)}")])

    return judge


@pytest.mark.parametrize(
    ("judge", "says"),
    [
        (endless, "more than 64 rounds"),
        (short, "0 verdicts for 1 samples"),
        (off_scale, "value from 0 to 1"),
        (colliding, "the cache would give one the other's verdict"),
        (by_chance(), "gave other questions"),
    ],
)
def test_a_fault_is_named(judge: Deliberate, says: str) -> None:
    """In the words of what would go wrong."""
    with pytest.raises(AssertionError, match=says):
        check_judge(Made(judge), SAMPLES)


@pytest.mark.parametrize(("judge", "error"), [(needs_answers, AttributeError), (raising_reader, ValueError)])
def test_a_judge_that_raises_is_shown_with_its_own_error(judge: Deliberate, error: type[Exception]) -> None:
    """One that does not expect a missing answer, one whose reader trusts the reply."""
    with pytest.raises(error):
        check_judge(Made(judge), SAMPLES)


@pytest.mark.parametrize("kind", ["pairwise", "listwise"])
def test_judges_of_groups_can_be_checked(kind: str) -> None:
    """A verdict on a question about several responses is that on each of them."""
    judge = make_judge(JudgeConfig(kind=kind), SECRET)
    group = [Sample(prompt="2 + 2?", response=f"It is {n}.", group="g") for n in range(4)]
    check_judge(judge, group)
    check_judge(judge, group[:1])
    found = deliberate(judge, group, lambda ask: Verdict(score=5.5, value=0.5))
    assert [verdict.value for verdict in found.verdicts if isinstance(verdict, Verdict)] == pytest.approx([0.5] * 4)
