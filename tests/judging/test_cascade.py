"""kind = "cascade": who is asked, until when, who has decided, and what is left when nobody can."""

from __future__ import annotations

import pytest
from msgspec.structs import replace
from tests.judging.made_of_judges import (
    BROKEN,
    LATE,
    SAMPLE,
    built,
    by_pool,
    heard,
    member,
    missing_of,
    pools,
    valued,
    verdict_of,
)

from referee.judging import Judge
from referee.records import Ask, Reason, Unscored, Verdict


def cascade(until: dict[str, object], **more: object) -> Judge:
    members = member("one", kind="yes_no"), member("two", kind="yes_no"), member("three")
    return built(
        {"name": "stairs", "kind": "cascade", "members": ["one", "two", "three"], "until": until, **more}, *members
    )


def test_a_sure_member_decides_alone() -> None:
    """The next is asked only while one is unsure; the row says who decided and what each said."""
    judge = cascade({"uncertainty": 0.2})
    found = heard(judge, by_pool(one=valued(0.9, 0.2)))
    assert pools(found) == [["one"]]
    assert verdict_of(found).reason == "decided by one: worth 0.9"
    found = heard(judge, by_pool(one=valued(0.6, 0.6), two=valued(0.8, 0.1)))
    verdict = verdict_of(found)
    assert pools(found) == [["one"], ["two"]]
    assert (verdict.value, verdict.score, verdict.uncertainty, verdict.how) == (0.8, 0.8, 0.1, "cascade")
    assert [(part.name, part.label, part.weight) for part in verdict.parts] == [
        ("one", "unsure", 0.0),
        ("two", "decided", 1.0),
    ]
    assert verdict.parts[0].row()["uncertainty"] == 0.6


def test_the_last_decides_however_unsure_it_is() -> None:
    """There is nobody after it."""
    verdict = verdict_of(
        heard(cascade({"uncertainty": 0.2}), by_pool(one=valued(1, 9), two=valued(1, 9), three=valued(0.3)))
    )
    assert (verdict.value, verdict.parts[2].label) == (0.3, "decided")


@pytest.mark.parametrize(("value", "asked"), [(0.29, 1), (0.3, 2), (0.5, 2), (0.7, 2), (0.71, 1)])
def test_what_is_within_the_band_goes_on(value: float, asked: int) -> None:
    """The ends belong to it."""
    found = heard(cascade({"outside": [0.3, 0.7]}), by_pool(one=valued(value), two=valued(1.0)))
    assert len(found.rounds) == asked


def test_both_conditions_must_hold() -> None:
    """Sure of a value inside the band is not enough."""
    judge = cascade({"outside": [0.3, 0.7], "uncertainty": 0.2})
    assert len(heard(judge, by_pool(one=valued(0.5, 0.0), two=valued(0.9, 0.0))).rounds) == 2
    assert len(heard(judge, by_pool(one=valued(0.9, 0.5), two=valued(0.9, 0.0))).rounds) == 2
    assert len(heard(judge, by_pool(one=valued(0.9, 0.1))).rounds) == 1


def test_without_a_condition_the_first_verdict_decides() -> None:
    """The others are for failures."""
    judge = cascade({})
    assert len(heard(judge, by_pool(one=valued(0.5))).rounds) == 1
    found = heard(judge, by_pool(one=BROKEN, two=valued(0.4)))
    assert [(part.name, part.label) for part in verdict_of(found).parts] == [("one", "no verdict"), ("two", "decided")]


def test_a_verdict_that_does_not_say_how_sure_it_is_goes_on() -> None:
    """As of an endpoint that gives no log-probabilities after all; the row says so."""
    found = heard(cascade({"uncertainty": 0.2}), by_pool(one=valued(1.0), two=valued(0.4, 0.0)))
    assert verdict_of(found).parts[0].label == "uncertainty unknown"


def test_what_a_gate_settles_is_certain() -> None:
    """Nothing is asked."""
    found = heard(cascade({"uncertainty": 0.2}), [], replace(SAMPLE, response=" "))
    assert found.rounds == ()
    assert (verdict_of(found).how, verdict_of(found).value) == ("gate", 0.0)


def test_without_the_last_verdict_there_is_none_unless_the_user_says_so() -> None:
    """An unsure verdict is not taken for a decision in secret; what was said is kept."""
    said = by_pool(one=valued(0.6, 0.6), two=BROKEN, three=BROKEN)
    missing = missing_of(heard(cascade({"uncertainty": 0.2}), said))
    assert (missing.reason, missing.detail) == (Reason.NO_VERDICT, "three: prose")
    assert [part.label for part in missing.parts] == ["unsure", "no verdict", "no verdict"]
    verdict = verdict_of(heard(cascade({"uncertainty": 0.2}, partial="skip"), said))
    assert (verdict.value, verdict.reason) == (0.6, "decided by one: worth 0.6")
    assert [part.label for part in verdict.parts] == ["decided", "no verdict", "no verdict"]


