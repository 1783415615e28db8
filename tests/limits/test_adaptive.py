"""The adaptive limit, event by event. What it reaches on whole runs is in test_adaptive_runs.py."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from referee.limits import AdaptiveLimit, FixedLimit, Limit, Outcome, Stamp

START = AdaptiveLimit.START


class Load:
    """Keeps a limit in full use, and ends its requests as a test says."""

    def __init__(self, limit: Limit) -> None:
        self.limit = limit
        self.now = 0.0
        self.stamps: list[Stamp] = []
        self.fill()

    def fill(self, most: int = 10_000) -> None:
        while len(self.stamps) < min(most, self.limit.limit):
            self.stamps.append(self.limit.admit(self.now, len(self.stamps) + 1))

    def end(
        self, outcome: Outcome, count: int = 1, latency: float = 2.0, refill: bool = True, newest: bool = False
    ) -> None:
        for _ in range(count):
            self.now += latency / max(1, self.limit.limit)
            stamp = self.stamps.pop(-1 if newest else 0)
            self.limit.release(stamp, outcome, self.now, len(self.stamps), latency, 0)
            if refill:
                self.fill()


@pytest.mark.parametrize(("ceiling", "expected"), [(512, START), (10, 10), (1, 1), (0, 1)])
def test_the_start_is_within_the_ceiling(ceiling: int, expected: int) -> None:
    """The first limit is the start value, the ceiling if that is lower, and at least one."""
    assert AdaptiveLimit(ceiling).limit == expected


def test_ramp_doubles_each_round() -> None:
    """A round of successes while every slot is in use doubles the limit."""
    load = Load(AdaptiveLimit(512))
    load.end("ok", START)
    assert load.limit.limit == 2 * START


def test_does_not_grow_when_unused() -> None:
    """Successes teach nothing when far fewer requests are in flight than may be."""
    limit = AdaptiveLimit(512)
    for i in range(500):
        limit.release(limit.admit(i, 3), "ok", i + 0.5, 2, 0.5, 0)
    assert limit.limit == START


def test_never_passes_the_ceiling() -> None:
    """Growth ends at the ceiling."""
    load = Load(AdaptiveLimit(50))
    load.end("ok", 2000)
    assert load.limit.limit <= 50


def test_ignored_teaches_nothing() -> None:
    """Local cancels and rejected requests leave no trace."""
    load = Load(AdaptiveLimit(512))
    before = repr(load.limit)
    load.end("ignored", 500)
    assert repr(load.limit) == before


def test_one_refusal_alone_changes_nothing() -> None:
    """A single refusal among successes says little."""
    load = Load(AdaptiveLimit(512))
    load.end("throttled")
    assert load.limit.limit == START


def test_refusals_in_a_row_are_one_small_cut() -> None:
    """Three refusals bring the limit a little below what was accepted."""
    load = Load(AdaptiveLimit(512))
    load.end("ok", 5)
    level = load.limit.limit
    load.end("throttled", 3, latency=0.05, newest=True)
    assert load.limit.limit == round(AdaptiveLimit.CUT * (level - 1))


def test_refusals_at_any_level_do_not_lower_the_limit() -> None:
    """A provider that refuses three in a hundred at random is not relieved by a lower limit."""
    load = Load(AdaptiveLimit(60, start=60))
    for i in range(3000):
        load.end("throttled" if i % 33 == 0 else "ok", newest=i % 33 == 0)
    assert load.limit.limit >= 55


def test_a_burst_of_refusals_is_one_cut_to_what_was_accepted() -> None:
    """When most of a burst is refused, the limit goes to the part that was served, not to one cut per refusal."""
    load = Load(AdaptiveLimit(512))
    load.end("throttled", START - 4, latency=0.05, refill=False)
    assert load.limit.limit == 4


def test_refusals_from_before_the_cut_do_not_cut_again() -> None:
    """Refusals of requests sent before the cut are no news."""
    load = Load(AdaptiveLimit(512, start=100))
    load.end("throttled", 3, refill=False)
    after_cut = load.limit.limit
    load.end("throttled", 3, refill=False)
    assert after_cut - load.limit.limit <= 3


def test_refusal_far_below_the_limit_at_most_halves_it() -> None:
    """While the limit is mostly unused, concurrency is an unlikely cause."""
    limit = AdaptiveLimit(512)
    for _ in range(3):
        limit.release(limit.admit(0.0, 3), "throttled", 0.1, 2, 0.1, 0)
    assert limit.limit == START // 2


def test_the_edge_is_approached_and_held() -> None:
    """After a cut the limit returns to the level that was served and holds it for several rounds."""
    load = Load(AdaptiveLimit(512, start=60))
    load.end("throttled", 3, newest=True)
    assert load.limit.limit < 59
    for _ in range(6):
        load.end("ok", 60)
    assert load.limit.limit == 59
    load.end("ok", 3 * 60)
    assert load.limit.limit == 59


def test_an_edge_that_is_gone_is_left_behind() -> None:
    """When nothing is refused any more the limit passes the old edge, slowly at first, then fast."""
    load = Load(AdaptiveLimit(512, start=60))
    load.end("throttled", 3, newest=True)
    load.end("ok", 30 * 60)
    assert load.limit.limit > 120


def test_an_edge_that_moves_down_is_followed() -> None:
    """Refused again where it was served before, with successes between: the new level is the edge."""
    load = Load(AdaptiveLimit(512, start=60))
    for _ in range(10):
        load.end("throttled", 3, newest=True)
        load.end("ok", 80)
    assert 20 <= load.limit.limit <= 45


def test_a_quota_that_ran_out_is_not_mistaken_for_an_edge() -> None:
    """Refused down to one and then served again, the limit returns to where it was within a few rounds."""
    load = Load(AdaptiveLimit(512, start=60))
    load.end("ok", 10)
    for _ in range(300):  # what was sent before the last cut is served, what is sent after it is refused
        if load.stamps[-1] == load.limit.admit(load.now, 1):
            load.end("throttled", latency=0.05, newest=True)
        else:
            load.end("ok", latency=0.05)
    assert load.limit.limit == 1
    load.end("ok", 150)
    assert load.limit.limit >= 50


def test_a_refusal_of_one_that_was_alone_is_not_about_the_limit() -> None:
    """An exhausted quota refuses single requests: the limit is needed again when it resets."""
    limit = AdaptiveLimit(512)
    for _ in range(50):
        limit.release(limit.admit(0.0, 1), "throttled", 0.1, 0, 0.1, 0)
    assert limit.limit == START


def test_after_a_cut_one_refusal_below_it_is_enough() -> None:
    """Nothing was served since: the server's capacity is below the cut, and is followed down at once."""
    load = Load(AdaptiveLimit(512, start=60))
    load.end("throttled", 3, newest=True, latency=0.05)
    before = load.limit.limit
    stamp = load.limit.admit(load.now, 31)
    load.limit.release(stamp, "throttled", load.now + 0.1, 30, 0.05, 0)
    assert load.limit.limit == before // 2 or load.limit.limit <= 0.7 * before


