"""Throughput windows, and the search for the lowest level with about the best throughput."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from referee.limits.throughput_search import Meter, ThroughputSearch, gain

STALE, HARM_STALE = ThroughputSearch.STALE, ThroughputSearch.HARM_STALE


def test_gain_is_one_with_room_and_zero_in_a_queue() -> None:
    """Twice the throughput for twice the requests is a gain of 1; the same throughput is 0; less is negative."""
    assert gain(10, 5.0, 20, 10.0) == pytest.approx(1.0)
    assert gain(10, 5.0, 20, 5.0) == pytest.approx(0.0)
    assert gain(10, 5.0, 20, 4.0) < 0


def started(level: int, now: float = 0.0, in_flight: int = 0, least: int = 1) -> Meter:
    """A meter with an open window."""
    meter = Meter()
    meter.start(level, now, in_flight, least)
    return meter


def test_a_window_closes_after_one_generation() -> None:
    """As many completions as the limit; throughput is their number over time."""
    meter = started(4, 10.0)
    assert [meter.add(0, 10.0 + i, 3, 1.0) for i in (1, 2, 3)] == [None, None, None]
    assert meter.add(0, 14.0, 3, 1.0) == pytest.approx(1.0)


def test_a_window_can_ask_for_more_than_a_generation() -> None:
    """Small limits are measured over more completions."""
    meter = started(1, least=3)
    assert [meter.add(0, float(i), 0, 1.0) for i in (1, 2)] == [None, None]
    assert meter.add(0, 3.0, 0, 1.0) == pytest.approx(1.0)


def test_a_window_shorter_than_a_second_is_measured() -> None:
    """Four per second in a quarter of one."""
    meter = started(1)
    assert meter.add(0, 0.25, 0, 0.25) == pytest.approx(4.0)
    assert meter.projected() == pytest.approx(4.0)


def test_work_is_counted_in_tokens_where_they_are_known() -> None:
    """Long replies count for more, so a change of reply length is not mistaken for a change of speed."""
    meter = started(2)
    meter.add(68, 1.0, 1, 1.0)
    assert meter.add(168, 2.0, 1, 1.0) == pytest.approx((68 + 168 + 2 * Meter.PREFILL_TOKENS) / 2)


def test_a_reply_without_a_token_count_is_taken_as_the_mean() -> None:
    """A moving average of those with one."""
    meter = started(1)
    meter.add(1, 1.0, 0, 1.0)
    meter.start(1, 1.0, 0)
    assert meter.add(0, 2.0, 0, 1.0) == pytest.approx(1 + Meter.PREFILL_TOKENS)


def test_simultaneous_completions_do_not_divide_by_zero() -> None:
    """A window that closes in the instant it began stays open."""
    meter = started(1, 5.0)
    assert meter.add(0, 5.0, 0, 1.0) is None
    assert meter.add(0, 6.0, 0, 1.0) == pytest.approx(2.0)


def test_projected_throughput_counts_only_what_was_sent_in_the_window() -> None:
    """Of ten slots eight are held by earlier requests: the other two serve one per second each, so ten would serve
    ten."""
    meter = started(10, 5.0, in_flight=8)
    for i in range(1, 9):
        meter.add(0, 5.0 + i / 2, 9, 0.25)
    assert meter.throughput(9.0) == pytest.approx(2.0)
    assert meter.projected() == pytest.approx(10.0)


def test_a_reply_as_old_as_the_window_belongs_to_it() -> None:
    """Even with earlier requests in flight."""
    meter = started(4, 0.0, in_flight=2)
    meter.add(0, 1.0, 3, 1.0)
    assert meter.projected() > 0.0


def test_the_slot_of_an_earlier_request_is_free_after_its_reply() -> None:
    """Then two slots work: three replies in one slot-second and three seconds of two slots."""
    meter = started(2, 0.0, in_flight=1)
    meter.add(0, 1.0, 1, 30.0)
    assert meter.projected() == 0.0
    for now in (2.0, 3.0, 4.0):
        meter.add(0, now, 1, 0.5)
    assert meter.projected() == pytest.approx(2 * 3 / (1 + 3 * 2))


def test_projected_throughput_of_a_cold_start_counts_everything() -> None:
    """All requests were sent as the window began."""
    meter = started(4, 0.0)
    for now in (1.0, 2.0):
        meter.add(68, now, 3, now)
    assert meter.projected() == pytest.approx(4 * 2 * (68 + Meter.PREFILL_TOKENS) / (4 * 2.0))
    meter.start(4, 2.0, 0)
    assert meter.projected() == 0.0
    meter.add(0, 3.0, 3, 5.0)  # older than the window with nothing in flight: clocks differ a little
    assert meter.projected() > 0.0


def test_projected_throughput_assumes_at_least_one_slot() -> None:
    """Reports of several processes may not agree: fewer in flight than when the window began."""
    meter = started(4, 0.0, in_flight=9)
    meter.add(0, 2.0, 3, 1.0)
    assert meter.projected() == pytest.approx(4 / 2.0)


def at_60(*hints: tuple[int, float]) -> ThroughputSearch:
    """A search with levels 48, 60 and 76 among others, at 60."""
    search = ThroughputSearch(512, 60)
    search.begin(60, list(hints))
    return search


def record(search: ThroughputSearch, *windows: float) -> list[int]:
    """The level after each window."""
    levels = []
    for throughput in windows:
        search.record(throughput)
        levels.append(search.level)
    return levels


def visits(search: ThroughputSearch, throughput: Callable[[int], float], windows: int) -> list[int]:
    """Levels visited on a server with that throughput by level."""
    visited = []
    for _ in range(windows):
        visited.append(search.level)
        search.record(throughput(search.level))
    return visited


def settle(search: ThroughputSearch, knee: float, windows: int, noise: float = 0.0, seed: int = 1) -> list[int]:
    """Levels visited on a server whose throughput rises in proportion up to `knee` and not beyond."""
    rng = random.Random(seed)
    visited = []
    for _ in range(windows):
        visited.append(search.level)
        search.record(min(search.level, knee) * rng.lognormvariate(0.0, noise))
        if search.ramp_again:
            search.begin(search.level, [])
    return visited


def after_a_step_to(level: int) -> ThroughputSearch:
    """Two windows at 60 gave 60 per second; now at a neighbouring level."""
    search = at_60((48, 48.0) if level > 60 else (121, 60.0))
    visits(search, lambda _: 60.0, 2)
    assert search.level == level
    return search


@pytest.mark.parametrize("start", [4, 20, 63, 100, 512])
def test_the_search_settles_near_the_knee(start: int) -> None:
    """From below or above, within a step."""
    search = ThroughputSearch(512, 1)
    search.begin(start, [])
    assert all(50 <= level <= 100 for level in settle(search, 60.0, 120)[60:])


@pytest.mark.parametrize("seed", range(5))
def test_noise_does_not_carry_it_away(seed: int) -> None:
    """With windows off by a tenth it still spends its time around the knee."""
    search = ThroughputSearch(512, 1)
    search.begin(63, [])
    late = settle(search, 60.0, 400, noise=0.1, seed=seed)[50:]
    assert 50 <= sum(late) / len(late) <= 110
    assert sum(level < 50 for level in late) < 0.05 * len(late)


def test_it_starts_at_the_start_level() -> None:
    """Before `begin` names another."""
    assert ThroughputSearch(512, 60).level == 60


def test_the_lowest_level_is_one() -> None:
    """There it stays, and probes two now and then."""
    levels = record(ThroughputSearch(8, 4), *[1.0] * 40)
    assert levels.index(1) < 10
    assert set(levels[levels.index(1) :]) == {1, 2}


def test_the_ceiling_is_a_level_too() -> None:
    """It is climbed to like the others."""
    assert record(ThroughputSearch(76, 60), 60.0, 60.0) == [60, 76]


def test_higher_levels_are_probed_again() -> None:
    """Capacity may have grown."""
    search = ThroughputSearch(512, 1)
    search.begin(63, [])
    late = settle(search, 60.0, 5 * STALE)[-2 * STALE :]
    assert any(level > 63 for level in late)


def test_one_window_is_too_few_to_probe_above() -> None:
    """An unknown level is tried after the second window."""
    assert record(at_60(), 60.0, 60.0) == [60, 76]


def test_one_window_is_too_few_to_probe_below() -> None:
    """The first window at a level may still show the load before it."""
    assert record(at_60((60, 40.0), (121, 41.0)), 60.0, 60.0) == [60, 48]


def test_a_level_known_to_do_harm_is_probed_and_left_again() -> None:
    """The ramp measured less at 76; when that is stale, 76 is probed."""
    search = at_60((76, 20.0))
    visited = visits(search, lambda level: level if level <= 60 else 45.0, 2 * HARM_STALE)
    assert 76 in visited
    assert visited[-1] == 60


@pytest.mark.parametrize(("level", "throughput"), [(48, 120.0), (76, 150.0)])
def test_more_than_a_step_can_bring_means_the_server_has_grown(level: int, throughput: float) -> None:
    """Twice the throughput after one step, down or up: ramp again."""
    search = after_a_step_to(level)
    search.record(throughput)
    assert search.ramp_again
    assert search.level == level


@pytest.mark.parametrize(("level", "throughput"), [(48, 70.0), (76, 90.0), (48, 40.0), (76, 50.0)])
def test_what_a_step_and_chance_can_do_is_no_change(level: int, throughput: float) -> None:
    """A fifth more or less than the step itself would bring."""
    search = after_a_step_to(level)
    search.record(throughput)
    assert not search.ramp_again


@pytest.mark.parametrize(("level", "throughput"), [(48, 20.0), (76, 25.0)])
def test_less_than_a_step_can_bring_means_the_server_has_shrunk(level: int, throughput: float) -> None:
    """Earlier measurements of other levels no longer count: it stays to measure this one."""
    search = after_a_step_to(level)
    search.record(throughput)
    assert not search.ramp_again
    assert search.level == level


def test_stale_measurements_are_replaced_not_averaged() -> None:
    """60 was enough for long. When 76 gives all it could, its old mean does not hide that."""
    search = at_60()
    visits(search, lambda level: min(level, 60.0), 2 * STALE)
    while search.level == 60:
        search.record(60.0)
    search.record(76.0)
    assert search.ramp_again


@pytest.mark.parametrize(("above", "windows"), [(35.0, HARM_STALE), (55.0, STALE)])
def test_a_significantly_worse_level_is_probed_rarely(above: float, windows: int) -> None:
    """At 121 the ramp measured 35 instead of 60, many standard errors less; 55 may be chance."""
    search = at_60((121, above))
    visited = visits(search, lambda level: min(level, 60.0), windows + 3)
    assert visited.index(76) == windows + 1


def test_repeated_probes_make_a_small_loss_significant() -> None:
    """A fifth less in one probe of 76 completions may be chance; in three it is not."""
    search = at_60()
    visited = visits(search, lambda level: level if level <= 60 else 47.0, 6 * STALE + HARM_STALE)
    probes = [at for at, level in enumerate(visited) if level == 76]
    assert [b - a for a, b in itertools.pairwise(probes)] == [STALE + 2, STALE + 2, HARM_STALE + 2]


def test_steps_that_each_pay_in_full_mean_ramp_again() -> None:
    """And so does throughput that jumps at one level: single steps are too slow."""
    search = ThroughputSearch(512, 1)
    search.begin(10, [])
    for _ in range(10):
        search.record(float(search.level))
        if search.ramp_again:
            break
    assert search.ramp_again
    assert search.level < 32
    search.begin(63, [(32, 30.0), (128, 60.0)])
    settle(search, 60.0, 3)
    assert not search.ramp_again
    search.record(2 * 60.0)
    assert search.ramp_again


def test_paying_steps_are_counted_in_a_row() -> None:
    """Up, down again and up is one step up, not two."""
    search = at_60((48, 48.0))
    assert record(search, 60.0, 60.0, 60.0, 45.0) == [60, 76, 60, 76]
    search.record(76.0)
    assert not search.ramp_again


def test_a_collapse_resets_the_count_of_paying_steps() -> None:
    """One step up that paid is not enough."""
    search = at_60((121, 60.0))
    assert record(search, 60.0, 39.0, 39.0, 49.4, 49.4) == [60, 60, 76, 76, 96]
    assert not search.ramp_again


def test_after_a_collapse_old_levels_are_not_compared() -> None:
    """A lower level that was better before the change is no reason to go there."""
    search = ThroughputSearch(512, 1)
    search.begin(63, [(50, 50.0), (128, 60.0)])
    settle(search, 60.0, 4)
    here = search.level
    search.record(20.0)
    assert search.level == here


def test_a_shrunk_server_is_followed_down() -> None:
    """Levels measured before are not compared with levels measured after."""
    search = ThroughputSearch(512, 1)
    search.begin(63, [])
    settle(search, 60.0, 40)
    assert max(settle(search, 25.0, 80)[-20:]) <= 50


def test_hints_about_lower_levels_do_not_last() -> None:
    """A cold start made the lower level look poor; measured again it is as good, and it is taken."""
    search = ThroughputSearch(512, 60)
    search.begin(76, [(60, 45.0), (121, 30.0)])
    assert visits(search, lambda level: min(level, 60.0 * (60 / level) ** 0.5), 40)[-1] == 60


def test_hints_from_the_ramp_say_where_to_search() -> None:
    """A level known to be no better is not tried first."""
    search = ThroughputSearch(512, 1)
    search.begin(64, [(32, 30.0), (64, 60.0), (128, 61.0)])
    assert search.level == 63
    assert max(settle(search, 60.0, STALE // 2)) <= 79


@pytest.mark.parametrize("start", [1, 2, 5, 60, 63, 512, 1000])
def test_levels_span_one_to_the_ceiling_and_include_the_start(start: int) -> None:
    """Each is above the last by a third of a doubling at most, or by one."""
    search = ThroughputSearch(512, start)
    levels = []
    for level in range(1, 513):
        search.begin(level, [])
        levels.append(search.level)
    found = sorted(set(levels))
    assert found[0] == 1
    assert found[-1] == 512
    assert min(start, 512) in found
    assert all(high <= max(low + 1, 1.35 * low) for low, high in itertools.pairwise(found))
    for wanted, level in enumerate(levels, 1):
        assert all(
            max(level, wanted) * min(other, wanted) <= max(other, wanted) * min(level, wanted) for other in found
        )


@settings(max_examples=60, deadline=None)
@given(
    ceiling=st.integers(1, 600),
    start=st.integers(1, 600),
    windows=st.lists(st.floats(1e-6, 1e6), max_size=100),
)
def test_any_measurements_keep_the_level_in_bounds(ceiling: int, start: int, windows: list[float]) -> None:
    """Between one and the ceiling."""
    search = ThroughputSearch(ceiling, 1)
    search.begin(min(start, ceiling), [])
    for throughput in windows:
        search.record(throughput)
        assert 1 <= search.level <= ceiling