@pytest.mark.parametrize("reason", [Reason.DEADLINE, Reason.CANCELLED, Reason.BUDGET])
def test_nobody_else_is_asked_when_nothing_will_be_answered(reason: Reason) -> None:
    """At a deadline a judge may ask only a few rounds more."""
    found = heard(cascade({"uncertainty": 0.2}), lambda ask: Unscored(reason=reason))
    assert pools(found) == [["one"]]
    assert missing_of(found).reason is reason


def test_a_group_goes_on_as_a_whole() -> None:
    """Verdicts of two judges inside a group would not compare."""
    judge = built(
        {"name": "stairs", "kind": "cascade", "members": ["one", "two"], "until": {"outside": [0.3, 0.7]}},
        member("one"),
        member("two", kind="listwise"),
    )
    assert judge.unit == "group"
    group = [replace(SAMPLE, response=f"It is {number}.") for number in range(2)]
    values = iter([0.9, 0.5])
    found = heard(judge, lambda ask: valued(next(values)) if ask.pool == "one" else LATE, *group)
    assert pools(found) == [["one", "one"], ["two"]]
    for verdict, label in zip(found.verdicts, ["sure, but its group went on", "unsure"], strict=True):
        assert isinstance(verdict, Unscored)
        assert [part.label for part in verdict.parts] == [label, "no verdict"]
    found = heard(judge, by_pool(one=valued(0.9)), *group)
    assert [isinstance(verdict, Verdict) for verdict in found.verdicts] == [True, True]


def lists(**more: object) -> Judge:
    both = {"kind": "listwise", "gates": {"truncated": "unscored"}}
    outer = {"name": "stairs", "kind": "cascade", "members": ["one", "two"], "until": {"outside": [0.3, 0.7]}, **more}
    return built(outer, member("one", **both), member("two", **both))


def test_verdicts_of_two_members_never_stand_in_one_group() -> None:
    """Though partial = "skip" takes what there is: all of it is of the member that says most, the last of such."""
    outer = {"name": "stairs", "kind": "cascade", "members": ["one", "two"], "partial": "skip"}
    judge = built({**outer, "until": {"outside": [0.0, 1.0]}}, member("one"), member("two", kind="pairwise"))
    group = [replace(SAMPLE, response=f"It is {number}.") for number in range(4)]

    def answer(ask: Ask) -> Verdict | Unscored:
        return BROKEN if ask.pool == "two" and "It is 0." in ask.messages[-1].content else valued(0.5)

    found = heard(judge, answer, *group)
    assert [verdict.reason for verdict in found.verdicts] == ["decided by one: worth 0.5"] * 4


def test_a_sample_that_is_never_asked_about_does_not_send_its_group_on() -> None:
    """No member's answers would change that it has no verdict; one whose answer failed does."""
    group = [replace(SAMPLE, response=f"It is {number}.", truncated=number == 0) for number in range(3)]
    found = heard(lists(), by_pool(one=Verdict(score=10.0, value=1.0)), *group)
    assert pools(found) == [["one"]]
    assert [isinstance(verdict, Verdict) for verdict in found.verdicts] == [False, True, True]
    found = heard(lists(), by_pool(one=BROKEN, two=Verdict(score=10.0, value=1.0)), *group)
    assert pools(found) == [["one"], ["two"]]


def test_a_cascade_of_a_jury() -> None:
    """Jurors that agree decide; the strong judge is asked where they do not."""
    judge = built(
        {"name": "stairs", "kind": "cascade", "members": ["panel", "three"], "until": {"uncertainty": 0.2}},
        {"name": "panel", "kind": "jury", "members": ["one", "two"]},
        member("one"),
        member("two"),
        member("three"),
    )
    agreed = heard(judge, by_pool(one=valued(0.8), two=valued(0.9)))
    assert pools(agreed) == [["one", "two"]]
    assert verdict_of(agreed).value == pytest.approx(0.85)
    split = heard(judge, by_pool(one=valued(0.1), two=valued(0.9), three=valued(0.7)))
    assert pools(split) == [["one", "two"], ["three"]]
    row = verdict_of(split).parts[0].row()
    assert [part["name"] for part in row["parts"]] == ["one", "two"]
