"""What an unscored sample becomes, and when there are too many."""

from __future__ import annotations

import pickle
import statistics
from collections import deque
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from referee.config import MissingConfig
from referee.errors import TooManyUnscored
from referee.records import Part, Reason, Reward, Settled, Unscored, Verdict
from referee.shaping import UnscoredWatch, fill

GOOD = Verdict(score=5, value=0.5)


def rewards(*values: float | None) -> list[Reward]:
    return [
        Reward(index=n, id=str(n), group="g", value=value, settled=Settled(verdict=GOOD))
        for n, value in enumerate(values)
    ]


def filled(config: MissingConfig, *values: float | None) -> list[tuple[float | None, str]]:
    return [(reward.value, reward.filled) for reward in fill(rewards(*values), config)]


@pytest.mark.parametrize("policy", ["abstain", "raise"])
def test_no_policy_that_names_no_number_makes_one(policy: Any) -> None:
    """abstain and raise leave the reward out."""
    assert filled(MissingConfig(policy=policy), 1.0, None) == [(1.0, ""), (None, "")]


def test_an_explicit_value_is_used_as_it_is() -> None:
    """The number the user wrote is the reward, marked as such."""
    assert filled(MissingConfig(policy="value", value=-0.5), 1.0, None) == [(1.0, ""), (-0.5, "value")]
    assert filled(MissingConfig(policy="value", value=0.0), None) == [(0.0, "value")]


def test_the_group_mean_is_of_the_siblings_rewards() -> None:
    """A missing reward becomes the mean of the others, marked as such."""
    config = MissingConfig(policy="group_mean")
    assert filled(config, 1.0, None, 0.0, None) == [(1.0, ""), (0.5, "group_mean"), (0.0, ""), (0.5, "group_mean")]


def test_no_sibling_no_mean() -> None:
    """A group without any score stays without rewards."""
    assert filled(MissingConfig(policy="group_mean"), None, None) == [(None, ""), (None, "")]


@given(values=st.lists(st.floats(-1e38, 1e38), min_size=1, max_size=16), gaps=st.integers(1, 4))
@settings(deadline=None, max_examples=150)
def test_a_filled_mean_moves_no_baseline(values: list[float], gaps: int) -> None:
    """The mean of the group with the filled rewards is the mean without them, so their advantage is 0."""
    done = fill(rewards(*values, *[None] * gaps), MissingConfig(policy="group_mean"))
    everyone = [reward.value for reward in done if reward.value is not None]
    scale = max(abs(value) for value in values)
    assert statistics.fmean(everyone) == pytest.approx(statistics.fmean(values), rel=1e-9, abs=1e-9 * scale)
    assert min(values) <= everyone[-1] <= max(values)


@given(value=st.floats(-1e38, 1e38), count=st.integers(1, 50))
@settings(deadline=None, max_examples=150)
def test_equal_rewards_stay_equal(value: float, count: int) -> None:
    """The mean of equal rewards is exactly that reward: no spread out of rounding."""
    assert fill(rewards(*[value] * count, None), MissingConfig(policy="group_mean"))[-1].value == value


def lost(reason: Reason = Reason.TIMEOUT, detail: str = "") -> Unscored:
    return Unscored(reason=reason, detail=detail)


def test_the_watch_trips_at_the_first_sample_past_the_share() -> None:
    """Half of 256 is allowed, one more is not, however few were seen before."""
    watch = UnscoredWatch(0.5)
    assert [watch.observe(lost()) for _ in range(128)] == [False] * 128
    assert watch.observe(lost())
    assert watch.tripped


def test_scored_samples_push_old_failures_out() -> None:
    """Only the last 256 count."""
    watch = UnscoredWatch(0.5)
    for _ in range(128):
        watch.observe(lost())
    for _ in range(256):
        watch.observe(GOOD)
    assert watch.counts() == {}
    assert [watch.observe(lost()) for _ in range(128)] == [False] * 128


def test_one_turns_it_off() -> None:
    """With abort_above = 1 nothing trips it."""
    watch = UnscoredWatch(1.0)
    assert not any(watch.observe(lost()) for _ in range(1000))


def test_what_the_caller_cancelled_is_not_counted() -> None:
    """Cancelling a batch is not a failure, and does not hide failures either."""
    watch = UnscoredWatch(0.5)
    for _ in range(128):
        watch.observe(lost())
    for _ in range(1000):
        assert not watch.observe(lost(Reason.CANCELLED))
    assert watch.counts() == {Reason.TIMEOUT: 128}
    assert watch.observe(lost(Reason.DEADLINE))


def test_what_no_judge_was_asked_about_is_not_counted() -> None:
    """Answers that a gate or `ask_above` settled do not hide that the judge is gone, nor do several judges' gates."""
    gated = Verdict(score=1.0, value=0.0, how="gate")
    both = Verdict(
        score=1.0, value=0.0, how="terms", parts=(Part(name="a", verdict=gated), Part(name="b", verdict=gated))
    )
    half = Verdict(
        score=1.0, value=0.5, how="terms", parts=(Part(name="a", verdict=gated), Part(name="b", verdict=GOOD))
    )
    watch = UnscoredWatch(0.5)
    for _ in range(128):
        assert not any(map(watch.observe, (lost(), gated, both, gated)))
    assert watch.observe(lost())
    for _ in range(256):
        watch.observe(half)
    assert watch.counts() == {}


def test_the_error_says_why_and_what_to_change() -> None:
    """Counts by reason, the last detail of the worst, the setting and its value."""
    watch = UnscoredWatch(0.25, window=8)
    for verdict in (lost(Reason.AUTH, "first"), GOOD, lost(), lost(Reason.AUTH, "key rejected"), lost(Reason.AUTH)):
        watch.observe(verdict)
    assert watch.counts() == {Reason.AUTH: 3, Reason.TIMEOUT: 1}
    error = watch.error(rewards=[1])
    assert isinstance(error, TooManyUnscored)
    for words in ("4 of the last 5", "auth 3, timeout 1", "key rejected", "abort_above = 0.25", "2 in 8"):
        assert words in str(error)
    assert error.rewards == [1]
    assert str(pickle.loads(pickle.dumps(error))) == str(error)
    assert "4 unscored of 5" in repr(watch)


@given(
    ends=st.lists(st.sampled_from([None, Reason.TIMEOUT, Reason.DEADLINE, Reason.CANCELLED]), max_size=60),
    share=st.floats(0.01, 1),
    window=st.integers(1, 20),
)
@settings(deadline=None, max_examples=200)
def test_the_watch_counts_as_a_plain_window_would(ends: list[Reason | None], share: float, window: int) -> None:
    """After every sample the watch agrees with counting the last ones again."""
    watch, recent = UnscoredWatch(share, window), deque[bool](maxlen=window)
    for reason in ends:
        tripped = watch.observe(GOOD if reason is None else lost(reason))
        if reason is not Reason.CANCELLED:
            recent.append(reason is not None)
        assert tripped == (sum(recent) > share * window)
        assert sum(watch.counts().values()) == sum(recent)


def test_the_summary_does_without_words() -> None:
    """Where nothing was said about the most frequent reason, the counts stand alone."""
    watch = UnscoredWatch(0.5)
    for reason in (Reason.TIMEOUT, Reason.EMPTY, Reason.TIMEOUT):
        watch.observe(Unscored(reason=reason))
    assert watch.summary() == "timeout 2, empty 1"
