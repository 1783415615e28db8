"""A judge's deliberation, driven round by round: what it is told, what it returns, and where it is ended."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from referee.judging import Deliberation, Form, together
from referee.records import Ask, Message, Part, Reason, Sample, Sampling, Settled, Unscored, Verdict
from referee.scoring.case import LAST_ROUNDS, MAX_ROUNDS, Case

SAMPLE = Sample(prompt="p", response="r")
WHY = Unscored(reason=Reason.DEADLINE, detail="late")
Judging = Callable[[Sequence[Sample]], Deliberation]


def ask(name: str) -> Ask:
    """A question that is told apart by its name."""
    return Ask((Message("user", name),), Sampling(), (("name", name),), name, 1)


def said(value: float) -> Verdict:
    return Verdict(score=value, value=value)


class Called:
    """A judge of one function."""

    unit: Literal["group"] = "group"

    def __init__(self, judging: Judging) -> None:
        self._judging = judging

    def deliberate(self, samples: Sequence[Sample], form: Form) -> Deliberation:
        return self._judging(samples)


def begun(judging: Judging, samples: int = 1) -> tuple[Case, Sequence[Ask]]:
    """A case and its first questions."""
    case = Case(0, tuple(range(samples)))
    return case, case.begin(Called(judging), [SAMPLE] * samples, "text")


def answer(case: Case, asks: Sequence[Ask], *verdicts: Verdict | Unscored) -> Sequence[Ask]:
    """Answer a whole round, the last question first; the next round."""
    for slot in reversed(range(len(asks))):
        complete = case.answered(slot, asks[slot], Settled(verdict=verdicts[slot], origin="call", attempts=1, cost=0.5))
        assert complete is (slot == 0)
    return case.next_round()


def two_rounds(samples: Sequence[Sample]) -> Deliberation:
    """Two questions, then one more if they differ; their mean otherwise."""
    first, second = yield (ask("a"), ask("b"))
    if isinstance(first, Unscored) or isinstance(second, Unscored):
        return (next(one for one in (first, second) if isinstance(one, Verdict)),)
    if first.value == second.value:
        return (first,)
    (third,) = yield (ask("c"),)
    return (third,)


def test_answers_come_in_the_order_of_the_questions() -> None:
    """Whatever order they arrive in; more may be asked, and the last round decides."""
    case, first = begun(two_rounds)
    asks = answer(case, first, said(0.1), said(0.2))
    assert [request.nonce for request in asks] == ["c"]
    assert answer(case, asks, said(0.9)) == ()
    assert case.verdicts == [said(0.9)]


def test_what_all_questions_cost_is_what_the_verdict_cost() -> None:
    """Attempts and money of every round."""
    case, first = begun(two_rounds)
    answer(case, answer(case, first, said(0.1), said(0.2)), said(0.9))
    settled = case.settled(0)
    assert (settled.verdict, settled.attempts, settled.cost, settled.origin) == (said(0.9), 3, 1.5, "call")


def test_a_group_shares_what_it_cost() -> None:
    """The sum over its samples is what was paid."""

    def judging(samples: Sequence[Sample]) -> Deliberation:
        answers = yield (ask("all"),)
        return list(answers) * len(samples)

    case, first = begun(judging, samples=4)
    answer(case, first, said(0.5))
    settled = [case.settled(which) for which in range(4)]
    assert sum(one.cost for one in settled) == pytest.approx(0.5)
    assert sum(one.attempts for one in settled) == 1


def test_at_the_end_a_judge_may_decide_with_what_it_has() -> None:
    """What is open is answered Unscored, and the judge is resumed once more."""
    case, asks = begun(two_rounds)
    case.answered(0, asks[0], Settled(verdict=said(0.3), origin="call"))
    case.answered(1, asks[1], Settled(verdict=WHY))
    case.end(WHY)
    assert case.verdicts == [said(0.3)]


def test_what_was_cancelled_is_not_decided_by_half_of_its_answers() -> None:
    """Nobody waits for it, and a resumed run would take it for a whole verdict."""
    case, asks = begun(two_rounds)
    case.answered(0, asks[0], Settled(verdict=said(0.3), origin="call"))
    cancelled = Unscored(reason=Reason.CANCELLED)
    case.answered(1, asks[1], Settled(verdict=cancelled))
    case.end(cancelled)
    assert case.settled(0).verdict == cancelled


def test_a_judge_that_only_asks_more_at_the_end_is_closed() -> None:
    """Its samples are unscored for the reason that ended it."""
    rounds = 0

    def judging(samples: Sequence[Sample]) -> Deliberation:
        nonlocal rounds
        while True:
            rounds += 1
            yield (ask(str(rounds)),)

    case, asks = begun(judging)
    case.answered(0, asks[0], Settled(verdict=WHY))
    case.end(WHY)
    assert case.verdicts == [WHY]
    assert rounds <= LAST_ROUNDS + 1


def test_a_judge_that_never_decides_is_ended() -> None:
    """After a bounded number of rounds, also of empty ones."""

    def asking(samples: Sequence[Sample]) -> Deliberation:
        while True:
            yield (ask("again"),)

    def silent(samples: Sequence[Sample]) -> Deliberation:
        while True:
            yield ()

    case, asks = begun(asking)
    for _ in range(MAX_ROUNDS + 1):
        if not asks:
            break
        asks = answer(case, asks, said(0.5))
    for ended in (case, begun(silent)[0]):
        assert ended.verdicts is not None
        (verdict,) = ended.verdicts
        assert isinstance(verdict, Unscored)
        assert verdict.reason is Reason.CONFIG


@pytest.mark.parametrize(
    "returned",
    [(), (said(1.0), said(1.0)), None, said(1.0), (0.5,), (Verdict(score=float("nan"), value=0.0),), ("yes",)],
    ids=["none", "two", "nothing", "bare", "number", "nan", "text"],
)
def test_what_is_no_verdict_is_unscored(returned: object) -> None:
    """A judge from outside may return anything; only one sound verdict per sample counts."""

    def judging(samples: Sequence[Sample]) -> Deliberation:
        yield (ask("a"),)
        return returned  # type: ignore[return-value]

    case, first = begun(judging)
    answer(case, first, said(0.5))
    assert case.verdicts is not None
    (verdict,) = case.verdicts
    assert isinstance(verdict, Unscored)
    assert verdict.reason is Reason.CONFIG


def test_an_exception_ends_the_case_with_one_logged_traceback(caplog: pytest.LogCaptureFixture) -> None:
    """In the first round or later."""

    def judging(samples: Sequence[Sample]) -> Deliberation:
        yield (ask("a"),)
        raise KeyError("broken")

    case, first = begun(judging)
    answer(case, first, said(0.5))
    assert isinstance(case.settled(0).verdict, Unscored)
    assert len(caplog.records) == 1
    assert caplog.records[0].exc_info is not None


def test_a_judge_that_cannot_even_begin_ends_its_case() -> None:
    """One that raises at once, one whose questions are no sequence, one that will not be closed."""

    def at_once(samples: Sequence[Sample]) -> Deliberation:
        raise KeyError("broken")

    def iterator(samples: Sequence[Sample]) -> Deliberation:
        yield iter([ask("a")])  # type: ignore[misc]
        return ()

    def stubborn(samples: Sequence[Sample]) -> Deliberation:
        while True:
            try:
                yield (ask("again"),)
            except GeneratorExit:
                yield (ask("never"),)

    for judging in (at_once, iterator):
        case, asks = begun(judging)
        assert asks == ()
        assert isinstance(case.settled(0).verdict, Unscored)
    case, asks = begun(stubborn)
    case.answered(0, asks[0], Settled(verdict=WHY))
    case.end(WHY)
    assert case.verdicts == [WHY]


@given(st.lists(st.integers(0, 3), max_size=5), st.randoms(use_true_random=False))
def test_side_by_side_each_gets_its_own_answers(rounds: list[int], chance: object) -> None:
    """However many rounds each member has, it hears the answers to what it asked, and all verdicts come in order."""

    def member(number: int, count: int) -> Deliberation:
        heard: list[Verdict | Unscored] = []
        for turn in range(count):
            asks = [ask(f"{number}.{turn}.{part}") for part in range(turn + 1)]
            answers = yield asks
            assert [one.reason for one in answers if isinstance(one, Verdict)] == [one.nonce for one in asks]
            heard += answers
        return (Verdict(score=float(len(heard)), value=0.0, reason=str(number)),)

    deliberation = together([member(number, count) for number, count in enumerate(rounds)])
    answers: Sequence[Verdict | Unscored] | None = None
    while True:
        try:
            asks = deliberation.send(answers)  # type: ignore[arg-type]
        except StopIteration as stop:
            verdicts = stop.value
            break
        answers = [Verdict(score=0.0, value=0.0, reason=request.nonce) for request in asks]
    assert [verdict.reason for verdict in verdicts] == [str(number) for number in range(len(rounds))]
    assert [verdict.score for verdict in verdicts] == [count * (count + 1) / 2 for count in rounds]


class Own(float):
    """A number of a class of its own, like numpy's."""


