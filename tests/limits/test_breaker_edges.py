"""A breaker's arithmetic: exact counts, exact moments, jitter at both ends."""

from __future__ import annotations

import pytest

from referee.limits import Breaker

START = 1000.0


def fail(breaker: Breaker, now: float, count: int = 1, chance: float = 0.5) -> None:
    for _ in range(count):
        breaker.on_fault(now, chance)
        breaker.on_gone()


def one_by_one(breaker: Breaker, now: float, count: int, chance: float = 0.5) -> None:
    for _ in range(count):
        breaker.wait(now)
        breaker.on_send()
        fail(breaker, now, chance=chance)


@pytest.mark.parametrize(("chance", "factor"), [(0.0, 0.75), (0.5, 1.0), (1.0, 1.25)])
def test_probes_have_jitter(chance: float, factor: float) -> None:
    """A quarter sooner or later, so that many clients do not probe together."""
    breaker = Breaker()
    one_by_one(breaker, START, Breaker.FAULTS_TO_SUSPEND, chance)
    assert breaker.wait(START) == pytest.approx(Breaker.PROBE_MIN_S * factor)


@pytest.mark.parametrize("before", ["nothing", "a success", "a suspension"])
def test_one_fault_or_refusal_too_few_changes_nothing(before: str) -> None:
    """The counts are exact, from the start and after every success."""
    breaker = Breaker()
    if before == "a suspension":
        one_by_one(breaker, START, Breaker.FAULTS_TO_SUSPEND)
    if before != "nothing":
        breaker.on_ok(sent=START + 1)
    one_by_one(breaker, START + 2, Breaker.FAULTS_TO_SUSPEND - 1)
    for _ in range(Breaker.REFUSALS_TO_PAUSE - 1):
        breaker.on_throttled(START + 2, 0.5)
    assert breaker.wait(START + 2) == 0.0
    breaker.on_throttled(START + 2, 0.5)
    assert breaker.wait(START + 2) == Breaker.PAUSE_MIN_S


@pytest.mark.parametrize(
    ("further", "latency", "chance", "seconds"),
    [
        (0, 9.0, 0.5, Breaker.PAUSE_MIN_S),
        (0, 9.0, 0.0, 0.75 * Breaker.PAUSE_MIN_S),
        (0, 9.0, 1.0, 1.25 * Breaker.PAUSE_MIN_S),
        (0, 0.2, 0.5, 0.2),
        (1, 0.2, 0.5, 0.4),
        (2, 0.2, 0.0, 0.6),
        (3, 0.2, 1.0, 2.0),
        (30, 0.2, 0.5, Breaker.PAUSE_MAX_S),
        (30, 9.0, 0.0, 0.75 * Breaker.PAUSE_MAX_S),
        (30, 0.001, 0.5, 0.256),
    ],
)
def test_pauses_double_from_the_usual_latency(further: int, latency: float, chance: float, seconds: float) -> None:
    """From one answer's time, at most a second, up to the longest; a very fast server never waits for long."""
    breaker, now = Breaker(), START
    for _ in range(Breaker.REFUSALS_TO_PAUSE + further):
        now += breaker.wait(now)
        breaker.on_throttled(now, chance, latency=latency)
    assert breaker.wait(now) == pytest.approx(seconds)


def test_refusals_during_a_pause_do_not_lengthen_it() -> None:
    """Those were sent before it."""
    breaker = Breaker()
    for _ in range(Breaker.REFUSALS_TO_PAUSE + 5):
        breaker.on_throttled(START, 0.5)
    assert breaker.wait(START) == Breaker.PAUSE_MIN_S


def test_a_success_sent_with_the_first_fault_ends_the_suspension() -> None:
    """The moment of the first fault counts as after it."""
    breaker = Breaker()
    one_by_one(breaker, START, Breaker.FAULTS_TO_SUSPEND)
    breaker.on_ok(sent=START)
    assert not breaker.suspended


def test_an_earlier_success_does_not_reset_the_count() -> None:
    """It was sent before the first fault."""
    breaker = Breaker()
    one_by_one(breaker, START, 1)
    breaker.on_ok(sent=START - 1)
    one_by_one(breaker, START, Breaker.FAULTS_TO_SUSPEND - 1)
    assert breaker.suspended


def test_a_fault_without_a_probe_changes_nothing() -> None:
    """Stray faults between probes neither delay the next one nor slow the rest down."""
    breaker = Breaker()
    one_by_one(breaker, START, Breaker.FAULTS_TO_SUSPEND)
    before = breaker.wait(START + 0.1)
    fail(breaker, START + 0.1, 3)
    assert breaker.wait(START + 0.1) == before


def test_faults_of_earlier_requests_are_not_the_probes() -> None:
    """Every request in flight at the suspension may fail late; only then is a fault the probe's."""
    breaker = Breaker()
    breaker.wait(START)
    for _ in range(Breaker.FAULTS_TO_SUSPEND + 3):
        breaker.on_send()
    fail(breaker, START, 1)
    for _ in range(Breaker.FAULTS_TO_SUSPEND + 3):
        breaker.on_send()
    fail(breaker, START, Breaker.FAULTS_TO_SUSPEND + 3)
    assert breaker.suspended
    breaker.wait(START + 10)
    breaker.on_send()
    fail(breaker, START + 10.01, Breaker.FAULTS_TO_SUSPEND + 2)
    assert breaker.wait(START + 10.01) == pytest.approx(Breaker.PROBE_MAX_S - 0.01)
    fail(breaker, START + 10.01)
    assert breaker.wait(START + 10.01) < Breaker.PROBE_MAX_S - 0.01


def test_unreachable_needs_both_tries_and_time() -> None:
    """Not one try or moment sooner."""
    breaker = Breaker()
    for _ in range(Breaker.UNREACHABLE_TRIES - 1):
        breaker.on_fault(START, 0.5, connecting=True)
    assert not breaker.unreachable(START + 100)
    breaker.on_fault(START + 1, 0.5, connecting=True)
    assert not breaker.unreachable(START + Breaker.UNREACHABLE_S - 0.1)
    assert breaker.unreachable(START + Breaker.UNREACHABLE_S)


@pytest.mark.parametrize("answer", ["ok", "throttled", "fault"])
def test_an_endpoint_that_answered_or_accepted_is_reachable(answer: str) -> None:
    """A success, a refusal, or faults after connecting: no wrong address."""
    breaker = Breaker()
    if answer == "ok":
        breaker.on_ok(sent=START)
    if answer == "throttled":
        breaker.on_throttled(START, 0.5)
    for second in range(10):
        if answer == "fault":
            breaker.on_fault(START + second, 0.5)
        else:
            breaker.on_fault(START + second, 0.5, connecting=True)
    assert not breaker.unreachable(START + 100)


def test_its_state_shows() -> None:
    """For logs and debuggers."""
    breaker = Breaker()
    assert repr(breaker) == "Breaker(healthy, 0 faults in a row)"
    one_by_one(breaker, START, Breaker.FAULTS_TO_SUSPEND)
    assert repr(breaker) == f"Breaker(suspended, {Breaker.FAULTS_TO_SUSPEND} faults in a row)"


def test_a_success_sent_with_the_first_refusal_ends_the_run() -> None:
    """The moment of the first refusal counts as after it."""
    breaker = Breaker()
    for _ in range(Breaker.REFUSALS_TO_PAUSE - 1):
        breaker.on_throttled(START, 0.5)
    breaker.on_ok(sent=START)
    breaker.on_throttled(START, 0.5)
    assert breaker.wait(START) == 0.0
