"""Batches: groups complete before they are shaped, order is the caller's, bad samples are refused by name."""

from __future__ import annotations

import json
import math
from fractions import Fraction
from typing import Any

import pytest

from referee.config import Config, load
from referee.errors import InputError, RefereeError, UnscoredError
from referee.records import Reason, Reward, Sample, Settled, Unscored, Verdict
from referee.scoring.batch import Batch, checked

SCORED = Settled(verdict=Verdict(score=10.0, value=1.0), origin="call")
MISSING = Settled(verdict=Unscored(reason=Reason.TIMEOUT, detail="slow"), origin="call")


class Sink:
    """Collects what a batch delivers."""

    def __init__(self) -> None:
        self.rewards: list[Reward] = []
        self.error: RefereeError | None = None
        self.done = False

    def __call__(self, rewards: list[Reward], error: RefereeError | None, done: bool) -> None:
        self.rewards += rewards
        self.error, self.done = error, done


def sample(**fields: Any) -> Sample:
    return Sample(**{"prompt": "p", "response": "r", **fields})


def make(samples: list[Sample], config: Config | None = None) -> tuple[Batch, Sink]:
    sink = Sink()
    return Batch("b", samples, config or Config(), 300.0, sink), sink


def land(batch: Batch, index: int, settled: Settled) -> list[Reward]:
    rewards = batch.land(index, (settled,))
    batch.hand_over(rewards)
    return rewards


def test_without_group_terms_each_reward_is_final_at_once() -> None:
    """Nothing waits for siblings when nothing depends on them."""
    batch, sink = make([sample(group="g"), sample(group="g")])
    assert [r.index for r in land(batch, 1, SCORED)] == [1]
    assert not sink.done
    land(batch, 0, SCORED)
    assert sink.done
    assert [r.index for r in sink.rewards] == [1, 0]


def test_a_group_is_shaped_when_its_last_member_lands() -> None:
    """Only the arithmetic waits for siblings, and other groups do not wait at all."""
    config = load({"shaping": {"length": {"enable": True}}})
    samples = [sample(group="a", length=10), sample(group="b", length=10), sample(group="a", length=30)]
    batch, _ = make(samples, config)
    assert land(batch, 0, SCORED) == []
    assert [r.index for r in land(batch, 1, SCORED)] == [1]
    rewards = land(batch, 2, SCORED)
    assert sorted(r.index for r in rewards) == [0, 2]
    assert {r.median_length for r in rewards} == {20.0}


def test_samples_without_a_group_are_groups_of_their_own() -> None:
    """An empty group name joins nobody."""
    config = load({"missing": {"policy": "group_mean"}})
    batch, sink = make([sample(), sample()], config)
    land(batch, 0, SCORED)
    land(batch, 1, MISSING)
    assert [r.value for r in sink.rewards] == [1.0, None]


def test_a_sample_ends_once() -> None:
    """A second end for the same sample changes nothing."""
    batch, sink = make([sample(), sample()])
    land(batch, 0, SCORED)
    assert land(batch, 0, MISSING) == []
    assert sink.rewards[0].value == 1.0
    assert batch.pending() == [1]


def test_policy_raise_gives_an_error_with_the_end() -> None:
    """With policy = raise the batch ends in an error that names the sample and why."""
    batch, sink = make([sample(), sample()], load({"missing": {"policy": "raise"}}))
    land(batch, 1, MISSING)
    assert sink.error is None or not sink.done
    land(batch, 0, SCORED)
    assert isinstance(sink.error, UnscoredError)
    assert "sample 1" in str(sink.error)
    assert "timeout" in str(sink.error)


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"prompt": None}, "prompt"),
        ({"response": 5}, "response"),
        ({"reference": 3}, "reference"),
        ({"rule_score": math.nan}, "rule_score"),
        ({"rule_score": math.inf}, "rule_score"),
        ({"rule_score": True}, "rule_score"),
        ({"rule_score": "1"}, "rule_score"),
        ({"length": -1}, "length"),
        ({"length": 2.5}, "length"),
        ({"length": 2**63}, "length"),
        ({"rule_score": 10**400}, "rule_score"),
        ({"truncated": "no"}, "truncated"),
        ({"step": "7"}, "step"),
        ({"step": 1.5}, "step"),
        ({"step": True}, "step"),
        ({"step": 2**63}, "step"),
    ],
)
def test_unusable_samples_are_named_before_anything_is_spent(fields: dict[str, Any], field: str) -> None:
    """The error says which sample and which field."""
    with pytest.raises(InputError) as caught:
        make([sample(), sample(**fields)])
    assert "sample 1" in str(caught.value)
    assert caught.value.field == field


class Text(str):
    """As numpy.str_: a text, and none that an encoder takes."""

    def __str__(self) -> str:
        return "something else"


class Real(float):
    """As numpy.float64."""


class Whole(int):
    """As some enumerations."""


def test_samples_are_made_of_pythons_own_types() -> None:
    """Children of them arrive as what they stand for; what is plain already is not copied."""
    plain = sample()
    odd = sample(
        prompt=Text("p"), response=Text("r"), id=Text("i"), reference=Text("a"), rule_score=Real(0.5), length=Whole(3)
    )
    batch, _ = make([plain, odd, sample(rule_score=2, step=Whole(-4))])
    assert batch.samples[0] is plain
    first, second = batch.samples[1:]
    assert first == Sample(prompt="p", response="r", id="i", reference="a", rule_score=0.5, length=3, group=odd.group)
    assert {type(getattr(first, field)) for field in first.__struct_fields__} == {
        *(str, float, int, bool, type(None)),
        *(tuple, dict),
    }
    (third,) = make([sample(rule_score=Fraction(1, 4))])[0].samples
    assert (third.rule_score, type(third.rule_score)) == (0.25, float)
    assert (second.rule_score, type(second.rule_score), type(second.step), second.step) == (2.0, float, int, -4)


def test_a_group_with_some_lengths_missing_is_refused() -> None:
    """Counted and given lengths do not mix within one median."""
    config = load({"shaping": {"length": {"enable": True}}})
    with pytest.raises(InputError, match="length"):
        make([sample(group="a", length=10), sample(group="a")], config)


def test_rubrics_of_every_shape_become_criteria() -> None:
    """As in files; those that are read already stay as they are, and a wrong one is refused by its place."""
    given = [{"criterion": "Is kind", "points": 3}, {"description": "Pitfall Criteria: Avoids haste", "weight": -1}]
    batch, _ = make([sample(rubric=given), sample(rubric=json.dumps(given)), sample()])
    first, text, none = [each.rubric for each in batch.samples]
    assert first == text
    assert [(c.name, c.text, c.true_is) for c in first] == [
        ("criterion 1", "Is kind", "good"),
        ("criterion 2", "Avoids haste", "good"),
    ]
    assert none == ()
    assert checked(batch.samples) == batch.samples
    assert checked([sample(rubric=given)], polarity="by_sign")[0].rubric[1].true_is == "bad"
    with pytest.raises(InputError, match=r"sample 1: rubric\[0\]\.points: must be a number"):
        make([sample(), sample(rubric=[{"criterion": "c", "points": "x"}])])
