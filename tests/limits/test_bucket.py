"""Requests and tokens per minute: never above the limit, never stuck."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from referee.limits import Bucket
from referee.limits.bucket import ARRIVAL_JITTER_S


def drain(bucket: Bucket, amounts: list[float], now: float = 0.0) -> list[tuple[float, float]]:
    """Send all as soon as allowed: (time, amount)."""
    taken = []
    for amount in amounts:
        waits = 0
        while (wait := bucket.wait(amount, now)) > 0:
            assert now + wait > now, "a wait the clock cannot show"
            now += wait
            waits += 1
            assert waits < 5, "waiting does not end"
        bucket.take(amount, now)
        taken.append((now, amount))
    return taken


def worst(taken: list[tuple[float, float]], seconds: float) -> float:
    """Most that was sent in any window of that length."""
    most = total = 0.0
    first = 0
    for time, amount in taken:
        total += amount
        while taken[first][0] <= time - seconds:
            total -= taken[first][1]
            first += 1
        most = max(most, total)
    return most


def test_without_a_limit_nothing_waits() -> None:
    """No limit configured: no rate, no debt."""
    bucket = Bucket(None)
    bucket.take(1e9, 0.0)
    bucket.settle(0, 1e9, 0.0)
    assert bucket.wait(1e9, 0.0) == 0.0


@pytest.mark.parametrize("per_minute", [1, 3, 20, 60, 600, 5000])
def test_no_minute_passes_the_limit(per_minute: int) -> None:
    """Requests sent as fast as allowed: every minute holds at most the limit, and nearly that many."""
    taken = drain(Bucket(per_minute), [1.0] * (3 * per_minute))
    assert worst(taken, 60.0 - 1e-3) <= per_minute + 1e-6
    assert taken[-1][0] <= 3 * 60 * 1.04


@given(st.integers(1, 2000), st.floats(0.0, ARRIVAL_JITTER_S), st.integers(0, 2**32))
@settings(max_examples=30, deadline=None)
def test_no_minute_of_the_servers_passes_the_limit(per_minute: int, spread: float, seed: int) -> None:
    """Requests that take up to a second longer than others to arrive: no sixty seconds hold more than the limit."""
    rng = random.Random(seed)
    left = drain(Bucket(per_minute), [1.0] * (per_minute + 200))
    arrived = sorted((at + rng.choice([0.0, spread, rng.random() * spread]), 1.0) for at, _ in left)
    assert worst(arrived, 60.0) <= per_minute


@pytest.mark.parametrize("seconds", [1.0, 10.0])
def test_sends_are_spread_within_the_minute(seconds: float) -> None:
    """Providers that count per second or per ten seconds see at most one second's worth above the average rate."""
    taken = drain(Bucket(600), [1.0] * 1200)
    assert worst(taken, seconds) <= 600 / 60 * (seconds + 1) + 1


def test_refund_lets_the_next_go_sooner() -> None:
    """An estimate of 3000 tokens that came to 800 gives 2200 back."""
    one, other = Bucket(30_000), Bucket(30_000)
    for bucket in (one, other):
        bucket.take(3000, 0.0)
    one.settle(3000, 800, 2.0)
    assert one.wait(3000, 2.0) < other.wait(3000, 2.0)


def test_refund_never_passes_the_burst() -> None:
    """A refund does not allow a larger burst."""
    bucket = Bucket(60)
    bucket.settle(1e9, 0, 0.0)
    taken = drain(bucket, [1.0] * 120)
    assert worst(taken, 60.0 - 1e-3) <= 60


def test_an_estimate_that_was_too_low_is_debt() -> None:
    """What was used above the estimate is waited for."""
    bucket = Bucket(6000)
    bucket.take(50, 0.0)
    bucket.settle(50, 1050, 0.0)
    assert bucket.wait(50, 0.0) == pytest.approx(10.0, rel=0.05)


def test_an_amount_larger_than_a_minute_still_passes() -> None:
    """A request of twice the limit passes a full bucket; the next ones pay the debt."""
    bucket = Bucket(1000)
    assert bucket.wait(2000, 0.0) == 0.0
    bucket.take(2000, 0.0)
    assert 110 < bucket.wait(10, 0.0) < 130


def test_nothing_remaining_waits_for_the_reset() -> None:
    """remaining = 0 blocks until the server's reset, limit configured or not."""
    for bucket in (Bucket(None), Bucket(600)):
        bucket.observe(600, 0, 7.5, 100.0)
        assert bucket.wait(1, 100.0) == 7.5
        assert bucket.wait(1, 107.5) == 0.0


def test_junk_resets_are_bounded() -> None:
    """A reset of a day, none, or junk does not stop the work for long."""
    bucket = Bucket(None)
    bucket.observe(None, 0, 86_400.0, 0.0)
    assert bucket.wait(1, 0.0) == 60.0
    for reset in (None, -5.0, 0.0, math.nan):
        other = Bucket(None)
        other.observe(None, 0, reset, 0.0)
        assert other.wait(1, 0.0) == 0.0


def test_late_headers_do_not_lift_a_block() -> None:
    """Headers come out of order: an older one with plenty remaining changes nothing."""
    bucket = Bucket(600)
    bucket.observe(600, 0, 10.0, 0.0)
    bucket.observe(600, 599, 0.1, 0.5)
    bucket.observe(600, 0, 1.0, 0.6)
    assert bucket.wait(1, 1.0) == 9.0


