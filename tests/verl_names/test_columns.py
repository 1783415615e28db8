"""The columns beside a reward that verl logs."""

from __future__ import annotations

import math
from typing import Any

import pytest

from referee.config import MissingConfig, load
from referee.records import Part, Reason, Reward, Sample, Settled, Unscored, Verdict
from referee.shaping import shape_group
from referee.trainers.verl.columns import KEYS, MIDDLE, columns_of, terms_filled, terms_given

SAID = Settled(verdict=Verdict(score=7.0, value=0.7), origin="call")
MISSING = Settled(verdict=Unscored(reason=Reason.TIMEOUT))
ENDPOINT = {"url": "http://a.test/v1", "model": "m", "key_env": ""}


def shaped(*ends: Settled, **judge: Any) -> Reward:
    """The reward of one sample that these judges ended like this with."""
    names = ("quality", "safe", "watched")[: len(ends)]
    judges = [{"name": name, "weight": float(name != "watched"), **judge} for name in names]
    (reward,) = shape_group(
        [(0, Sample(prompt="p", response="r"), ends)], load({"endpoint": ENDPOINT, "judge": judges})
    )
    return reward


def test_several_judges_have_columns_of_their_own() -> None:
    """A number on every row, also where a judge said nothing; a lone judge has the fixed set alone."""
    judges = [{"name": "quality"}, {"name": "safe", "optional": True}]
    config = load({"endpoint": ENDPOINT, "judge": judges})
    sample = Sample(prompt="p", response="r")
    (reward,) = shape_group([(0, sample, (SAID, MISSING))], config)
    found = columns_of(reward, 0.7)
    assert set(found) == {*KEYS, "judge_quality", "judge_quality_scored", "judge_safe", "judge_safe_scored"}
    assert (found["judge_quality"], found["judge_quality_scored"], found["judge_safe_scored"]) == (0.7, 1.0, 0.0)
    assert math.isnan(found["judge_safe"])
    (alone,) = shape_group([(0, sample, (SAID,))], load({"endpoint": ENDPOINT}))
    assert set(columns_of(alone, 0.7)) == set(KEYS)


@pytest.mark.parametrize(
    ("missing", "siblings", "number"),
    [
        (MissingConfig(), [0.2, 0.4], 0.3),
        (MissingConfig(policy="group_mean"), [0.2, None, 0.4], 0.3),
        (MissingConfig(policy="group_mean"), [None], MIDDLE),
        (MissingConfig(policy="value", value=-1.0), [0.2, 0.4], -1.0),
    ],
)
def test_a_term_without_a_verdict_is_a_number(
    missing: MissingConfig, siblings: list[float | None], number: float
) -> None:
    """As the policy says: the siblings' mean or the value, never a 0 by default; the _scored column tells it apart."""
    reward = shaped(SAID, MISSING, MISSING, optional=True)
    given = terms_given(reward)
    assert given == {"quality": 0.7, "safe": None}, "a watched judge is no term"
    found = columns_of(reward, 0.7, terms_filled(given, [{"safe": one} for one in siblings], missing))
    assert (found["judge_quality"], found["judge_safe"]) == pytest.approx((0.7, number))
    assert found["judge_safe_scored"] == 0.0
    assert math.isnan(found["judge_watched"])


def test_a_rubric_has_two_columns() -> None:
    """How many of the criteria speak for the response, and how many have no verdict; the same keys without any."""
    said = Verdict(score=1.0, value=1.0)
    parts = (
        Part(name="a", verdict=said),
        Part(name="fault", verdict=said, good=False),
        Part(name="b", verdict=Unscored(reason=Reason.NO_VERDICT)),
        Part(name="not applicable", verdict=Unscored(reason=Reason.NO_VERDICT), weight=0.0),
    )
    rubric = Settled(verdict=Verdict(score=0.5, value=0.5, how="rubric", parts=parts), origin="call")
    found = columns_of(shaped(rubric), 0.5, rubric=True)
    assert (found["rubric_met"], found["rubric_missing"]) == (0.5, 1.0)
    without = columns_of(shaped(MISSING), 0.5, rubric=True)
    assert set(without) == set(found) == {*KEYS, "rubric_met", "rubric_missing"}
    assert math.isnan(without["rubric_met"])
