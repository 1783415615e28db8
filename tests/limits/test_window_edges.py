"""Windows at their edges: what a pace learns from few requests, what odd headers leave, what a reply is worth, where
comparisons of levels begin and end."""

from __future__ import annotations

import math

import pytest

from referee.limits.header_quota import HeaderQuota
from referee.limits.learned_rate import LearnedRate
from referee.limits.throughput_search import Meter, ThroughputSearch


def learned(at: float, count: int, opened: float) -> LearnedRate:
    """A pace that sent so many at one moment, was refused, and was served again."""
    pace = LearnedRate()
    for _ in range(count):
        pace.on_send(at)
    pace.on_reopen(opened, at)
    return pace


def heard(limit: float | None, remaining: float, reset: float = 30.0) -> HeaderQuota:
    """After one answer to a request of one at time 0."""
    left = HeaderQuota()
    left.on_headers(limit, remaining, reset, 1, 0.0, 0.0)
    return left


def test_when_it_opens_is_known_only_of_a_window() -> None:
    """Before one was learned it is long ago; then it is when the first of what was sent falls out."""
    pace = LearnedRate()
    pace.on_send(0.0)
    assert pace.reopens_at() == -math.inf
    pace = learned(0.0, 10, 60.0)
    assert pace.reopens_at() == -math.inf
    pace.on_send(60.0)
    pace.on_send(70.0)
    assert pace.reopens_at() == pytest.approx(60.0 + 60.0 * (1 + 1 / LearnedRate.RESOLUTION))


@pytest.mark.parametrize(("at", "opened", "seconds"), [(100.0, 110.0, 10.0), (0.0, 0.5, 0.5)])
def test_a_window_lasts_from_its_first_request(at: float, opened: float, seconds: float) -> None:
    """Also one of less than a second, and of a single request."""
    pace = learned(at, 1, opened)
    assert pace.window_s == pytest.approx(seconds)
    assert pace.quota == 1


def test_what_was_forgotten_does_not_begin_a_window() -> None:
    """Sent at 0 and 30, refused at 65: the window is counted from the second on, by its grain."""
    pace = LearnedRate()
    pace.on_send(0.0)
    pace.on_send(30.0)
    pace.on_reopen(70.0, 65.0)
    assert pace.window_s == pytest.approx(70.0 - 30.0 - 60.0 / LearnedRate.RESOLUTION)


def test_a_refusal_that_was_no_look_puts_none_off() -> None:
    """One of the ten was refused: ten more may go, and the look."""
    pace = learned(0.0, 10, 60.0)
    pace.on_send(60.0)
    pace.on_refusal(60.1)
    sent = 0
    while pace.wait(60.2) == 0.0:
        pace.on_send(60.2)
        sent += 1
    assert sent == 11


def test_requests_fall_out_of_the_window_by_their_grains() -> None:
    """Five of 60 and five of 90: at 121 the first five are gone. Those of one moment are counted together."""
    pace = learned(0.0, 10, 60.0)
    for at in [60.0] * 5 + [90.0] * 5:
        pace.on_send(at)
    assert len(pace._sent) == 2
    pace.wait(121.0)
    assert repr(pace) == "LearnedRate(5 of 10 in 60 s)"


def test_a_limit_of_nothing_is_no_limit() -> None:
    """It is a broken header; what is left is waited for all the same."""
    assert heard(0, 0).wait(1, 0.0) == pytest.approx(30.0)


def test_a_shortage_that_is_rounding_is_none() -> None:
    """A millionth of what is asked for, and of one at least."""
    assert heard(2e6, 1e6 - 0.5).wait(1e6, 0.0) == 0.0
    assert heard(2e6, 1e6 - 2.0).wait(1e6, 0.0) > 0.0
    assert heard(600, 1 - 0.5e-6).wait(1, 0.0) == 0.0
    assert heard(600, 1 - 1.5e-6).wait(1, 0.0) > 0.0


def test_a_slow_limit_that_fills_evenly_is_seen() -> None:
    """Thirty a minute: one is there after two seconds."""
    left = HeaderQuota()
    left.on_headers(30, 29, 2.0, 1, 0.0, 0.0)
    left.on_headers(30, 0, 60.0, 1, 10.0, 10.0)
    assert left.wait(1, 10.0) == pytest.approx(2.0)


def test_what_is_heard_after_the_turn_counts_alone() -> None:
    """Where the turn ended all that was known, the next answer starts from nothing."""
    left = heard(None, 0, 10.0)
    assert left.wait(1, 10.0) == 0.0
    left.on_headers(None, 1, 30.0, 1, 11.0, 11.0)
    assert repr(left) == "HeaderQuota(1)"
    assert left.wait(1, 11.0) == 0.0


