"""Buckets and delays at their edges: exact bursts, exact minutes, headers with one left, growth of every delay."""

from __future__ import annotations

import pytest

from referee.limits import Bucket, retry_delay
from referee.limits.bucket import ARRIVAL_JITTER_S
from referee.limits.delay import MAX_DELAY_S, OVERLOAD_BASE_S, TRANSIENT_BASE_S
from referee.records import Action, Failure, Reason


def test_a_seconds_worth_goes_at_once_and_no_more() -> None:
    """600 a minute are ten at once; the eleventh waits."""
    bucket = Bucket(600)
    for _ in range(10):
        assert bucket.wait(1, 0.0) == 0.0
        bucket.take(1, 0.0)
    assert bucket.wait(1, 0.0) > 0.0


@pytest.mark.parametrize("per_minute", [60, 600, 6000])
def test_a_minutes_worth_goes_in_a_minute(per_minute: int) -> None:
    """The pace wastes nothing but its margin: the last of the first minute's requests goes within a minute and that."""
    bucket, now = Bucket(per_minute), 0.0
    for _ in range(per_minute):
        now += bucket.wait(1, now)
        bucket.take(1, now)
    assert now <= 60.0 + ARRIVAL_JITTER_S


def test_a_shortage_that_is_rounding_is_none() -> None:
    """A millionth of what is asked for, however much that is; a little more is a wait."""
    large, small = Bucket(60e6), Bucket(60)
    rate, second = (60e6 - 1e6 + 1) / (60 + ARRIVAL_JITTER_S), (60 + ARRIVAL_JITTER_S) / 60
    large.take(1e6, 0.0)
    assert large.wait(1e6, (1e6 - 0.5) / rate) == 0.0
    assert large.wait(1e6, (1e6 - 1.5) / rate) > 0.0
    small.take(1, 0.0)
    assert small.wait(1, second - 0.5e-6) == 0.0
    assert small.wait(1, second - 1.5e-6) > 0.0


@pytest.mark.parametrize(("limit", "adopted"), [(1, 1), (0.5, 0.5), (0, 60), (-1, 60), (59, 59), (61, 60), (None, 60)])
def test_a_servers_limit_counts_if_it_is_one_and_lower(limit: float | None, adopted: float) -> None:
    """One request a minute is a limit; none at all is a broken header."""
    bucket = Bucket(60)
    bucket.observe(limit, None, None, 0.0)
    assert bucket.per_minute == adopted


def test_a_lower_limit_gives_nothing_away() -> None:
    """What was used up before stays used up."""
    bucket = Bucket(600)
    bucket.take(10, 0.0)
    bucket.observe(300, None, None, 0.0)
    assert bucket.wait(1, 0.0) == pytest.approx((60 + ARRIVAL_JITTER_S) / (300 - 5 + 1))


@pytest.mark.parametrize(
    ("remaining", "reset", "wait"),
    [(0, 30, 30), (0, 0.5, 0.5), (0, 0, 0), (1, 30, 0), (0.5, 30, 0), (-1, 30, 30), (0, None, 0), (None, 30, 0)],
)
def test_only_nothing_left_means_waiting(remaining: float | None, reset: float | None, wait: float) -> None:
    """One left is one that may go; a reset within the second is waited for too."""
    bucket = Bucket(600)
    bucket.observe(None, remaining, reset, 100.0)
    assert bucket.wait(1, 100.0) == pytest.approx(wait)


@pytest.mark.parametrize(
    ("action", "base"),
    [(Action.PARK, OVERLOAD_BASE_S), (Action.BACK_OFF, OVERLOAD_BASE_S), (Action.RETRY, TRANSIENT_BASE_S)],
)
def test_every_delay_doubles_to_the_cap(action: Action, base: float) -> None:
    """After zero or one failure the first span, then twice that each time."""
    failed = Failure(reason=Reason.CONNECTION, action=action)
    spans = [retry_delay(failed, faults, 1.0) for faults in (0, 1, 2, 3, 4, 50)]
    assert spans == pytest.approx([base, base, 2 * base, 4 * base, 8 * base, MAX_DELAY_S])


def test_a_fast_server_is_not_stayed_away_from_for_long() -> None:
    """A thousand times its usual answer at most, also after many refusals."""
    failed = Failure(reason=Reason.THROTTLED, action=Action.PARK)
    assert retry_delay(failed, 1, 1.0, latency=0.001) == pytest.approx(0.001)
    assert retry_delay(failed, 50, 1.0, latency=0.001) == pytest.approx(1.024)
