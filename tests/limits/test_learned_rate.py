"""A quota visible only through refusals: learned once, kept to, and probed now and then."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.limits.simulated import Quota, lognormal_jobs, run

from referee.limits import AdaptiveLimit, Breaker, FixedLimit, Limit
from referee.limits.learned_rate import LearnedRate


def learned(count: int = 10, closed: float = 5.0, opened: float = 60.0) -> LearnedRate:
    """A rate with `count` sends from second 0 to `closed`, then refused, and served again at `opened`."""
    rate = LearnedRate()
    for i in range(count):
        rate.on_send(i * closed / count)
    rate.on_reopen(opened, closed)
    return rate


def burst(rate: LearnedRate, now: float, most: int = 10_000) -> int:
    """Send as many as allowed at that moment."""
    sent = 0
    while sent < most and rate.wait(now) == 0.0:
        rate.on_send(now)
        sent += 1
    return sent


def test_nothing_waits_before_a_window_has_closed() -> None:
    """Nothing learned, nothing delayed."""
    rate = LearnedRate()
    assert burst(rate, 0.0, 5000) == 5000
    assert rate.wait(1.0) == 0.0


def test_what_was_served_before_the_refusals_is_the_quota() -> None:
    """Ten were served and the eleventh was not: ten per minute, and one probe, which is refused."""
    rate = learned(10)
    assert rate.quota == 10
    assert rate.window_s == 60.0
    assert burst(rate, 60.0) == 11
    rate.on_refusal(60.1)
    assert rate.wait(60.2) == pytest.approx(60.0, abs=1.0)
    assert burst(rate, 121.0) == 10


def test_a_window_that_reopens_sooner_is_shorter() -> None:
    """Ten per ten seconds, if it reopened after ten."""
    assert learned(10, 5.0, 10.0).window_s == pytest.approx(10.0)


def test_a_window_is_never_longer_than_a_minute() -> None:
    """An hour of refusals is no window of an hour."""
    assert learned(10, 5.0, 3600.0).window_s == LearnedRate.MAX_WINDOW_S


def test_a_window_first_seen_half_way_is_corrected() -> None:
    """First seen from its last third it seems shorter than it is; the next time it is measured from its start."""
    rate = learned(10, 5.0, 20.0)
    assert burst(rate, 20.0, 10) == 10
    rate.on_reopen(80.0, 40.1)
    assert rate.window_s == 60.0
    assert rate.quota == 10


def test_refusals_do_not_count() -> None:
    """A refused request is not part of the quota."""
    rate = LearnedRate()
    for _ in range(12):
        rate.on_send(0.0)
    rate.on_refusal(0.1)
    rate.on_refusal(0.1)
    rate.on_reopen(60.0, 0.1)
    assert rate.quota == 10


def test_an_accepted_probe_raises_the_quota() -> None:
    """By a little at first, then twice as much each time."""
    rate, now, quotas = learned(100), 60.0, []
    for _ in range(4):
        burst(rate, now)
        rate.on_ok(now)
        quotas.append(rate.quota)
        now += 1.0
    steps = [LearnedRate.FIRST_INCREASE * 2**i for i in range(4)]
    expected = 100.0
    for step, quota in zip(steps, quotas, strict=True):
        expected = math.ceil(expected * (1 + step))
        assert quota == expected


def test_one_probe_at_a_time() -> None:
    """While a probe is in flight nothing else is sent; if it is lost, another follows after a window."""
    rate = learned(10)
    assert burst(rate, 60.0) == 11
    assert burst(rate, 61.0) == 0
    assert burst(rate, 122.0) >= 1


def test_a_refused_probe_is_not_repeated_soon() -> None:
    """A probe costs a refusal: several windows pass before the next."""
    rate = learned(10)
    burst(rate, 60.0)
    rate.on_refusal(60.1)
    probes, now = 0, 60.1
    for _ in range(2 * LearnedRate.PROBE_HOLD + 1):
        now += 61.0
        sent = burst(rate, now)
        probes += sent > 10
        if sent > 10:
            rate.on_refusal(now + 0.1)
    assert probes == 2


def test_a_reply_to_an_older_request_is_no_probe() -> None:
    """Only the probe shows that the quota is larger."""
    rate = learned(10)
    burst(rate, 60.0)
    rate.on_ok(59.0)
    assert rate.quota == 10


def test_a_guess_far_too_low_is_soon_corrected() -> None:
    """Three sends, then an outage answered with refusals: a thousand are sent within a few round trips."""
    rate, now, sent = learned(3), 60.0, 0
    for _ in range(12):
        sent += burst(rate, now, 1000 - sent)
        rate.on_ok(now)
        now += 2.0
    assert sent == 1000


def test_an_empty_window_teaches_nothing() -> None:
    """Refused from the very first request on."""
    rate = LearnedRate()
    rate.on_reopen(60.0, 0.0)
    assert rate.quota == math.inf


def test_its_state_shows() -> None:
    """For logs and debuggers."""
    assert repr(learned(10)) == "LearnedRate(0 of 10 in 60 s)"


@settings(max_examples=60, deadline=None)
@given(
    st.integers(1, 50),
    st.lists(st.tuples(st.floats(0.0, 30.0), st.sampled_from(["send", "ok", "refuse", "open"])), max_size=200),
)
def test_waiting_always_ends(count: int, events: list[tuple[float, str]]) -> None:
    """Whatever happens, no wait is longer than a window and its resolution, and something is sent after it."""
    rate, now = learned(count), 60.0
    for seconds, event in events:
        now += seconds
        waits = 0
        while (wait := rate.wait(now)) > 0:
            assert wait <= LearnedRate.MAX_WINDOW_S * 1.01
            assert now + wait > now
            now += wait
            waits += 1
            assert waits < 130
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
def test_no_minute_holds_more_than_the_quota(quota: int, gaps: list[float]) -> None:
    """However requests arrive, any sixty seconds hold at most the learned quota and one probe."""
    rate, now, sent = learned(quota), 60.0, []
    for gap in gaps:
        now += gap
        if rate.wait(now) == 0.0:
            rate.on_send(now)
            sent.append(now)
    for i, at in enumerate(sent):
        assert sum(at - 60.0 < other <= at for other in sent[: i + 1]) <= quota + 1


@pytest.mark.parametrize("adaptive", [True, False])
@pytest.mark.parametrize(("per_minute", "count"), [(600, 6000), (120, 1500), (60, 600)])
def test_a_quota_without_headers(adaptive: bool, per_minute: int, count: int) -> None:
    """Used in full after the first minute, with few refusals."""
    limit: Limit = AdaptiveLimit(512) if adaptive else FixedLimit(60)
    ours = run(limit, Quota(per_minute), lognormal_jobs(count, 1), Breaker())
    minutes = math.ceil(count / per_minute) - 1
    assert ours.makespan < 60 * minutes + 45
    assert ours.refused < 40


def test_when_it_reopens_is_known_only_with_a_quota() -> None:
    """Then it is when the oldest send leaves the window."""
    rate = LearnedRate()
    rate.on_send(0.0)
    assert rate.reopens_at() == -math.inf
    rate = learned(10)
    assert rate.reopens_at() == -math.inf
    rate.on_send(60.0)
    rate.on_send(70.0)
    assert rate.reopens_at() == pytest.approx(60.0 + 60.0 * (1 + 1 / LearnedRate.RESOLUTION))


@pytest.mark.parametrize(("at", "opened", "seconds"), [(100.0, 110.0, 10.0), (0.0, 0.5, 0.5)])
def test_a_window_lasts_from_its_first_request(at: float, opened: float, seconds: float) -> None:
    """Even one of less than a second, with a single request."""
    rate = LearnedRate()
    rate.on_send(at)
    rate.on_reopen(opened, at)
    assert rate.window_s == pytest.approx(seconds)
    assert rate.quota == 1


def test_an_expired_send_does_not_start_a_window() -> None:
    """Sent at 0 and 30, refused at 65: the window starts with the second send, within its resolution."""
    rate = LearnedRate()
    rate.on_send(0.0)
    rate.on_send(30.0)
    rate.on_reopen(70.0, 65.0)
    assert rate.window_s == pytest.approx(70.0 - 30.0 - 60.0 / LearnedRate.RESOLUTION)


def test_an_ordinary_refusal_does_not_delay_the_probe() -> None:
    """One of the ten was refused: ten more may be sent, and the probe."""
    rate = learned(10)
    rate.on_send(60.0)
    rate.on_refusal(60.1)
    assert burst(rate, 60.2) == 11


def test_sends_leave_the_window_after_its_length() -> None:
    """Five at 60 and five at 90: at 121 the first five have left."""
    rate = learned(10)
    for at in [60.0] * 5 + [90.0] * 5:
        rate.on_send(at)
    rate.wait(121.0)
    assert repr(rate) == "LearnedRate(5 of 10 in 60 s)"
