"""The adaptive limit at its edges: exact counts, exact shares, what the very first events say."""

from __future__ import annotations

import pytest
from tests.limits.test_adaptive import Load

from referee.limits import AdaptiveLimit, Stamp

START = AdaptiveLimit.START


@pytest.mark.parametrize(("in_flight", "explained"), [(47, False), (48, True), (60, True)])
def test_a_refusal_is_explained_from_four_fifths_of_the_limit_on(in_flight: int, explained: bool) -> None:
    """With fewer in flight it is about something else than their number."""
    assert AdaptiveLimit(512, start=60).caused_refusal(in_flight) is explained


def test_the_first_cut_is_a_hard_one_if_nothing_was_served() -> None:
    """Refused from the first request on: the start may be far too much."""
    load = Load(AdaptiveLimit(512, start=60))
    load.end("throttled", 3, newest=True)
    assert load.limit.limit == round(AdaptiveLimit.HARD_CUT * 59)


def test_a_lucky_first_answer_is_no_measure() -> None:
    """One answer came at once, the next after the usual time: that is no line."""
    limit = AdaptiveLimit(512, start=60)
    stamps = [limit.admit(0.0, i + 1) for i in range(60)]
    for i, now in enumerate((0.1, 2.0, 2.1, 2.2)):
        limit.release(stamps[i], "ok", now, 59, now, 0)
    assert limit.mode == "ramp"
    assert limit.limit == 64


def test_answers_that_come_in_one_moment_double_it_once() -> None:
    """No time has passed, so there is no goodput yet to go on with."""
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
    """Less than one answer a second, but nothing yet to compare it with."""
    load = Load(AdaptiveLimit(512))
    load.end("ok", START, latency=100.0)
    assert load.limit.limit == 2 * START


def test_after_idling_only_one_window_is_passed_over() -> None:
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


def in_a_line() -> tuple[AdaptiveLimit, Stamp]:
    """A limit that fell from 76 to 19: of 60 requests, 17 were answered in 4.5 s, the first of them after 1 s."""
    limit = AdaptiveLimit(512, start=60)
    stamp = limit.admit(0.0, 60)
    for i in range(17):
        now = 4.5 if i == 16 else 1.0
        limit.release(stamp, "ok", now, limit.limit - 1, now, 0)
    assert repr(limit) == "AdaptiveLimit(19 of 512, hill)"
    return limit, stamp


def test_a_line_in_which_somebody_is_overtaken_was_none() -> None:
    """One sent after the first answer comes back before most of the first: the limit is what it was, and grows."""
    limit, stamp = in_a_line()
    limit.release(stamp, "ok", 4.6, 75, 4.6, 0)
    assert limit.limit == 19
    limit.release(stamp, "ok", 4.7, 74, 3.0, 0)
    assert repr(limit) == "AdaptiveLimit(77 of 512, ramp)"
    for i in range(10):
        limit.release(stamp, "ok", 8.0 + i / 100, limit.limit - 1, 8.0, 0)
    assert repr(limit) == "AdaptiveLimit(87 of 512, ramp)"


def test_after_a_cut_the_line_is_forgotten() -> None:
    """Refused meanwhile: what was before the line is no level to go back to."""
    limit, stamp = in_a_line()
    fresh = limit.admit(4.6, 76)
    for _ in range(3):
        limit.release(fresh, "throttled", 4.6, 75, 0.1, 0)
    assert limit.mode == "edge"
    limit.release(stamp, "ok", 4.7, 74, 3.0, 0)
    assert limit.limit < 20


def test_an_edge_that_is_gone_is_not_taken_for_a_line() -> None:
    """Only the start is looked at: later, requests were not sent together, and a few done say nothing."""
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
def test_what_was_sent_since_comes_back_as_before(latency: float, mode: str, second: float) -> None:
    """Twice as many in flight for hardly more goodput: if those that come back were sent since, slow ones of the start
    hold the other places, and it grows on. If they are those of the start, it does not. Also a hundred times slower."""
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


def test_the_ceiling_once_reached_is_not_left_for_what_the_way_there_showed() -> None:
    """70 is too near to 60 for a comparison, and 60 was seen from a cold start: it stays and measures."""
    limit = AdaptiveLimit(70, start=60)
    load = Load(limit)
    load.end("ok", 60 + 70)
    assert repr(limit) == "AdaptiveLimit(70 of 70, hill)"


def test_at_the_ceiling_it_looks_for_less() -> None:
    """A ramp that cannot go on has ended."""
    limit = AdaptiveLimit(60, start=60)
    Load(limit).end("ok", 60)
    assert limit.mode == "hill"


@pytest.mark.parametrize(("served", "edge"), [(0, 59), (1, 40)])
def test_one_success_since_the_cut_makes_the_next_one_an_edge(served: int, edge: int) -> None:
    """Without any, a quota ran out, and the edge seen before it is the better guess."""
    load = Load(AdaptiveLimit(512, start=60))
    load.end("throttled", 3, newest=True)
    stamp = load.limit.admit(load.now, 41)
    for _ in range(served):
        load.limit.release(stamp, "ok", load.now + 1.0, 40, 2.0, 0)
    for _ in range(3):
        load.limit.release(stamp, "throttled", load.now + 1.0, 40, 0.1, 0)
    assert repr(load.limit).endswith(f"of 512, edge at {edge})")


@pytest.mark.parametrize("answers", [1, 100])
def test_a_failure_slower_than_the_usual_answer_is_a_time_out(answers: int) -> None:
    """The first answer is the usual one, and one slow answer later does not change that by much."""
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


def test_one_place_is_always_left() -> None:
    """Everything of the first burst was refused: one at a time from then on."""
    load = Load(AdaptiveLimit(512))
    load.end("throttled", START, latency=0.05, refill=False)
    assert repr(load.limit) == "AdaptiveLimit(1 of 512, edge at 1)"


def test_back_to_the_edge_held_there_and_slowly_over_it() -> None:
    """Cut a little below four places: one success to come back, the hold, and three to try a fifth."""
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


def test_refusals_at_the_edge_itself_are_not_about_the_level() -> None:
    """One in sixteen is refused although nothing was raised: that is learned, and not answered by a cut."""
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
def test_a_time_out_leaves_half_of_what_is_served_in_its_time(answers: int, latency: float, level: int) -> None:
    """One answer a second, of late or all along; but a quarter of the limit at least."""
    limit = AdaptiveLimit(60, start=60)
    stamp = limit.admit(0.0, 60)
    for i in range(answers):
        limit.release(stamp, "ok", i + 1.0, 0, 2.0, 0)
    assert limit.limit == 60
    limit.release(stamp, "overloaded", answers + 1.0, 59, latency, 0)
    assert limit.limit == level
