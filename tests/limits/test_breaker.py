"""One endpoint's circuit breaker, event by event and through whole outages."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.limits.simulated import Failing, Refusing, always, lognormal_jobs, run

from referee.limits import AdaptiveLimit, Breaker
from referee.records import Reason, Unscored


def send(breaker: Breaker, now: float, count: int = 1) -> None:
    for _ in range(count):
        breaker.wait(now)
        breaker.on_send()


def fail(breaker: Breaker, now: float, count: int = 1, connecting: bool = False) -> None:
    for _ in range(count):
        breaker.on_fault(now, 0.5, connecting)
        breaker.on_gone()


def suspended(now: float = 0.0) -> Breaker:
    """A breaker whose endpoint failed often enough, one request after the other."""
    breaker = Breaker()
    for _ in range(Breaker.FAULTS_TO_SUSPEND):
        send(breaker, now)
        fail(breaker, now)
    assert breaker.suspended
    return breaker


def test_healthy_lets_everything_through() -> None:
    """Nothing known, nothing delayed."""
    assert Breaker().wait(0.0) == 0.0


def test_faults_in_a_row_suspend() -> None:
    """Sending stops until the first probe."""
    assert suspended().wait(0.0) == pytest.approx(Breaker.PROBE_MIN_S)


def test_a_success_resets_the_count() -> None:
    """Faults with successes between them are no outage."""
    breaker = Breaker()
    for i in range(20):
        send(breaker, i, 2)
        fail(breaker, i)
        breaker.on_ok(sent=i)
        breaker.on_gone()
        assert not breaker.suspended


def test_one_burst_of_failures_is_one_fault() -> None:
    """Sixty requests that fail together do not suspend; those sent next do, if they fail too."""
    breaker = Breaker()
    send(breaker, 0.0, 60)
    fail(breaker, 1.0, 60)
    assert not breaker.suspended
    send(breaker, 1.0, 60)
    fail(breaker, 1.1)
    assert breaker.suspended


def test_replies_to_requests_sent_before_the_first_fault_do_not_end_it() -> None:
    """A slow success from before says nothing about now; one sent since does."""
    breaker = suspended(now=100.0)
    breaker.on_ok(sent=99.0)
    assert breaker.wait(100.0) > 0
    breaker.on_ok(sent=101.0)
    assert breaker.wait(101.0) == 0.0


def test_probes_slow_down_to_a_limit() -> None:
    """While an outage lasts, probes go out less and less often, but never rarely."""
    breaker, now, gaps = suspended(), 0.0, []
    for _ in range(12):
        gaps.append(breaker.wait(now))
        now += gaps[-1]
        send(breaker, now)
        fail(breaker, now)
    assert gaps[0] == pytest.approx(Breaker.PROBE_MIN_S)
    assert gaps == sorted(gaps)
    assert gaps[-1] == pytest.approx(Breaker.PROBE_MAX_S)


def test_one_probe_at_a_time_while_it_is_fresh() -> None:
    """While a probe is in flight nothing else is sent; if it gets no answer, another follows."""
    breaker = suspended()
    send(breaker, 10.0)
    assert breaker.wait(10.0) > 0
    assert breaker.wait(10.0 + Breaker.PROBE_MAX_S) == 0.0


def test_late_failures_of_older_requests_do_not_hold_up_probes() -> None:
    """Requests from before the suspension may fail for a minute: probing goes on."""
    breaker = Breaker()
    send(breaker, 0.0, 40)
    fail(breaker, 1.0, 5)
    send(breaker, 1.0, 40)
    fail(breaker, 2.0, 36)
    assert breaker.suspended
    for i in range(20):
        fail(breaker, 3.0 + i / 10)
    assert breaker.wait(5.0) == 0.0


def test_late_failures_do_not_shorten_the_probe_timeout() -> None:
    """An old request that fails right after a probe was sent does not mean that probes fail quickly."""
    breaker = Breaker()
    send(breaker, 0.0, 20)
    fail(breaker, 1.0, 5)
    send(breaker, 1.0, 20)
    fail(breaker, 2.0, 16)
    assert breaker.suspended
    send(breaker, 10.0)
    fail(breaker, 10.01, 5)
    assert breaker.wait(10.01) == pytest.approx(Breaker.PROBE_MAX_S - 0.01)


def test_recovery_resets_the_probe_interval() -> None:
    """The next outage starts with quick probes again."""
    breaker = suspended()
    for i in range(5):
        send(breaker, i)
        fail(breaker, i)
    breaker.on_ok(sent=6.0)
    for _ in range(Breaker.FAULTS_TO_SUSPEND):
        send(breaker, 10.0)
        fail(breaker, 10.0)
    assert breaker.wait(10.0) == pytest.approx(Breaker.PROBE_MIN_S)


def test_pause_holds_in_any_state_and_the_longest_wins() -> None:
    """A shorter one that comes later does not end it."""
    breaker = Breaker()
    breaker.pause(10.0)
    breaker.pause(5.0)
    assert breaker.wait(4.0) == 6.0
    assert breaker.wait(10.0) == 0.0


def test_retry_after_is_obeyed_with_jitter_and_a_ceiling() -> None:
    """An absurd one is capped."""
    breaker = Breaker()
    breaker.on_throttled(0.0, 0.5, retry_after=20.0)
    assert 20.0 <= breaker.wait(0.0) <= 22.0
    breaker.on_throttled(0.0, 0.0, retry_after=1e9)
    assert breaker.wait(0.0) == Breaker.RETRY_AFTER_MAX_S


def test_refusals_without_a_time_pause_only_in_a_row() -> None:
    """Single refusals among successes are left to the limiter; a run of them pauses sending, longer each time."""
    breaker = Breaker()
    for i in range(10 * Breaker.REFUSALS_TO_PAUSE):
        breaker.on_throttled(i, 0.5)
        breaker.on_ok(sent=i)
    assert breaker.wait(80.0) == 0.0
    for _ in range(Breaker.REFUSALS_TO_PAUSE):
        breaker.on_throttled(100.0, 0.5)
    first = breaker.wait(100.0)
    assert first > 0
    breaker.on_throttled(100.0 + first, 0.5)
    assert breaker.wait(100.0 + first) > first


def refuse(breaker: Breaker, now: float, count: int = 1) -> None:
    for _ in range(count):
        send(breaker, now)
        breaker.on_throttled(now, 0.5)
        breaker.on_gone()


def test_replies_to_requests_sent_before_the_refusals_do_not_end_the_run() -> None:
    """A quota ran out while others are being served: their replies say nothing about now."""
    breaker = Breaker()
    send(breaker, 0.0)
    for i in range(Breaker.REFUSALS_TO_PAUSE):
        refuse(breaker, 10.0 + i)
        breaker.on_ok(sent=0.0)
    assert breaker.wait(10.0 + Breaker.REFUSALS_TO_PAUSE - 1) > 0
    breaker.on_ok(sent=30.0)
    refuse(breaker, 31.0)
    assert breaker.wait(31.0) == 0.0


def test_in_a_run_of_refusals_single_probes_are_sent() -> None:
    """After the pause one; nothing else while it may still be refused; then more often, but never all at once: only
    some slots may have come free."""
    breaker = Breaker()
    refuse(breaker, 0.0, Breaker.REFUSALS_TO_PAUSE)
    now = breaker.wait(0.0)
    send(breaker, now)
    gaps = []
    for _ in range(6):
        gaps.append(breaker.wait(now))
        now += gaps[-1]
        send(breaker, now)
    assert gaps[0] == pytest.approx(Breaker.PROBE_TIMEOUT_S)
    assert gaps == sorted(gaps, reverse=True)
    assert gaps[-1] == pytest.approx(Breaker.PROBE_TIMEOUT_S / 8)


def test_an_accepted_probe_resets_the_pause() -> None:
    """If one probe was accepted and the next was not, pauses start from the shortest again."""
    breaker, now = Breaker(), 0.0
    refuse(breaker, now, Breaker.REFUSALS_TO_PAUSE)
    for _ in range(4):
        now += breaker.wait(now)
        refuse(breaker, now)
    long = breaker.wait(now)
    now += long
    send(breaker, now)
    now += breaker.wait(now)
    refuse(breaker, now)
    assert breaker.wait(now) < long / 4


@pytest.mark.parametrize("others", [0, 1])
def test_a_quota_is_learned_only_if_a_request_alone_was_refused(others: int) -> None:
    """With others in flight the refusal may be about concurrency."""
    breaker = Breaker()
    for _ in range(10):
        send(breaker, 0.0)
    for _ in range(10 - others):
        breaker.on_ok(sent=0.0)
        breaker.on_gone()
    refuse(breaker, 5.0, Breaker.REFUSALS_TO_PAUSE)
    refuse(breaker, 20.0)
    send(breaker, 60.0)
    breaker.on_ok(sent=60.0)
    breaker.on_gone()
    for _ in range(9):
        send(breaker, 61.0)
    send(breaker, 61.0)  # the probe
    assert (breaker.wait(61.0) > 30.0) == (others == 0)


def test_a_known_window_is_waited_for_without_probes() -> None:
    """When a learned quota has run out again, the next probe goes when the oldest request leaves the window."""
    breaker = Breaker()
    send(breaker, 0.0, 10)
    for _ in range(10):
        breaker.on_ok(sent=0.0)
        breaker.on_gone()
    refuse(breaker, 1.0, Breaker.REFUSALS_TO_PAUSE + 1)
    send(breaker, 60.0)
    breaker.on_ok(sent=60.0)
    breaker.on_gone()
    send(breaker, 61.0, 8)
    for _ in range(8):
        breaker.on_ok(sent=61.0)
        breaker.on_gone()
    refuse(breaker, 62.0, Breaker.REFUSALS_TO_PAUSE)
    now = 62.0 + breaker.wait(62.0)
    refuse(breaker, now)
    assert now + breaker.wait(now) == pytest.approx(120.5, abs=1.0)


def test_unreachable_needs_tries_and_time() -> None:
    """Three failed connections over three seconds, and never an answer."""
    breaker = Breaker()
    fail(breaker, 0.0, 50, connecting=True)
    assert not breaker.unreachable(1.0)
    fail(breaker, 3.5, 1, connecting=True)
    assert breaker.unreachable(3.5)


def test_an_endpoint_that_ever_answered_is_waited_for() -> None:
    """After an answer of any kind, failed connections are an outage, not a wrong address."""
    breaker = Breaker()
    breaker.on_answer()
    fail(breaker, 0.0, 5, connecting=True)
    fail(breaker, 100.0, 5, connecting=True)
    assert not breaker.unreachable(100.0)


def test_timeouts_are_not_failed_connections() -> None:
    """A server that accepts and never answers is slow or down, not absent."""
    breaker = Breaker()
    fail(breaker, 0.0, 5)
    fail(breaker, 100.0, 5)
    assert not breaker.unreachable(100.0)


def test_closing_is_final_and_keeps_the_first_reason() -> None:
    """Nothing reopens a closed endpoint, and the first reason is shown."""
    breaker = Breaker()
    first = Unscored(reason=Reason.AUTH, detail="401")
    breaker.close(first)
    breaker.close(Unscored(reason=Reason.QUOTA))
    breaker.on_ok(sent=math.inf)
    assert breaker.closed is first
    assert "closed" in repr(breaker)


EVENT = st.tuples(st.sampled_from(["ok", "fault", "throttled", "gone"]), st.floats(0.0, 5.0), st.floats(0.0, 0.999))


@settings(max_examples=60, deadline=None)
@given(st.lists(EVENT, max_size=120))
def test_waiting_always_ends(events: list[tuple[str, float, float]]) -> None:
    """After any events, something may be sent once the wait is over."""
    breaker, now = Breaker(), 0.0
    for event, seconds, chance in events:
        now += seconds
        wait = breaker.wait(now)
        assert 0 <= wait < 60
        if wait == 0:
            breaker.on_send()
        if event == "ok":
            breaker.on_ok(sent=now - 1)
        elif event == "fault":
            breaker.on_fault(now, chance)
        elif event == "throttled":
            breaker.on_throttled(now, chance)
        breaker.on_gone()
        assert breaker.wait(now + breaker.wait(now)) == pytest.approx(0.0, abs=1e-6)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_outage_of_a_minute(seed: int) -> None:
    """60 s at 80 % load: nothing lost, about one send per second meanwhile, back at speed within 5 s of the end."""
    start, end = 60.0, 120.0
    provider = Failing(Refusing(always(60)), start, end)
    result = run(AdaptiveLimit(512), provider, lognormal_jobs(3200, seed), Breaker(), per_second=20.0)
    before = result.throughput(30.0, start)
    assert result.done == 3200
    assert sum(start + 1 <= t < end for t in result.sent_at) < 2 * 60
    assert result.sent < 1.1 * result.done
    assert any(result.throughput(end + wait, end + wait + 4.0) >= 0.9 * before for wait in (2.0, 3.0, 4.0, 5.0))


def test_outage_in_which_requests_hang() -> None:
    """Hung requests hold their slots until they time out, yet it recovers."""
    start, end = 60.0, 120.0
    provider = Failing(Refusing(always(60)), start, end, hang=1e9)
    result = run(AdaptiveLimit(512), provider, lognormal_jobs(3200, 1), Breaker(), timeout=30.0, per_second=20.0)
    assert result.done == 3200
    assert sum(start <= t < end for t in result.sent_at) < 3 * 60
    assert result.sent < 1.2 * result.done
    assert result.throughput(end + 15.0, end + 25.0) >= 0.9 * result.throughput(30.0, start)


def test_stale_refusals_do_not_make_a_run() -> None:
    """The cut has answered them, and sending goes on at the lower limit."""
    breaker = Breaker()
    for _ in range(60):
        breaker.on_send()
    for number in range(3):
        breaker.on_throttled(1.0 + number / 1000, 0.5, latency=0.04, over_limit=True)
    for number in range(20):
        breaker.on_throttled(1.01 + number / 1000, 0.5, latency=0.04, over_limit=True, stale=True)
    assert breaker.wait(1.05) == 0.0
    for number in range(3):
        breaker.on_throttled(1.05 + number / 1000, 0.5, latency=0.04, over_limit=True)
    assert breaker.wait(1.06) > 0.0
