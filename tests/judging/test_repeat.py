"""judge.repeat: how often is asked, what the answers make, and by what they are known."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from msgspec.structs import replace
from tests.judging.made_of_judges import BROKEN, LATE, SAMPLE, built, heard, member, missing_of, valued, verdict_of

from referee.judging import Deliberation, Form, Judge
from referee.judging.repeat import RepeatJudge
from referee.records import Ask, Reason, Sample, Unscored, Verdict

YES, NO = valued(1.0), valued(0.0)


def repeated(times: int, **more: object) -> Judge:
    return built(member("one", kind="reference", repeat=times, **more))


@pytest.mark.parametrize(
    ("times", "said", "asked", "value"),
    [
        (3, [YES, YES], [2], 1.0),
        (3, [YES, NO, NO], [2, 1], 1 / 3),
        (5, [NO, NO, NO], [3], 0.0),
        (5, [YES, NO, YES, YES], [3, 1], 0.75),
        (5, [YES, NO, YES, NO, NO], [3, 1, 1], 0.4),
        (4, [YES, YES, NO, NO], [3, 1], 0.5),
        (2, [YES, NO], [2], 0.5),
        (3, [YES, BROKEN, YES], [2, 1], 1.0),
    ],
)
def test_the_rest_is_not_asked_once_it_could_not_change_the_majority(
    times: int, said: list[Verdict | Unscored], asked: list[int], value: float
) -> None:
    """As many answers as a majority needs, then what one side still lacks. The value is the mean of what was said."""
    found = heard(repeated(times), said)
    assert [len(asks) for asks in found.rounds] == asked
    verdict = verdict_of(found)
    assert verdict.value == pytest.approx(value)
    assert [part.name for part in verdict.parts] == [f"answer {number + 1}" for number in range(len(said))]
    assert verdict.how == "repeat"


def test_graded_answers_are_all_asked_for_at_once() -> None:
    """A majority says little about them; their spread is the uncertainty, their scores keep the judge's scale."""
    judge = built(member("one", repeat=3))
    values = [Verdict(score=score, value=(score - 1) / 9, reason="so") for score in (7.0, 8.0, 9.0)]
    found = heard(judge, values)
    assert [len(asks) for asks in found.rounds] == [3]
    verdict = verdict_of(found)
    assert (verdict.score, verdict.value) == (pytest.approx(8.0), pytest.approx(7 / 9))
    assert verdict.uncertainty == pytest.approx((2 / 3) ** 0.5 / 9)


def test_an_unexpected_grade_is_followed_by_the_rest() -> None:
    """A probability is no vote."""
    found = heard(built(member("one", kind="yes_no", repeat=5)), [valued(0.8)] * 5)
    assert [len(asks) for asks in found.rounds] == [3, 2]


def test_more_than_half_must_have_a_verdict() -> None:
    """What there is is kept in the parts."""
    missing = missing_of(heard(repeated(3), [YES, BROKEN, BROKEN]))
    assert (missing.reason, len(missing.parts)) == (Reason.NO_VERDICT, 3)
    assert "1 of 3 answers" in missing.detail
    verdict = verdict_of(heard(built(member("one", repeat=3)), [valued(0.2), BROKEN, valued(0.4)]))
    assert verdict.value == pytest.approx(0.3)
    assert verdict.reason == "mean of 2 answers (1 without a verdict); the first: worth 0.2"


def test_after_a_deadline_no_more_is_asked() -> None:
    """Of what is there, a majority still decides."""
    assert len(heard(repeated(5), [YES, LATE, YES]).rounds) == 1
    assert verdict_of(heard(built(member("one", repeat=3)), [valued(0.2), LATE, valued(0.4)])).value == pytest.approx(
        0.3
    )


def test_what_a_gate_settles_is_not_asked_even_once() -> None:
    """Its verdict stays as it is."""
    found = heard(repeated(5), [], replace(SAMPLE, response=""))
    assert found.rounds == ()
    assert verdict_of(found).how == "gate"


def test_what_is_never_asked_about_wants_no_more_answers() -> None:
    """Its siblings are agreed on; it stays without a verdict, for its own reason."""
    judge = built(member("one", kind="listwise", low=0, high=1, repeat=5, gates={"truncated": "unscored"}))
    group = [replace(SAMPLE, response=f"It is {number}.", truncated=number == 0) for number in range(3)]
    found = heard(judge, lambda ask: YES, *group)
    assert [len(asks) for asks in found.rounds] == [3]
    first = found.verdicts[0]
    assert isinstance(first, Unscored)
    assert first.detail.startswith("gate truncated")


def texts(asks: Sequence[Ask]) -> set[tuple[object, ...]]:
    return {(ask.messages, str(ask.sampling), ask.nonce) for ask in asks}


def test_answers_are_known_apart_and_the_first_as_that_of_a_judge_that_asks_once() -> None:
    """One key each, though what is sent is the same; also in text form."""
    found = heard(built(member("one", repeat=3)), [valued(0.5)] * 3)
    once = heard(built(member("one")), [valued(0.5)])
    assert len({ask.facets for ask in found.asks}) == 3
    assert texts(found.asks) == texts(once.asks)
    assert found.asks[0].facets == once.asks[0].facets
    others = [ask.in_text() for ask in found.asks if ask.in_text is not None]
    assert len({other.facets for other in others if isinstance(other, Ask)}) == 3


def test_repetitions_inside_each_other_are_known_apart() -> None:
    """A jury asked twice of a member that is asked twice: four answers of it, two of the other."""
    judge = built(
        {"name": "panel", "kind": "jury", "members": ["one", "two"], "repeat": 2},
        member("one", repeat=2),
        member("two"),
    )
    found = heard(judge, lambda ask: valued(0.5))
    assert len({(ask.pool, ask.facets) for ask in found.asks}) == len(found.asks) == 6


def test_a_group_is_asked_about_while_one_of_it_is_undecided() -> None:
    """Two agree on the first response and differ on the second: all of it is asked about again."""

    class Votes:
        """Asks once about a group; the answer's parts are its verdicts."""

        unit = "group"

        def deliberate(self, samples: Sequence[Sample], form: Form) -> Deliberation:
            planned = built(member("one")).plan(SAMPLE, form)  # type: ignore[attr-defined]
            [answer] = yield [planned]
            return [YES, answer]

    judge = RepeatJudge(Votes(), 3, graded=False, level=0)  # type: ignore[arg-type]
    found = heard(judge, [YES, NO, NO], SAMPLE, SAMPLE)
    assert [len(asks) for asks in found.rounds] == [2, 1]
    assert [verdict.value for verdict in found.verdicts if isinstance(verdict, Verdict)] == [1.0, pytest.approx(1 / 3)]
