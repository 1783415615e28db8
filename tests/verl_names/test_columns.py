"""The columns beside a reward that verl logs."""

from __future__ import annotations

import math

from referee.config import load
from referee.records import Reason, Sample, Settled, Unscored, Verdict
from referee.shaping import shape_group
from referee.trainers.verl.columns import KEYS, columns_of

SAID = Settled(verdict=Verdict(score=7.0, value=0.7), origin="call")
MISSING = Settled(verdict=Unscored(reason=Reason.TIMEOUT))
ENDPOINT = {"url": "http://a.test/v1", "model": "m", "key_env": ""}


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