def test_a_reply_without_a_count_is_taken_as_the_mean() -> None:
    """The first reply, and a fiftieth of each further one's difference; also a reply of one token has a count."""
    meter = Meter()
    meter.start(1, 0.0, 0)
    assert meter.add(1, 1.0, 0, 1.0) == pytest.approx(1 + Meter.PREFILL_TOKENS)
    meter.add(51, 2.0, 0, 1.0)
    meter.start(1, 2.0, 0)
    assert meter.add(0, 3.0, 0, 1.0) == pytest.approx(1 + Meter.PREFILL_TOKENS + 50 / 50)


def told(search: ThroughputSearch, *throughputs: float) -> list[int]:
    """Where it is after each window."""
    levels = []
    for throughput in throughputs:
        search.record(throughput)
        levels.append(search.level)
    return levels


def at_60(*hints: tuple[int, float]) -> ThroughputSearch:
    """Levels 48, 60 and 76 among others, standing on 60."""
    search = ThroughputSearch(512, 60)
    search.begin(60, list(hints))
    return search


def test_there_is_no_level_below_one() -> None:
    """However little is lost on the way down; there it stays, and looks at two now and then."""
    levels = told(ThroughputSearch(8, 4), *[1.0] * 40)
    assert levels[:8] == [4, 5, 4, 3, 3, 2, 2, 1]
    assert set(levels[8:]) == {1, 2}


def test_it_stands_where_work_begins() -> None:
    """Before anybody tells it where to begin."""
    assert ThroughputSearch(512, 60).level == 60


@pytest.mark.parametrize("throughput", [90.0, 40.0])
def test_half_as_much_again_is_no_change_yet(throughput: float) -> None:
    """A third less is the same the other way round."""
    search = at_60((121, 60.0))
    told(search, 60.0, throughput)
    assert not search.ramp_again
    assert len(search._stats) > 1


def test_steps_that_paid_are_counted_in_a_row() -> None:
    """Up, down again, and up: that is one step up, not two, and no reason to run."""
    search = at_60((48, 48.0))
    assert told(search, 60.0, 60.0, 60.0, 45.0) == [60, 76, 60, 76]
    search.record(76.0)
    assert not search.ramp_again


def test_after_a_collapse_steps_are_counted_from_nothing() -> None:
    """One step up that paid well is no clear way."""
    search = at_60((121, 60.0))
    assert told(search, 60.0, 39.0, 39.0, 49.4, 49.4) == [60, 60, 76, 76, 96]
    assert not search.ramp_again


def test_hints_about_a_lower_level_count_for_six_windows() -> None:
    """Then it is looked at."""
    assert told(at_60((48, 40.0), (121, 60.0)), *[60.0] * 7) == [60] * 6 + [48]


def test_the_ceiling_is_a_level_too() -> None:
    """It is climbed to like the others."""
    assert told(ThroughputSearch(76, 60), 60.0, 60.0) == [60, 76]


@pytest.mark.parametrize(("throughput", "look"), [(55.3, False), (54.0, True)])
def test_where_throughput_rose_up_to_here_the_level_below_is_not_looked_at_again(throughput: float, look: bool) -> None:
    """48 gave 48. If 60 gives 55.2 or more, throughput rose up to a bend above 55.2; below that, 48 may do as well."""
    search = at_60((121, 60.0))
    assert told(search, 60.0, 60.0, 48.0) == [60, 48, 60]
    levels = told(search, *[throughput] * 30)
    assert (48 in levels) is look
    assert levels.index(76) == ThroughputSearch.STALE - 3
    assert not look or levels.index(48) == ThroughputSearch.STALE


@pytest.mark.parametrize(("above", "known"), [(45.0, True), (45.1, False)])
def test_three_times_what_chance_does_is_harm(above: float, known: bool) -> None:
    """A quarter less in 144 answers."""
    search = ThroughputSearch(512, 144)
    search.begin(114, [(114, 60.0), (144, above)])
    search._window = ThroughputSearch.HARM_STALE
    assert search._is_current(*sorted(search._stats)) is known


def test_short_windows_are_measured_too() -> None:
    """A quarter of a second is no whole one."""
    meter = Meter()
    meter.start(1, 0.0, 0)
    assert meter.add(0, 0.25, 0, 0.25) == pytest.approx(4.0)
    assert meter.projected() == pytest.approx(4.0)