@pytest.mark.parametrize(("served_at_once", "fewer"), [(1, True), (2, True), (30, False), (60, False)])
def test_replies_one_after_another_mean_a_queue(served_at_once: int, fewer: bool) -> None:
    """If the first replies come a few at a time the start was too high; if half of it is served at once it was not."""
    limit = AdaptiveLimit(512)
    stamps = [limit.admit(0.0, i + 1) for i in range(START)]
    for i in range(40):
        now = 2.0 * (i // served_at_once + 1) + i / 1000
        limit.release(stamps[i], "ok", now, START - 1, now, 0)
        stamps.append(limit.admit(now, START))
    assert (limit.limit < START) == fewer


def test_the_ramp_ends_where_more_in_flight_lowers_throughput() -> None:
    """Half a window is enough: the rest would only add load."""
    limit = AdaptiveLimit(512)
    load = Load(limit)
    load.end("ok", START)
    assert limit.limit == 2 * START
    for _ in range(START + 2):
        load.end("ok", latency=8.0)
    assert limit.mode == "hill"
    assert limit.limit == START


def test_a_level_is_not_measured_while_earlier_requests_hold_slots() -> None:
    """Requests sent under higher load come back late and slow."""
    limit = AdaptiveLimit(512)
    load = Load(limit)
    load.end("ok", START)
    for _ in range(START + 2):
        load.end("ok", latency=8.0)
    epoch = load.limit.admit(load.now, len(load.stamps))
    while len(load.stamps) > START:
        load.end("ok", refill=False)
    slow = [load.stamps.pop() for _ in range(START // 4)]
    assert all(stamp < epoch for stamp in slow)
    load.stamps = [epoch] * (START - len(slow))
    for _ in range(10 * START):  # far better than before, with a quarter of the slots held by earlier requests
        load.now += 0.001
        limit.release(epoch, "ok", load.now, START - 1, 2.0, 0)
    assert limit.limit == START


def test_the_first_round_after_idling_is_not_compared() -> None:
    """Requests sent together come back together: that is no loss of throughput."""
    limit = AdaptiveLimit(512)
    load = Load(limit)
    load.end("ok", START)
    level = limit.limit
    while len(load.stamps) > 1:
        load.end("ok", refill=False)
    load.now += 60.0
    load.fill()
    load.now += 8.0
    load.end("ok", len(load.stamps) // 2 + 2, latency=2.0)
    assert limit.mode == "ramp"
    assert limit.limit >= level


def test_one_overload_stops_growth_for_a_while() -> None:
    """A single 503 in the ramp costs some successes without growth, not a cut."""
    load = Load(AdaptiveLimit(512))
    load.end("overloaded", latency=0.05)
    load.end("ok", AdaptiveLimit.OVERLOAD_PAUSE)
    assert load.limit.limit == START
    load.end("ok", 1)
    assert load.limit.limit == START + 1


def test_overloads_while_mostly_idle_teach_nothing() -> None:
    """With few in flight, a lower limit would not help an overloaded server."""
    limit = AdaptiveLimit(512, start=100)
    for _ in range(40):
        limit.release(limit.admit(0.0, 3), "overloaded", 0.1, 2, 0.1, 0)
    assert limit.limit == 100


def test_many_overloads_cut_like_a_refusal() -> None:
    """A server that sheds load with 503 is treated like one that answers 429."""
    load = Load(AdaptiveLimit(512))
    load.end("overloaded", 32, latency=0.05)
    assert load.limit.limit < START


def test_an_outage_is_one_cut() -> None:
    """Everything in flight failing at once costs one cut: the level is needed again afterwards."""
    load = Load(AdaptiveLimit(512, start=60))
    load.end("ok", 5, latency=2.0)
    level = load.limit.limit
    load.end("overloaded", len(load.stamps), latency=0.05, refill=False)
    assert load.limit.limit >= AdaptiveLimit.CUT * level - 1


def test_timeouts_in_a_queue_lower_the_limit() -> None:
    """To about half of what is served within the timeout."""
    limit = AdaptiveLimit(512)
    stamps = [limit.admit(0.0, i + 1) for i in range(32)]
    for i in range(24):  # one server, 2.5 s each
        now = 2.5 * (i + 1)
        limit.release(stamps[i], "ok", now, limit.limit - 1, now, 0)
    limit.release(stamps[24], "overloaded", 60.0, limit.limit - 1, 60.0, 0)
    assert 12 <= limit.limit <= 16


def test_a_timeout_after_an_idle_hour_is_no_queue() -> None:
    """Pauses between batches do not count as slow service."""
    load = Load(AdaptiveLimit(60, start=60))
    load.end("ok", 120)
    load.now += 3600.0
    load.end("ok", 30)
    load.end("overloaded", latency=60.0)
    assert load.limit.limit >= 50


OUTCOMES = st.sampled_from(["ok", "ok", "ok", "throttled", "overloaded", "ignored"])
EVENTS = st.lists(st.tuples(OUTCOMES, st.floats(0.001, 100.0), st.integers(0, 3000), st.booleans()), max_size=300)


@settings(max_examples=60, deadline=None)
@given(ceiling=st.integers(1, 600), start=st.integers(1, 600), events=EVENTS)
def test_any_history_keeps_the_limit_in_bounds(
    ceiling: int, start: int, events: list[tuple[Outcome, float, int, bool]]
) -> None:
    """Between one and the ceiling."""
    limit = AdaptiveLimit(ceiling, start)
    now, out = 0.0, [limit.admit(0.0, 1)]
    for outcome, latency, tokens, oldest_first in events:
        while len(out) < limit.limit:
            out.append(limit.admit(now, len(out) + 1))
        now += latency / 10
        stamp = out.pop(0 if oldest_first else -1)
        limit.release(stamp, outcome, now, len(out), latency, tokens)
        assert 1 <= limit.limit <= ceiling
    assert str(limit.limit) in repr(limit)


def test_fixed_limit_learns_nothing() -> None:
    """A number the user gave stays, at least one."""
    load = Load(FixedLimit(7))
    load.end("throttled", 20)
    load.end("ok", 20)
    assert load.limit.limit == 7
    assert FixedLimit(0).limit == 1
    assert repr(FixedLimit(7)) == "FixedLimit(7)"


def test_a_request_sent_before_a_cut_is_stale() -> None:
    """One sent at the lower limit is not."""
    limit = AdaptiveLimit(512, start=60)
    before = [limit.admit(0.0, number + 1) for number in range(60)]
    assert not limit.is_stale(before[0])
    for stamp in before[:3]:
        limit.release(stamp, "throttled", 0.1, 59, 0.1, 0)
    assert limit.limit < 60
    assert limit.is_stale(before[3])
    assert not limit.is_stale(limit.admit(0.2, 57))
