"""The adaptive limit in rare situations: first events, queues that are none, edges that move."""

from __future__ import annotations

import pytest
from tests.limits.test_adaptive import Load

from referee.limits import AdaptiveLimit, Stamp

START = AdaptiveLimit.START


@pytest.mark.parametrize(("in_flight", "caused"), [(30, False), (60, True)])
def test_concurrency_causes_a_refusal_only_near_the_limit(in_flight: int, caused: bool) -> None:
    """With half of it in use there is another cause."""
    assert AdaptiveLimit(512, start=60).caused_refusal(in_flight) is caused


def test_the_first_cut_is_a_hard_one_if_nothing_was_served() -> None:
    """Refused from the first request on: the start may be far too high."""
    load = Load(AdaptiveLimit(512, start=60))
    load.end("throttled", 3, newest=True)
    assert load.limit.limit == round(AdaptiveLimit.HARD_CUT * 59)


def test_a_lucky_first_reply_is_not_the_service_time() -> None:
    """One reply at once, the next after the usual time: that is no queue."""
    limit = AdaptiveLimit(512, start=60)
    stamps = [limit.admit(0.0, i + 1) for i in range(60)]
    for i, now in enumerate((0.1, 2.0, 2.1, 2.2)):
        limit.release(stamps[i], "ok", now, 59, now, 0)
    assert limit.mode == "ramp"
    assert limit.limit == 64


def test_simultaneous_replies_double_it_once() -> None:
    """No time has passed, so there is no throughput to compare."""
    limit = AdaptiveLimit(512, start=60)
    stamp = limit.admit(0.0, 60)
    for _ in range(70):
        limit.release(stamp, "ok", 0.0, limit.limit - 1, 1.0, 0)
    assert limit.limit == 2 * START


def test_the_first_window_of_a_new_ramp_counts() -> None:
    """After an edge that is gone, twice as many at half the speed ends the ramp within the second window."""
    limit = AdaptiveLimit(512, start=60)
    load = Load(limit)
    load.end("throttled", 3, newest=True)
    for _ in range(60 * 60):
        load.end("ok")
        if limit.mode == "ramp":
            break
    level = limit.limit
    load.end("ok", level)
    assert limit.limit == 2 * level
    load.end("ok", level + 2, latency=8.0)
    assert limit.mode == "hill"
    assert limit.limit < 2 * level


def test_a_slow_server_is_no_reason_not_to_double() -> None:
    """Less than one reply per second, but nothing yet to compare it with."""
    load = Load(AdaptiveLimit(512))
    load.end("ok", START, latency=100.0)
    assert load.limit.limit == 2 * START


