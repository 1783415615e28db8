"""A group's rewards: the sum of the terms, the median over all members, no number from nothing."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from referee.config import Config, load
from referee.records import Reason, Reward, Sample, Settled, Unscored, Verdict
from referee.shaping import needs_group, shape_group, whole

MISSING = Settled(verdict=Unscored(reason=Reason.TIMEOUT))


def judged(score: float) -> Settled:
    """A verdict on the scale 1 to 10."""
    return Settled(verdict=Verdict(score=score, value=(score - 1) / 9), origin="call")


def config(**sections: Any) -> Config:
    return load(sections)


def group(*ends: Settled, lengths: list[int | None] | None = None, rules: list[float] | None = None) -> list[Any]:
    lengths = lengths or [100] * len(ends)
    rules = rules or [0.0] * len(ends)
    return [
        (
            10 + n,
            Sample(prompt="p", response="one two three", id=f"s{n}", group="g", rule_score=rule, length=length),
            (end,),
        )
        for n, (end, length, rule) in enumerate(zip(ends, lengths, rules, strict=True))
    ]


def values(rewards: list[Reward]) -> list[float | None]:
    return [reward.value for reward in rewards]


def test_the_default_reward_is_rule_plus_judge_in_unit_scale() -> None:
    """A ten is worth 1, a one is worth 0, on top of the rule's score."""
    rewards = shape_group(group(judged(10), judged(1), judged(5.5), rules=[0.0, 2.0, -1.0]), config())
    assert values(rewards) == [1.0, 2.0, -0.5]
    assert [reward.judge for reward in rewards] == [1.0, 0.0, 0.5]


def test_the_documents_sum() -> None:
    """compute_score + reward_coefficient * judge_score - penalty_scale * penalty, native scale, as they write it."""
    settings_ = config(
        shaping={
            "coefficient": 0.1,
            "scale": "native",
            "length": {"enable": True, "penalty_scale": 0.5, "max_penalty": 1.0},
        }
    )
    rewards = shape_group(
        group(judged(8), judged(6), judged(9), lengths=[100, 140, 50], rules=[1.0, 1.0, 0.0]), settings_
    )
    assert values(rewards) == pytest.approx([1.0 + 0.8, 1.0 + 0.6 - 0.5 * 0.5, 0.0 + 0.9 - 0.5])
    assert [reward.penalty for reward in rewards] == pytest.approx([0.0, 0.25, 0.5])
    assert [reward.median_length for reward in rewards] == [100.0] * 3
    assert [reward.length for reward in rewards] == [100, 140, 50]


def test_a_reward_carries_its_sample() -> None:
    """Index, id, group and verdict come back, in the order given."""
    members = group(judged(5), MISSING)
    rewards = shape_group(members, config())
    assert [(reward.index, reward.id, reward.group) for reward in rewards] == [(10, "s0", "g"), (11, "s1", "g")]
    assert [reward.settled for reward in rewards] == [members[0][2][0], MISSING]
    assert [reward.scored for reward in rewards] == [True, False]


def test_the_median_counts_unscored_members() -> None:
    """An unscored response still counts in the group's median, and its penalty is recorded."""
    settings_ = config(shaping={"length": {"enable": True}})
    rewards = shape_group(group(judged(10), MISSING, MISSING, lengths=[10, 100, 100]), settings_)
    assert [reward.median_length for reward in rewards] == [100.0] * 3
    assert values(rewards) == [0.0, None, None]
    assert shape_group(group(judged(10), lengths=[10]), settings_)[0].value == 1.0


def test_without_the_penalty_lengths_are_recorded_and_change_nothing() -> None:
    """Length stays visible for the report; the median, which may not be known yet, is 0."""
    rewards = shape_group(group(judged(10), judged(10), lengths=[7, None]), config())
    assert [reward.length for reward in rewards] == [7, 3]
    assert [(reward.value, reward.penalty, reward.median_length) for reward in rewards] == [(1.0, 0.0, 0.0)] * 2


def test_lengths_of_a_mixed_group_are_all_counted() -> None:
    """Should a mixed group get this far, tokens and words are not compared: all are counted from the text."""
    rewards = shape_group(
        group(judged(10), judged(10), lengths=[5000, None]), config(shaping={"length": {"enable": True}})
    )
    assert [reward.length for reward in rewards] == [3, 3]
    assert values(rewards) == [1.0, 1.0]


