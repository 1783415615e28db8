"""Goodput windows and the search for the lowest level that is about the best."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from referee.limits.throughput_search import Meter, ThroughputSearch, _LevelStats, gain

STALE, HARM_STALE = ThroughputSearch.STALE, ThroughputSearch.HARM_STALE


def after_a_step_to(level: int) -> ThroughputSearch:
    """Two windows at 60 gave 60 a second, and it stands on a neighbour now."""
    search = ThroughputSearch(512, 60)
    search.begin(60, [(48, 48.0)] if level > 60 else [(121, 60.0)])
    visits(search, lambda _: 60.0, 2)
    assert search.level == level
    return search


def test_gain_is_one_with_room_and_zero_in_a_queue() -> None:
    """Twice the throughput for twice the requests is a gain of one; the same throughput is none; less is negative."""
    assert gain(10, 5.0, 20, 10.0) == pytest.approx(1.0)
    assert gain(10, 5.0, 20, 5.0) == pytest.approx(0.0)
    assert gain(10, 5.0, 20, 4.0) < 0


def opened(level: int, now: float = 0.0, in_flight: int = 0, least: int = 1) -> Meter:
    """A meter with a window that begins now."""
    meter = Meter()
    meter.start(level, now, in_flight, least)
    return meter


def test_window_closes_after_one_generation() -> None:
    """A window is as many completions as the limit, and its throughput is their number over the time."""
    meter = opened(4, 10.0)
    assert [meter.add(0, 10.0 + i, 3, 1.0) for i in (1, 2, 3)] == [None, None, None]
    assert meter.add(0, 14.0, 3, 1.0) == pytest.approx(1.0)


def test_window_can_ask_for_more_than_a_generation() -> None:
    """Small limits are measured over more completions."""
    meter = opened(1, least=3)
    assert [meter.add(0, float(i), 0, 1.0) for i in (1, 2)] == [None, None]
    assert meter.add(0, 3.0, 0, 1.0) == pytest.approx(1.0)


def test_work_is_counted_in_tokens_where_they_are_known() -> None:
    """Long replies count for more, so a change of reply length is not mistaken for a change of speed."""
    meter = opened(2)
    meter.add(68, 1.0, 1, 1.0)
    assert meter.add(168, 2.0, 1, 1.0) == pytest.approx((68 + 168 + 2 * Meter.PREFILL_TOKENS) / 2)
    meter.start(1, 2.0, 1)
    known = meter.add(0, 3.0, 0, 1.0)
    assert known is not None
    assert known > Meter.PREFILL_TOKENS  # a reply without a count is taken as an average one


def test_simultaneous_completions_do_not_divide_by_zero() -> None:
    """A window that closes in the instant it began stays open."""
    meter = opened(1, 5.0)
    assert meter.add(0, 5.0, 0, 1.0) is None
    assert meter.add(0, 6.0, 0, 1.0) == pytest.approx(2.0)


def test_the_prospect_is_the_pace_of_what_was_sent_in_the_window() -> None:
    """Ten places, eight of them held since before: the other two answer once a second each, so ten would give ten."""
    meter = opened(10, 5.0, in_flight=8)
    for i in range(1, 9):
        meter.add(0, 5.0 + i / 2, 9, 0.25)
    assert meter.throughput(9.0) == pytest.approx(2.0)
    assert meter.projected() == pytest.approx(10.0)


def test_an_answer_as_old_as_the_window_is_its_own() -> None:
    """Also where others were in flight before."""
    meter = opened(4, 0.0, in_flight=2)
    meter.add(0, 1.0, 3, 1.0)
    assert meter.projected() > 0.0


def test_a_place_held_since_before_is_free_when_its_answer_comes() -> None:
    """One old answer, then two places work: three answers to what was sent since, in three seconds of two and one of
    one."""
    meter = opened(2, 0.0, in_flight=1)
    meter.add(0, 1.0, 1, 30.0)
    assert meter.projected() == 0.0
    for now in (2.0, 3.0, 4.0):
        meter.add(0, now, 1, 0.5)
    assert meter.projected() == pytest.approx(2 * 3 / (1 + 3 * 2))


def test_the_prospect_of_a_start_counts_everything() -> None:
    """All were sent as the window began, and an answer as old as the window is one of them."""
    meter = opened(4, 0.0)
    for now in (1.0, 2.0):
        meter.add(68, now, 3, now)
    assert meter.projected() == pytest.approx(4 * 2 * (68 + Meter.PREFILL_TOKENS) / (4 * 2.0))
    meter.start(4, 2.0, 0)
    assert meter.projected() == 0.0
    meter.add(0, 3.0, 3, 5.0)  # older than the window, although nothing was in flight: clocks differ a little
    assert meter.projected() > 0.0


def test_the_prospect_counts_one_at_least() -> None:
    """Fewer in flight than were there before: reports of several processes do not quite agree."""
    meter = opened(4, 0.0, in_flight=9)
    meter.add(0, 2.0, 3, 1.0)
    assert meter.projected() == pytest.approx(4 / 2.0)


def settle(search: ThroughputSearch, bend: float, windows: int, noise: float = 0.0, seed: int = 1) -> list[int]:
    """Levels visited on a server whose throughput rises in proportion up to `bend` and not beyond."""
    rng = random.Random(seed)
    visited = []
    for _ in range(windows):
        visited.append(search.level)
        search.record(min(search.level, bend) * rng.lognormvariate(0.0, noise))
        if search.ramp_again:
            search.begin(search.level, [])
    return visited


@pytest.mark.parametrize("start", [4, 20, 63, 100, 512])
def test_hill_settles_near_the_bend(start: int) -> None:
    """From below or above, it ends where throughput stops rising, within a step."""
    search = ThroughputSearch(512, 1)
    search.begin(start, [])
    assert all(50 <= level <= 100 for level in settle(search, 60.0, 120)[60:])


@pytest.mark.parametrize("seed", range(5))
def test_noise_does_not_carry_it_away(seed: int) -> None:
    """With windows that are off by a tenth it still spends its time around the bend."""
    search = ThroughputSearch(512, 1)
    search.begin(63, [])
    late = settle(search, 60.0, 400, noise=0.1, seed=seed)[50:]
    assert 50 <= sum(late) / len(late) <= 110
    assert sum(level < 50 for level in late) < 0.05 * len(late)


def test_higher_levels_are_looked_at_again() -> None:
    """On a level that suffices, the next one up is tried every so often: capacity may have grown."""
    search = ThroughputSearch(512, 1)
    search.begin(63, [])
    late = settle(search, 60.0, 5 * STALE)[-2 * STALE :]
    assert any(level > 63 for level in late)


def test_one_window_is_too_few_to_climb_on() -> None:
    """An unknown level above is tried after the second window, not the first."""
    search = ThroughputSearch(512, 1)
    search.begin(63, [])
    levels = []
    for _ in range(2):
        search.record(60.0)
        levels.append(search.level)
    assert levels == [63, 79]


def test_one_window_is_too_few_to_look_below() -> None:
    """The first window at a level may still be marked by the crowd before it. The level below is tried after two."""
    search = ThroughputSearch(512, 60)
    search.begin(60, [(60, 40.0), (121, 41.0)])
    levels = []
    for _ in range(2):
        search.record(60.0)
        levels.append(search.level)
    assert levels == [60, 48]


def visits(search: ThroughputSearch, throughput: Callable[[int], float], windows: int) -> list[int]:
    """Levels visited on a server that gives so much at each level."""
    visited = []
    for _ in range(windows):
        visited.append(search.level)
        search.record(throughput(search.level))
    return visited


def test_a_hint_about_the_level_it_stands_on_is_not_compared_with_itself() -> None:
    """The ramp saw harm at 76; when that is old, 76 is looked at again, and left again."""
    search = ThroughputSearch(512, 60)
    search.begin(60, [(76, 20.0)])
    visited = visits(search, lambda level: level if level <= 60 else 45.0, 2 * HARM_STALE)
    assert 76 in visited
    assert visited[-1] == 60


def test_a_step_cannot_double_throughput() -> None:
    """A step down gave twice as much, or a step up more than a step can: the server has grown, and the way up is
    clear."""
    for level, throughput in ((48, 91.0), (76, 115.0)):
        search = after_a_step_to(level)
        search.record(throughput)
        assert search.ramp_again
        assert search.level == level


@pytest.mark.parametrize(("level", "throughput"), [(48, 89.0), (76, 113.0), (48, 33.0), (76, 41.0)])
def test_what_a_step_and_chance_can_do_is_no_change(level: int, throughput: float) -> None:
    """Within half as much again of what the step itself would bring, up or down, what is known stays known."""
    search = after_a_step_to(level)
    search.record(throughput)
    assert not search.ramp_again
    assert len(search._stats) == 3


@pytest.mark.parametrize(("level", "throughput"), [(48, 31.0), (76, 39.0)])
def test_a_step_cannot_halve_throughput(level: int, throughput: float) -> None:
    """The server has shrunk: what was known of it counts no more."""
    search = after_a_step_to(level)
    search.record(throughput)
    assert not search.ramp_again
    assert len(search._stats) == 1
    assert search.level == level


def test_what_is_stale_is_not_averaged_with_what_is_new() -> None:
    """60 was enough for long. When 76 gives all that it could, its old mean does not hide that."""
    search = ThroughputSearch(512, 60)
    search.begin(60, [])
    visits(search, lambda level: min(level, 60.0), 2 * STALE)
    while search.level == 60:
        search.record(60.0)
    search.record(76.0)
    assert search.ramp_again


@pytest.mark.parametrize(("later", "mean", "since"), [(STALE, 15.0, 1), (STALE + 1, 20.0, STALE + 2)])
def test_a_level_not_seen_for_long_begins_anew(later: int, mean: float, since: int) -> None:
    """What it gave before counts no more; in how many windows it was seen still does."""
    stats = _LevelStats(10.0, 1)
    stats.add(10.0, 1)
    stats.add(20.0, 1 + later)
    assert stats.throughput == pytest.approx(mean)
    assert (stats.first, stats.last, stats.windows) == (since, 1 + later, 2)


def test_a_mean_is_of_the_last_windows() -> None:
    """Of the first four, of all; then the newest counts for a quarter."""
    stats = _LevelStats(99.0, 0)
    for throughput in (10.0, 20.0, 30.0, 40.0):
        stats.add(throughput, 1)
    assert stats.throughput == pytest.approx(25.0)
    stats.add(65.0, 1)
    assert stats.throughput == pytest.approx(35.0)


@pytest.mark.parametrize(("above", "windows"), [(43.0, HARM_STALE), (44.0, STALE)])
def test_harm_that_is_no_chance_is_looked_at_seldom(above: float, windows: int) -> None:
    """At 121 the ramp saw 43 in place of 60, less by three times what chance makes of 121 answers."""
    search = ThroughputSearch(512, 60)
    search.begin(60, [(121, above)])
    visited = visits(search, lambda level: min(level, 60.0), windows + 3)
    assert visited.index(76) == windows + 1


def test_harm_seen_again_and_again_is_harm() -> None:
    """A fifth less in the 76 answers of one look may be chance; in three looks it is not."""
    search = ThroughputSearch(512, 60)
    search.begin(60, [])
    visited = visits(search, lambda level: level if level <= 60 else 47.0, 6 * STALE + HARM_STALE)
    looks = [at for at, level in enumerate(visited) if level == 76]
    assert [b - a for a, b in itertools.pairwise(looks)] == [STALE + 2, STALE + 2, HARM_STALE + 2]


@pytest.mark.parametrize(("since", "known"), [(STALE, True), (STALE + 1, False)])
def test_harm_of_another_time_is_none(since: int, known: bool) -> None:
    """What 121 gave long before 60 was measured does not say how the two compare now."""
    search = ThroughputSearch(512, 60)
    search.begin(60, [(60, 60.0), (121, 20.0)])
    here, above = sorted(search._stats)
    search._stats[here].first = since
    search._window = HARM_STALE
    assert search._is_current(here, above) is known


def test_a_clear_way_up_is_seen() -> None:
    """After steps that each paid in full, or when throughput jumps by itself, climbing step by step is too slow."""
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


def test_after_a_collapse_old_levels_are_not_looked_up() -> None:
    """A lower level that was better before the change is no reason to go there."""
    search = ThroughputSearch(512, 1)
    search.begin(63, [(50, 50.0), (128, 60.0)])
    settle(search, 60.0, 4)
    here = search.level
    search.record(20.0)
    assert search.level == here


def test_a_changed_server_makes_old_measurements_void() -> None:
    """When throughput collapses, levels measured before are not compared with levels measured after."""
    search = ThroughputSearch(512, 1)
    search.begin(63, [])
    settle(search, 60.0, 40)
    late = settle(search, 60.0 / ThroughputSearch.CHANGE / 1.5, 80)[-20:]
    assert max(late) <= 50


@pytest.mark.parametrize("middle", [1, 2, 5, 60, 63, 512, 1000])
def test_where_work_begins_is_one_of_the_levels(middle: int) -> None:
    """From one to the ceiling, each level above the last by a third of a doubling at most, or by one."""
    search = ThroughputSearch(512, middle)
    levels = []
    for level in range(1, 513):
        search.begin(level, [])
        levels.append(search.level)
    found = sorted(set(levels))
    assert found[0] == 1
    assert found[-1] == 512
    assert min(middle, 512) in found
    assert all(high <= max(low + 1, 1.35 * low) for low, high in itertools.pairwise(found))
    for wanted, level in enumerate(levels, 1):
        assert all(
            max(level, wanted) * min(other, wanted) <= max(other, wanted) * min(level, wanted) for other in found
        )


def test_hints_about_lower_levels_do_not_last() -> None:
    """A cold start made the lower level look poor; measured anew it is as good, and it is taken."""
    search = ThroughputSearch(512, 60)
    search.begin(76, [(60, 45.0), (121, 30.0)])
    visited = []
    for _ in range(30):
        visited.append(search.level)
        search.record(min(search.level, 60.0 * (60 / search.level) ** 0.5))
    assert visited[-1] == 60


def test_a_window_knows_its_age() -> None:
    """For telling a line from a crowd."""
    meter = opened(4, 10.0)
    assert meter.age(12.0) == pytest.approx(2.0)
    meter.start(4, 20.0, 0)
    assert meter.age(20.0) == 0.0


def test_hints_from_the_ramp_say_where_to_look() -> None:
    """A level known to be no better is not tried first."""
    search = ThroughputSearch(512, 1)
    search.begin(64, [(32, 30.0), (64, 60.0), (128, 61.0)])
    assert search.level == 63
    assert max(settle(search, 60.0, STALE // 2)) <= 79


@settings(max_examples=60, deadline=None)
@given(
    ceiling=st.integers(1, 600),
    start=st.integers(1, 600),
    windows=st.lists(st.floats(1e-6, 1e6), max_size=100),
)
def test_any_measurements_keep_the_level_in_bounds(ceiling: int, start: int, windows: list[float]) -> None:
    """Whatever is measured, the level stays between one and the ceiling."""
    search = ThroughputSearch(ceiling, 1)
    search.begin(min(start, ceiling), [])
    for throughput in windows:
        search.record(throughput)
        assert 1 <= search.level <= ceiling
    assert Meter.MIN_WINDOW > 1