def test_a_lower_server_limit_is_adopted_and_a_higher_one_is_not() -> None:
    """The server may slow us down below the configured rate, and back up to it, never beyond."""
    bucket = Bucket(600)
    for limit, expected in ((300, 300), (100_000, 600), (0, 600), (-1, 600), (400, 400)):
        bucket.observe(limit, 50, 1.0, 0.0)
        assert bucket.per_minute == expected
    taken = drain(bucket, [1.0] * 500)
    assert worst(taken, 60.0 - 1e-3) <= 400


def test_a_clock_that_steps_back_refills_nothing() -> None:
    """An earlier `now` breaks nothing either."""
    bucket = Bucket(60)
    bucket.take(1, 100.0)
    assert bucket.wait(1, 50.0) > 0
    bucket.take(1, 50.0)
    assert bucket.wait(1, 100.0) > 1.0


HEADERS = st.tuples(
    st.none() | st.integers(-10, 10_000), st.none() | st.integers(-1, 100), st.none() | st.floats(-1.0, 100.0)
)


@settings(max_examples=100, deadline=None)
@given(
    per_minute=st.floats(1.0, 1e7),
    amounts=st.lists(st.floats(0.001, 1e5), min_size=1, max_size=40),
    start=st.floats(0.0, 1e7),
    window=st.floats(0.1, 120.0),
)
def test_in_every_window_at_most_burst_plus_rate(
    per_minute: float, amounts: list[float], start: float, window: float
) -> None:
    """Any window holds at most a burst (or one large amount) plus rate times length; and everything is sent."""
    taken = drain(Bucket(per_minute), amounts, start)
    burst = max(1.0, per_minute / 60, max(amounts))
    bound = burst + per_minute / 60 * window
    slack = per_minute / 60 * 1e-4 + 1e-4 * burst
    assert worst(taken, window) <= bound + slack


@settings(max_examples=100, deadline=None)
@given(
    per_minute=st.none() | st.floats(1.0, 1e6),
    steps=st.lists(
        st.tuples(st.floats(0.01, 1e4), st.floats(0.0, 2e4), st.floats(0.0, 30.0), HEADERS), min_size=1, max_size=30
    ),
)
def test_estimates_and_headers_never_lock_it(
    per_minute: float | None,
    steps: list[tuple[float, float, float, tuple[int | None, int | None, float | None]]],
) -> None:
    """With estimates wrong both ways and headers of any content, every amount passes after a finite wait."""
    bucket, now = Bucket(per_minute), 0.0
    for estimated, actual, seconds, (limit, remaining, reset) in steps:
        ((now, _),) = drain(bucket, [estimated], now)
        now += seconds
        bucket.settle(estimated, actual, now)
        bucket.observe(limit, remaining, reset, now)
        assert bucket.per_minute is None or per_minute is None or bucket.per_minute <= per_minute
        assert math.isfinite(bucket.wait(estimated, now))
    assert "Bucket(" in repr(bucket)


def test_the_burst_is_one_seconds_worth() -> None:
    """At 600 per minute ten go at once; the eleventh waits."""
    bucket = Bucket(600)
    for _ in range(10):
        assert bucket.wait(1, 0.0) == 0.0
        bucket.take(1, 0.0)
    assert bucket.wait(1, 0.0) > 0.0


@pytest.mark.parametrize("per_minute", [60, 600, 6000])
def test_a_minutes_worth_is_sent_in_a_minute(per_minute: int) -> None:
    """Nothing is lost but the margin for arrival jitter."""
    bucket, now = Bucket(per_minute), 0.0
    for _ in range(per_minute):
        now += bucket.wait(1, now)
        bucket.take(1, now)
    assert now <= 60.0 + ARRIVAL_JITTER_S


def test_a_rounding_error_is_no_shortage() -> None:
    """A millionth of the amount; a little more is a wait."""
    large, small = Bucket(60e6), Bucket(60)
    rate, second = (60e6 - 1e6 + 1) / (60 + ARRIVAL_JITTER_S), (60 + ARRIVAL_JITTER_S) / 60
    large.take(1e6, 0.0)
    assert large.wait(1e6, (1e6 - 0.5) / rate) == 0.0
    assert large.wait(1e6, (1e6 - 1.5) / rate) > 0.0
    small.take(1, 0.0)
    assert small.wait(1, second - 0.5e-6) == 0.0
    assert small.wait(1, second - 1.5e-6) > 0.0


@pytest.mark.parametrize(("limit", "adopted"), [(1, 1), (0.5, 0.5), (0, 60), (-1, 60), (59, 59), (61, 60), (None, 60)])
def test_a_servers_limit_is_adopted_if_positive_and_lower(limit: float | None, adopted: float) -> None:
    """One request per minute is a limit; zero is a broken header."""
    bucket = Bucket(60)
    bucket.observe(limit, None, None, 0.0)
    assert bucket.per_minute == adopted


def test_a_lower_limit_keeps_the_debt() -> None:
    """What was used before stays used."""
    bucket = Bucket(600)
    bucket.take(10, 0.0)
    bucket.observe(300, None, None, 0.0)
    assert bucket.wait(1, 0.0) == pytest.approx((60 + ARRIVAL_JITTER_S) / (300 - 5 + 1))


@pytest.mark.parametrize(
    ("remaining", "reset", "wait"),
    [(0, 30, 30), (0, 0.5, 0.5), (0, 0, 0), (1, 30, 0), (0.5, 30, 0), (-1, 30, 30), (0, None, 0), (None, 30, 0)],
)
def test_only_an_exhausted_quota_blocks(remaining: float | None, reset: float | None, wait: float) -> None:
    """With one left one may go; a reset within a second is waited for too."""
    bucket = Bucket(600)
    bucket.observe(None, remaining, reset, 100.0)
    assert bucket.wait(1, 100.0) == pytest.approx(wait)