def test_an_empty_answer_group_has_no_penalty() -> None:
    """A median of zero penalises no response."""
    settings_ = config(shaping={"length": {"enable": True}})
    assert values(shape_group(group(judged(1), judged(1), lengths=[0, 0]), settings_)) == [0.0, 0.0]


def test_an_empty_group_is_no_rewards() -> None:
    """Nothing in, nothing out."""
    assert shape_group([], config(shaping={"length": {"enable": True}}, missing={"policy": "group_mean"})) == []


@pytest.mark.parametrize("rule", [math.nan, math.inf, -math.inf, 1e39, -1e308])
@pytest.mark.parametrize(
    ("missing", "expected"),
    [({}, None), ({"policy": "group_mean"}, 1.0), ({"policy": "value", "value": 0.25}, 0.25)],
)
def test_a_sum_that_is_no_number_is_no_reward(rule: float, missing: dict[str, Any], expected: float | None) -> None:
    """NaN, infinity and what 32 bits cannot hold never leave; the missing policy applies."""
    rewards = shape_group(group(judged(10), judged(10), rules=[rule, 0.0]), config(missing=missing))
    assert values(rewards) == [expected, 1.0]


@pytest.mark.parametrize(
    ("sections", "expected"),
    [
        ({}, False),
        ({"missing": {"policy": "value", "value": 0.0}}, False),
        ({"missing": {"policy": "raise"}}, False),
        ({"missing": {"policy": "group_mean"}}, True),
        ({"shaping": {"length": {"enable": True}}}, True),
    ],
)
def test_only_siblings_make_a_reward_wait(sections: dict[str, Any], expected: bool) -> None:
    """The whole group is needed for the median length and for the group mean, and for nothing else."""
    assert needs_group(config(**sections)) is expected


ENDS = st.one_of(st.integers(1, 10).map(judged), st.just(MISSING))
MEMBERS = st.lists(st.tuples(ENDS, st.integers(0, 5000), st.floats(-10, 10)), min_size=1, max_size=8)
POLICIES = st.sampled_from(
    [{"policy": "abstain"}, {"policy": "raise"}, {"policy": "group_mean"}, {"policy": "value", "value": -1.0}]
)


@given(members=MEMBERS, policy=POLICIES, enable=st.booleans(), scale=st.sampled_from(["unit", "native"]))
@settings(deadline=None, max_examples=200)
def test_every_number_has_its_reason(members: list[Any], policy: dict[str, Any], enable: bool, scale: str) -> None:
    """A scored reward is the sum of its terms; an unscored one has no judge's term, and a value only if filled."""
    settings_ = config(missing=policy, shaping={"scale": scale, "length": {"enable": enable}})
    ends, lengths, rules = zip(*members, strict=True)
    rewards = shape_group(group(*ends, lengths=list(lengths), rules=list(rules)), settings_)
    assert len(rewards) == len(members)
    for reward in rewards:
        if reward.scored:
            assert reward.judge is not None
            assert reward.value == reward.rule + reward.judge - reward.penalty
            assert reward.filled == ""
        else:
            assert reward.judge is None
            assert (reward.value is None) == (reward.filled == "")
        assert reward.value is None or math.isfinite(reward.value)


@given(members=MEMBERS, policy=POLICIES)
@settings(deadline=None, max_examples=100)
def test_alone_or_together_is_the_same_when_siblings_do_not_matter(members: list[Any], policy: dict[str, Any]) -> None:
    """Where no group is needed, shaping samples one by one gives what shaping them together gives."""
    settings_ = config(missing=policy)
    if not needs_group(settings_):
        ends, lengths, rules = zip(*members, strict=True)
        together = group(*ends, lengths=list(lengths), rules=list(rules))
        alone = [shape_group([member], settings_)[0] for member in together]
        assert alone == shape_group(together, settings_)


def test_models_of_several_judges_are_named_once() -> None:
    """In the order of the judges, also where one of them is a jury that asked the same model."""
    judges = load({"judge": [{"name": "a", "weight": 0.5}, {"name": "b", "weight": 0.5}]}).judge
    verdict = Verdict(score=5.0, value=0.5)
    ends = [Settled(verdict=verdict, model=model, endpoint=model) for model in ("small", "large, small")]
    found = whole(ends, judges)
    assert (found.model, found.endpoint) == ("small, large", "small, large")