@pytest.mark.parametrize(
    "returned",
    [
        Verdict(score=None, value=0.5),  # type: ignore[arg-type]
        Verdict(score="0.5", value=0.5),  # type: ignore[arg-type]
        Verdict(score=10**400, value=0.5),
        Verdict(score=0.5, value=0.5, reason=None),  # type: ignore[arg-type]
        Verdict(score=0.5, value=0.5, how="guessing"),  # type: ignore[arg-type]
        Verdict(score=0.5, value=0.5, parts=("a",)),  # type: ignore[arg-type]
        Unscored(reason="tie"),  # type: ignore[arg-type]
    ],
    ids=["none", "text", "huge", "no_reason", "how", "parts", "reason"],
)
def test_a_verdict_that_could_not_travel_is_unscored(returned: Verdict | Unscored) -> None:
    """In the usual course and when the case is ended: nothing is raised, and no process is lost with it."""

    def judging(samples: Sequence[Sample]) -> Deliberation:
        yield (ask("a"),)
        return (returned,)

    answered, asks = begun(judging)
    answer(answered, asks, said(0.5))
    ended, _ = begun(judging)
    ended.end(WHY)
    for case in (answered, ended):
        verdict = case.settled(0).verdict
        assert isinstance(verdict, Unscored)
        assert verdict.reason is Reason.CONFIG