def test_after_idling_only_one_window_is_discarded() -> None:
    """The one after it is compared again."""
    limit = AdaptiveLimit(512, start=60)
    load = Load(limit)
    load.end("ok", 60)
    stamp = limit.admit(load.now, 1)
    limit.release(stamp, "ok", load.now + 1.0, 0, 2.0, 0)
    load.now += 1.0
    load.end("ok", limit.limit)
    assert "ramp" in repr(limit)
    load.end("ok", limit.limit // 2 + 1, latency=8.0)
    assert limit.mode == "hill"


def queued() -> tuple[AdaptiveLimit, Stamp]:
    """A limit that fell from 76 to 19: of 60 requests, 17 were answered within 4.5 s, the first after 1 s."""
    limit = AdaptiveLimit(512, start=60)
    stamp = limit.admit(0.0, 60)
    for i in range(17):
        now = 4.5 if i == 16 else 1.0
        limit.release(stamp, "ok", now, limit.limit - 1, now, 0)
    assert repr(limit) == "AdaptiveLimit(19 of 512, hill)"
    return limit, stamp


def test_a_reordered_reply_undoes_a_fall_for_a_queue() -> None:
    """A request sent after the first reply comes back before most of the first: there is no queue."""
    limit, stamp = queued()
    limit.release(stamp, "ok", 4.6, 75, 4.6, 0)
    assert limit.limit == 19
    limit.release(stamp, "ok", 4.7, 74, 3.0, 0)
    assert repr(limit) == "AdaptiveLimit(77 of 512, ramp)"
    for i in range(10):
        limit.release(stamp, "ok", 8.0 + i / 100, limit.limit - 1, 8.0, 0)
    assert repr(limit) == "AdaptiveLimit(87 of 512, ramp)"


def test_a_cut_forgets_the_level_before_the_queue() -> None:
    """Refused meanwhile, that level is none to go back to."""
    limit, stamp = queued()
    fresh = limit.admit(4.6, 76)
    for _ in range(3):
        limit.release(fresh, "throttled", 4.6, 75, 0.1, 0)
    assert limit.mode == "edge"
    limit.release(stamp, "ok", 4.7, 74, 3.0, 0)
    assert limit.limit < 20


def test_a_queue_is_detected_only_at_the_start() -> None:
    """Later, requests were not sent together, and a few replies say nothing."""
    limit = AdaptiveLimit(512, start=60)
    load = Load(limit)
    load.end("ok", 3, latency=0.1)
    load.end("throttled", 3, newest=True)
    while limit.mode == "edge":
        load.end("ok")
    level = limit.limit
    load.end("ok", 2, latency=20.0)
    assert repr(limit) == f"AdaptiveLimit({level + 2} of 512, ramp)"


@pytest.mark.parametrize("second", [1.0, 100.0])
@pytest.mark.parametrize(("latency", "mode"), [(0.1, "ramp"), (9.0, "hill")])
def test_the_ramp_goes_on_if_new_requests_are_served_as_before(latency: float, mode: str, second: float) -> None:
    """Twice the concurrency for hardly more throughput. If the replies are to new requests, slow ones from the start
    hold the other slots, and it grows on; if they are to those of the start, it does not."""
    limit = AdaptiveLimit(512, start=60)
    stamp, now = limit.admit(0.0, 60), second
    for _ in range(60):
        now += second / 60
        limit.release(stamp, "ok", now, limit.limit - 1, now, 0)
    assert limit.limit == 120
    for _ in range(120):
        now += second / 32
        limit.release(stamp, "ok", now, limit.limit - 1, latency * second, 0)
    assert limit.mode == mode
    assert (limit.limit > 120) == (mode == "ramp")


def test_the_ceiling_is_not_left_for_measurements_from_the_ramp() -> None:
    """70 is too near to 60 for a comparison, and 60 was measured from a cold start."""
    limit = AdaptiveLimit(70, start=60)
    load = Load(limit)
    load.end("ok", 60 + 70)
    assert repr(limit) == "AdaptiveLimit(70 of 70, hill)"


def test_at_the_ceiling_the_ramp_ends() -> None:
    """The search for a lower level begins."""
    limit = AdaptiveLimit(60, start=60)
    Load(limit).end("ok", 60)
    assert limit.mode == "hill"


@pytest.mark.parametrize(("served", "edge"), [(0, 59), (1, 40)])
def test_one_success_since_the_cut_makes_the_next_one_an_edge(served: int, edge: int) -> None:
    """Without any, a quota ran out, and the previous edge is the better guess."""
    load = Load(AdaptiveLimit(512, start=60))
    load.end("throttled", 3, newest=True)
    stamp = load.limit.admit(load.now, 41)
    for _ in range(served):
        load.limit.release(stamp, "ok", load.now + 1.0, 40, 2.0, 0)
    for _ in range(3):
        load.limit.release(stamp, "throttled", load.now + 1.0, 40, 0.1, 0)
    assert repr(load.limit).endswith(f"of 512, edge at {edge})")


@pytest.mark.parametrize("answers", [1, 100])
def test_a_failure_slower_than_the_mean_latency_is_a_timeout(answers: int) -> None:
    """One slow reply does not change the mean by much."""
    limit = AdaptiveLimit(512, start=60)
    limit.admit(0.0, 60)
    now = 0.0
    for i in range(answers):
        now += 1.0
        limit.release(limit.admit(now, limit.limit), "ok", now, limit.limit - 1, 10.0 if i == 99 else 2.0, 0)
    before = limit.limit
    limit.release(limit.admit(now, before), "overloaded", now, before - 1, 3.0, 0)
    assert limit.limit < before


def test_its_state_shows() -> None:
    """For logs and debuggers: the edge only where one is known."""
    assert repr(AdaptiveLimit(512, start=60)) == "AdaptiveLimit(60 of 512, ramp)"


def test_the_limit_never_falls_below_one() -> None:
    """Even if the whole first burst was refused."""
    load = Load(AdaptiveLimit(512))
    load.end("throttled", START, latency=0.05, refill=False)
    assert repr(load.limit) == "AdaptiveLimit(1 of 512, edge at 1)"


def test_back_to_the_edge_hold_and_probe_slowly() -> None:
    """Cut a little below four slots: one success to come back, the hold, and three to probe a fifth."""
    load = Load(AdaptiveLimit(512))
    load.end("throttled", START - 4, latency=0.05, refill=False)
    stamp = load.limit.admit(load.now, 4)
    levels = []
    for _ in range(1 + AdaptiveLimit.HOLD_SUCCESSES + 3):
        load.now += 0.5
        load.limit.release(stamp, "ok", load.now, 3, 2.0, 0)
        levels.append(load.limit.limit)
    assert levels[:-1] == [4] * (1 + AdaptiveLimit.HOLD_SUCCESSES + 2)
    assert levels[-1] == 5


def test_random_refusals_at_the_edge_do_not_cut() -> None:
    """One in sixteen at a constant limit becomes the base rate."""
    load = Load(AdaptiveLimit(512, start=60))
    load.end("throttled", 3, newest=True)
    while load.limit.limit < 59:
        load.end("ok")
    for _ in range(20):
        load.end("ok", 15)
        load.end("throttled", newest=True, latency=0.05)
        assert repr(load.limit) == "AdaptiveLimit(59 of 512, edge at 59)"


def test_far_below_the_edge_one_more_per_success() -> None:
    """Down at one with an edge at 59: it doubles each round trip, and no faster."""
    load = Load(AdaptiveLimit(512, start=60))
    load.end("throttled", 3, newest=True)
    for _ in range(20):
        stamp = load.limit.admit(load.now, 2)
        load.limit.release(stamp, "throttled", load.now, 1, 0.1, 0)
    assert repr(load.limit) == "AdaptiveLimit(1 of 512, edge at 59)"
    stamp = load.limit.admit(load.now, 1)
    for level in (2, 3, 4):
        load.limit.release(stamp, "ok", load.now + level, level - 1, 2.0, 0)
        assert load.limit.limit == level


@pytest.mark.parametrize("answers", [8, 961])
@pytest.mark.parametrize(("latency", "level"), [(60.0, 30), (10.0, 15)])
def test_a_timeout_leaves_half_of_what_is_served_in_its_time(answers: int, latency: float, level: int) -> None:
    """At the recent rate of one reply per second; but at least a quarter of the limit."""
    limit = AdaptiveLimit(60, start=60)
    stamp = limit.admit(0.0, 60)
    for i in range(answers):
        limit.release(stamp, "ok", i + 1.0, 0, 2.0, 0)
    assert limit.limit == 60
    limit.release(stamp, "overloaded", answers + 1.0, 59, latency, 0)
    assert limit.limit == level
