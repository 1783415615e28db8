"""Batches: groups complete before they are shaped, order is the caller's, bad samples are refused by name."""

from __future__ import annotations

import math
from typing import Any

import pytest

from referee.batch import Batch
from referee.config import Config, load
from referee.errors import InputError, RefereeError, UnscoredError
from referee.records import Reason, Reward, Sample, Settled, Unscored, Verdict

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
    rewards = batch.land(index, settled)
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
        ({"truncated": "no"}, "truncated"),
    ],
)
def test_unusable_samples_are_named_before_anything_is_spent(fields: dict[str, Any], field: str) -> None:
    """The error says which sample and which field."""
    with pytest.raises(InputError) as caught:
        make([sample(), sample(**fields)])
    assert "sample 1" in str(caught.value)
    assert caught.value.field == field


def test_a_group_with_some_lengths_missing_is_refused() -> None:
    """Counted and given lengths do not mix within one median."""
    config = load({"shaping": {"length": {"enable": True}}})
    with pytest.raises(InputError, match="length"):
        make([sample(group="a", length=10), sample(group="a")], config)