@pytest.mark.parametrize(
    ("returned", "wanted"),
    [
        (Verdict(score=True, value=1), said(1.0)),
        (Verdict(score=Own(0.5), value=Own(0.5)), said(0.5)),
        (
            Verdict(score=0.5, value=0.5, parts=(Part(name="a", verdict=Verdict(score=Own(0.5), value=1), weight=2),)),
            Verdict(score=0.5, value=0.5, parts=(Part(name="a", verdict=Verdict(score=0.5, value=1.0), weight=2.0),)),
        ),
        (Unscored(reason="timeout"), Unscored(reason=Reason.TIMEOUT)),  # type: ignore[arg-type]
    ],
)
def test_a_verdict_that_means_a_number_is_made_one(returned: Verdict | Unscored, wanted: Verdict | Unscored) -> None:
    """Whole numbers, numbers of other classes, words for reasons: what travels is read as the same."""

    def judging(samples: Sequence[Sample]) -> Deliberation:
        yield (ask("a"),)
        return (returned,)

    case, asks = begun(judging)
    answer(case, asks, said(0.5))
    verdict = case.settled(0).verdict
    assert verdict == wanted
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(verdict), type=type(wanted)) == wanted


def test_what_is_no_question_ends_its_case() -> None:
    """In the first round or later."""

    def judging(samples: Sequence[Sample]) -> Deliberation:
        yield (ask("a"),)
        yield (ask("b"), "hello")  # type: ignore[misc]
        return ()

    case, asks = begun(judging)
    assert answer(case, asks, said(0.5)) == ()
    assert isinstance(case.settled(0).verdict, Unscored)
