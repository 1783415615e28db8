"""A quota that shows itself only by refusing: learned once, kept to, and looked at again now and then."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.limits.simulated import Quota, lognormal_jobs, run

from referee.limits import AdaptiveLimit, Breaker, FixedLimit, Limit
from referee.limits.learned_rate import LearnedRate


def learned(count: int = 10, closed: float = 5.0, opened: float = 60.0) -> LearnedRate:
    """A rate that sent so many from second 0 on, was refused, and was served again at `opened`."""
    rate = LearnedRate()
    for i in range(count):
        rate.on_send(i * closed / count)
    rate.on_reopen(opened, closed)
    return rate


def burst(rate: LearnedRate, now: float, most: int = 10_000) -> int:
    """Send at that moment as many as may go."""
    sent = 0
    while sent < most and rate.wait(now) == 0.0:
        rate.on_send(now)
        sent += 1
    return sent


def test_nothing_waits_before_a_window_has_closed() -> None:
    """Nothing learned, nothing held back."""
    rate = LearnedRate()
    assert burst(rate, 0.0, 5000) == 5000
    assert rate.wait(1.0) == 0.0


def test_what_went_before_the_refusals_is_what_the_window_holds() -> None:
    """Ten were served and the eleventh was not: ten in a minute, and one look, which is refused."""
    rate = learned(10)
    assert rate.quota == 10
    assert rate.window_s == 60.0
    assert burst(rate, 60.0) == 11
    rate.on_refusal(60.1)
    assert rate.wait(60.2) == pytest.approx(60.0, abs=1.0)
    assert burst(rate, 121.0) == 10


def test_a_window_that_opened_sooner_is_shorter() -> None:
    """Ten in ten seconds, where it opened after ten."""
    assert learned(10, 5.0, 10.0).window_s == pytest.approx(10.0)


def test_a_window_is_never_longer_than_a_minute() -> None:
    """An hour of refusals is no window of an hour: after a minute we ask again."""
    assert learned(10, 5.0, 3600.0).window_s == LearnedRate.MAX_WINDOW_S


def test_a_window_that_was_met_half_way_is_corrected() -> None:
    """First seen from its last third, it looks shorter than it is; the next time it is measured from its start."""
    rate = learned(10, 5.0, 20.0)
    assert burst(rate, 20.0, 10) == 10
    rate.on_reopen(80.0, 40.1)
    assert rate.window_s == 60.0
    assert rate.quota == 10
    rate.on_reopen(90.0, 85.0)
    assert rate.window_s == 60.0


def test_refusals_do_not_count() -> None:
    """What was not taken is not part of what the window holds."""
    rate = LearnedRate()
    for _ in range(12):
        rate.on_send(0.0)
    rate.on_refusal(0.1)
    rate.on_refusal(0.1)
    rate.on_reopen(60.0, 0.1)
    assert rate.quota == 10


def test_a_look_that_is_served_makes_room() -> None:
    """More is served than thought: a little more at first, then twice as much each time."""
    rate, now, budgets = learned(100), 60.0, []
    for _ in range(4):
        burst(rate, now)
        rate.on_ok(now)
        budgets.append(rate.quota)
        now += 1.0
    steps = [LearnedRate.FIRST_INCREASE * 2**i for i in range(4)]
    expected = 100.0
    for step, budget in zip(steps, budgets, strict=True):
        expected = math.ceil(expected * (1 + step))
        assert budget == expected


def test_one_next_probe_a_time() -> None:
    """While a look is out nothing else goes; if it is lost, another goes after a window."""
    rate = learned(10)
    assert burst(rate, 60.0) == 11
    assert burst(rate, 61.0) == 0
    assert burst(rate, 122.0) >= 1


def test_a_look_that_was_refused_is_not_repeated_soon() -> None:
    """Looking costs a refusal: after one, several windows pass without."""
    rate = learned(10)
    burst(rate, 60.0)
    rate.on_refusal(60.1)
    looks, now = 0, 60.1
    for _ in range(2 * LearnedRate.PROBE_HOLD + 1):
        now += 61.0
        sent = burst(rate, now)
        looks += sent > 10
        if sent > 10:
            rate.on_refusal(now + 0.1)
    assert looks == 2


def test_an_answer_to_an_older_request_is_no_look() -> None:
    """Only what was sent as a look says that there is room."""
    rate = learned(10)
    burst(rate, 60.0)
    rate.on_ok(59.0)
    assert rate.quota == 10


def test_a_guess_far_too_low_is_soon_left_behind() -> None:
    """Three were sent, then an outage answered with refusals: a thousand are served within a few round trips."""
    rate, now, sent = learned(3), 60.0, 0
    for _ in range(12):
        sent += burst(rate, now, 1000 - sent)
        rate.on_ok(now)
        now += 2.0
    assert sent == 1000


def test_a_window_that_held_nothing_teaches_nothing() -> None:
    """Refused from the very first request on: there is nothing to learn from."""
    rate = LearnedRate()
    rate.on_reopen(60.0, 0.0)
    assert rate.quota == math.inf


def test_no_look_in_the_middle_of_a_burst() -> None:
    """While room comes back every moment, one more that is served says nothing about the whole window."""
    rate = learned(60, 30.0)
    for i in range(61):
        rate.on_send(60.0 + i / 2)
    rate.on_refusal(90.1)
    rate._next_probe = 0.0
    assert rate.wait(120.3) > 0.0
    assert rate.wait(100.0) == 0.0


def test_its_state_shows() -> None:
    """For logs and debuggers."""
    assert repr(learned(10)) == "LearnedRate(0 of 10 in 60 s)"


@settings(max_examples=60, deadline=None)
@given(
    st.integers(1, 50),
    st.lists(st.tuples(st.floats(0.0, 30.0), st.sampled_from(["send", "ok", "refuse", "open"])), max_size=200),
)
def test_waiting_always_ends(count: int, events: list[tuple[float, str]]) -> None:
    """Whatever happens: no wait is longer than a window and its grain, and something goes after it."""
    rate, now = learned(count), 60.0
    for seconds, event in events:
        now += seconds
        looks = 0
        while (wait := rate.wait(now)) > 0:
            assert wait <= LearnedRate.MAX_WINDOW_S * 1.01
            assert now + wait > now
            now += wait
            looks += 1
            assert looks < 130
        if event == "send":
            rate.on_send(now)
        elif event == "ok":
            rate.on_ok(now)
        elif event == "refuse":
            rate.on_refusal(now)
        else:
            rate.on_reopen(now, now - 1.0)
        assert rate.quota >= 1


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 200), st.lists(st.floats(0.0, 5.0), min_size=1, max_size=300))
def test_no_minute_holds_more_than_the_budget(budget: int, gaps: list[float]) -> None:
    """However requests come, in any sixty seconds go as many as were learned and at most one look."""
    rate, now, sent = learned(budget), 60.0, []
    for gap in gaps:
        now += gap
        if rate.wait(now) == 0.0:
            rate.on_send(now)
            sent.append(now)
    for i, at in enumerate(sent):
        assert sum(at - 60.0 < other <= at for other in sent[: i + 1]) <= budget + 1


@pytest.mark.parametrize("adaptive", [True, False])
@pytest.mark.parametrize(("per_minute", "count"), [(600, 6000), (120, 1500), (60, 600)])
def test_a_quota_without_headers(adaptive: bool, per_minute: int, count: int) -> None:
    """So many per minute and not a word about it: used in full after the first minute, and few are refused."""
    limit: Limit = AdaptiveLimit(512) if adaptive else FixedLimit(60)
    ours = run(limit, Quota(per_minute), lognormal_jobs(count, 1), Breaker())
    minutes = math.ceil(count / per_minute) - 1
    assert ours.makespan < 60 * minutes + 45
    assert ours.refused < 40
