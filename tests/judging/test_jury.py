"""kind = "jury": how verdicts are combined, what a quorum allows, who is drawn, and what the parts say."""

from __future__ import annotations

import statistics
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.judging.made_of_judges import (
    BROKEN,
    LATE,
    SAMPLE,
    SECRET,
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
from referee.judging.jury import RULES
from referee.records import Reason, Reply, Sample, Unscored, Verdict

MEMBERS = [member("one"), member("two"), member("three")]
JURY = {"name": "panel", "kind": "jury", "members": ["one", "two", "three"]}


def jury(**more: object) -> Judge:
    return built({**JURY, **more}, *MEMBERS)


@pytest.mark.parametrize(
    ("combine", "value"), [("mean", 0.4), ("median", 0.3), ("majority", 0.0), ("min", 0.1), ("trimmed", 0.3)]
)
def test_verdicts_are_combined_as_told(combine: str, value: float) -> None:
    """All members are asked at once; the spread of their values is the uncertainty."""
    found = heard(jury(combine=combine), by_pool(one=valued(0.1), two=valued(0.3), three=valued(0.8)))
    verdict = verdict_of(found)
    assert pools(found) == [["one", "two", "three"]]
    assert verdict.value == verdict.score == pytest.approx(value)
    assert verdict.uncertainty == pytest.approx(statistics.pstdev([0.1, 0.3, 0.8]))
    assert (verdict.how, verdict.reason) == ("jury", f"{combine} of 3 jurors")
    assert [(part.name, part.row()["value"], part.row()["why"]) for part in verdict.parts] == [
        ("one", 0.1, "worth 0.1"),
        ("two", 0.3, "worth 0.3"),
        ("three", 0.8, "worth 0.8"),
    ]


def test_the_mean_is_what_a_jury_does_unless_told_otherwise() -> None:
    """Although the same setting means something else for a rubric."""
    assert verdict_of(heard(jury(), by_pool(one=valued(0), two=valued(0), three=valued(0.9)))).value == pytest.approx(
        0.3
    )


@pytest.mark.parametrize(
    ("values", "value"), [([1, 1, 0], 1.0), ([0, 0, 1], 0.0), ([1, 0], 0.5), ([0.5, 0.5, 0.9], 1.0), ([0.5], 0.5)]
)
def test_a_majority_counts_sides(values: list[float], value: float) -> None:
    """Above one half is for, below it against, exactly there neither."""
    assert RULES["majority"](values) == value


@given(st.lists(st.floats(0, 1), min_size=3, max_size=9))
def test_every_rule_stays_within_what_jurors_said(values: list[float]) -> None:
    """And does not depend on their order."""
    for name, rule in RULES.items():
        value = rule(values)
        assert name == "majority" or min(values) - 1e-9 <= value <= max(values) + 1e-9
        assert rule(values[::-1]) == pytest.approx(value)


def test_without_a_quorum_all_must_have_a_verdict() -> None:
    """One that is missing is named, with what the others said."""
    missing = missing_of(heard(jury(), by_pool(one=valued(0.1), two=BROKEN, three=valued(0.8))))
    assert missing.reason is Reason.NO_VERDICT
    assert "2 of 3 jurors" in missing.detail
    assert "two: prose" in missing.detail
    assert [part.name for part in missing.parts] == ["one", "two", "three"]
    assert missing.parts[0].verdict == valued(0.1)


def test_a_quorum_decides_without_the_others() -> None:
    """Also at a deadline, when a member's answer never came; the reason says whose."""
    found = heard(jury(quorum=2), by_pool(one=valued(0.2), two=LATE, three=valued(0.6)))
    verdict = verdict_of(found)
    assert verdict.value == pytest.approx(0.4)
    assert verdict.reason == "mean of 2 jurors; without a verdict: two"
    assert verdict.parts[1].verdict == LATE
    assert missing_of(heard(jury(quorum=2), by_pool(one=valued(0.2), two=LATE, three=LATE))).reason is Reason.DEADLINE


def test_what_has_failed_is_named_before_what_was_left_out_on_purpose() -> None:
    """A juror that abstains is no outage, so that of another one is the reason."""
    unsure = Unscored(reason=Reason.UNCERTAIN, detail="0.4")
    assert missing_of(heard(jury(), by_pool(one=unsure, two=LATE, three=unsure))).reason is Reason.DEADLINE
    assert missing_of(heard(jury(), by_pool(one=unsure, two=unsure, three=unsure))).reason is Reason.UNCERTAIN


def test_what_every_gate_settles_is_not_asked() -> None:
    """And reads as a gate's verdict."""
    found = heard(jury(), [], replace(SAMPLE, response=""))
    assert found.rounds == ()
    assert (verdict_of(found).how, verdict_of(found).value, len(verdict_of(found).parts)) == ("gate", 0.0, 3)


def samples(count: int) -> list[Sample]:
    return [Sample(prompt=f"p{number}", response="r", id=str(number)) for number in range(count)]


def drawn(judge: Judge, sample: Sample) -> str:
    """The endpoint of the member that is asked."""
    found = heard(judge, by_pool(one=valued(0.1), two=valued(0.1), three=valued(0.1)), sample)
    [[pool]] = pools(found)
    [part] = verdict_of(found).parts
    assert part.name == pool
    return pool


def test_one_member_is_drawn_for_each_prompt() -> None:
    """Each about as often, one question for each sample, its own uncertainty kept."""
    judge = jury(ask="one")
    counts = Counter(drawn(judge, sample) for sample in samples(300))
    assert all(70 <= counts[name] <= 130 for name in ("one", "two", "three"))
    verdict = verdict_of(heard(judge, lambda ask: valued(0.7, 0.3)))
    assert (verdict.value, verdict.uncertainty, verdict.how) == (0.7, 0.3, "jury")


def test_the_same_prompt_meets_the_same_member_whoever_asks() -> None:
    """Siblings, another process with another secret, another id or step; another prompt may meet another one."""
    one, other = jury(ask="one"), built({**JURY, "ask": "one"}, *MEMBERS, secret=SECRET[::-1])
    for sample in samples(30):
        assert drawn(one, sample) == drawn(other, replace(sample, response="s", id="x", step=7, group="h"))


def test_a_drawn_member_without_a_verdict_is_not_replaced() -> None:
    """Otherwise a sample could choose its judge by breaking one."""
    missing = missing_of(heard(jury(ask="one"), lambda ask: BROKEN))
    assert missing.reason is Reason.NO_VERDICT
    assert len(missing.parts) == 1


GROUP = [replace(SAMPLE, response=f"It is {number}.", id=str(number)) for number in range(4)]


def group_jury(**more: object) -> Judge:
    judges = member("one", kind="pairwise", schedule="all", both_orders=False), member("two")
    return built({"name": "panel", "kind": "jury", "members": ["one", "two"], **more}, *judges)


def test_with_a_member_that_compares_all_are_given_the_group() -> None:
    """Judges of single samples are asked about each by itself."""
    judge = group_jury()
    assert judge.unit == "group"
    found = heard(judge, by_pool(one=valued(0.5), two=valued(0.2)), *GROUP)
    assert Counter(pools(found)[0]) == {"one": 6, "two": 4}
    for verdict in found.verdicts:
        assert isinstance(verdict, Verdict)
        assert verdict.value == pytest.approx(0.35)
        assert [part.name for part in verdict.parts] == ["one", "two"]
    assert getattr(judge, "calls")(4) == 10  # noqa: B009  no part of the protocol


def test_one_member_is_drawn_for_a_whole_group() -> None:
    """In whatever order its samples come."""
    judge = group_jury(ask="one")
    said = by_pool(one=valued(0.5), two=valued(0.2))
    first, turned = heard(judge, said, *GROUP), heard(judge, said, *GROUP[::-1])
    assert len(set(pools(first)[0])) == 1
    assert set(pools(first)[0]) == set(pools(turned)[0])


def test_a_jury_of_rubrics_keeps_what_each_says_of_its_criteria() -> None:
    """Rows hold parts within parts."""
    criterion = [{"text": "It is short.", "name": "short"}]
    judge = built(
        {"name": "panel", "kind": "jury", "members": ["one", "two"]},
        member("one", kind="rubric", criterion=criterion),
        member("two", kind="rubric", criterion=criterion),
    )
    reply = Reply(text='{"c1": {"reason": "so", "verdict": "yes"}}', finish="stop")
    found = heard(judge, lambda ask: ask.read(ask, reply))
    row = verdict_of(found).parts[1].row()
    assert (row["name"], row["value"]) == ("two", 1.0)
    assert [(part["name"], part["verdict"]) for part in row["parts"]] == [("short", "yes")]
