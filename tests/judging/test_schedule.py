"""Which pairs meet: no pair twice, nobody left out, the same again for the same outcomes."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from itertools import combinations

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from referee.judging.schedule import Pair, Schedule, calls, rounds_of

SCHEDULES: tuple[Schedule, ...] = ("circular", "all", "knockout", "swiss")
Judge = Callable[[Pair], float | None]

schedules = st.sampled_from(SCHEDULES)
counts = st.integers(2, 33)
wishes = st.integers(0, 40)
seeds = st.integers(0, 10**6)


def play(schedule: Schedule, count: int, rounds: int, judge: Judge) -> list[list[Pair]]:
    """All rounds of a schedule, with this judge's outcomes."""
    under_way = rounds_of(schedule, count, rounds)
    played: list[list[Pair]] = []
    try:
        pairs = next(under_way)
        while True:
            played.append(pairs)
            pairs = under_way.send({pair: judge(pair) for pair in pairs})
    except StopIteration:
        return played


def pairs_of(schedule: Schedule, count: int, rounds: int, judge: Judge) -> list[Pair]:
    return [pair for played in play(schedule, count, rounds, judge) for pair in played]


def by_chance(seed: int, outcomes: tuple[float | None, ...] = (0.0, 0.5, 1.0, None)) -> Judge:
    rng = random.Random(seed)
    return lambda pair: rng.choice(outcomes)


def the_lower_wins(pair: Pair) -> float:
    return float(pair[0] < pair[1])


@given(schedules, counts, wishes, seeds)
def test_no_pair_twice_and_nobody_left_out(schedule: Schedule, count: int, rounds: int, seed: int) -> None:
    """Whatever the outcomes: rounds are not empty, each pair is of two items and comes at most once, and every item is
    compared."""
    played = play(schedule, count, rounds, by_chance(seed))
    pairs = [pair for each in played for pair in each]
    assert all(played)
    assert all(first != second for first, second in pairs)
    assert len({frozenset(pair) for pair in pairs}) == len(pairs)
    assert {item for pair in pairs for item in pair} == set(range(count))


@given(schedules, counts, wishes, seeds)
def test_same_outcomes_same_pairs(schedule: Schedule, count: int, rounds: int, seed: int) -> None:
    """A schedule draws no chance of its own."""
    assert play(schedule, count, rounds, by_chance(seed)) == play(schedule, count, rounds, by_chance(seed))


@given(schedules, st.integers(0, 33), wishes, seeds)
def test_calls_are_known_before(schedule: Schedule, count: int, rounds: int, seed: int) -> None:
    """The number of comparisons is exact whatever their outcomes; for several knockout tournaments it is a bound."""
    asked = len(pairs_of(schedule, count, rounds, by_chance(seed)))
    if schedule == "knockout" and rounds > 1:
        assert asked <= calls(schedule, count, rounds)
    else:
        assert asked == calls(schedule, count, rounds)


def leads(pairs: list[Pair]) -> list[int]:
    """How much more often each item was shown first than second."""
    first, second = (Counter(pair[place] for pair in pairs) for place in (0, 1))
    return [first[item] - second[item] for item in first | second]


@given(counts, wishes)
def test_circles_show_each_first_as_often_as_second(count: int, rounds: int) -> None:
    """A judge that prefers what it sees first favours no item, also if each pair is asked in one order only."""
    for schedule in ("circular", "all"):
        assert max(map(abs, leads(pairs_of(schedule, count, rounds, the_lower_wins)))) <= 1


@pytest.mark.parametrize("rounds", [0, 3])
@pytest.mark.parametrize("schedule", ["knockout", "swiss"])
def test_tournaments_show_each_first_about_as_often_as_second(schedule: Schedule, rounds: int) -> None:
    """Nearly so: which pairs come depends on outcomes."""
    found = [lead for seed in range(50) for lead in leads(pairs_of(schedule, 16, rounds, by_chance(seed)))]
    assert sum(map(abs, found)) / len(found) < 1.2
    assert max(map(abs, found)) <= 4


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("count", [0, 1])
def test_nothing_to_compare(schedule: Schedule, count: int) -> None:
    """No item, or one: no round at all."""
    assert play(schedule, count, 3, the_lower_wins) == []
    assert calls(schedule, count, 3) == 0


def test_anchor_is_not_within_the_group() -> None:
    """It has no rounds here, and says so at once."""
    with pytest.raises(ValueError, match="anchor"):
        rounds_of("anchor", 4)
    with pytest.raises(ValueError, match="anchor"):
        calls("anchor", 4)


@given(st.integers(3, 40), st.integers(0, 1))
def test_a_circle_has_two_neighbours_each(count: int, rounds: int) -> None:
    """Each item once in front of its next one, once behind the one before, in one round."""
    (pairs,) = play("circular", count, rounds, the_lower_wins)
    assert Counter(item for pair in pairs for item in pair) == dict.fromkeys(range(count), 2)


@pytest.mark.parametrize(
    ("count", "rounds", "expected"),
    [
        (2, 1, [(0, 1)]),
        (3, 5, [(0, 1), (1, 2), (2, 0)]),
        (4, 1, [(0, 1), (1, 2), (2, 3), (3, 0)]),
        (4, 2, [(0, 1), (1, 2), (2, 3), (3, 0), (0, 2), (1, 3)]),
        (4, 9, [(0, 1), (1, 2), (2, 3), (3, 0), (0, 2), (1, 3)]),
    ],
)
def test_circles_by_hand(count: int, rounds: int, expected: list[Pair]) -> None:
    """Further rounds reach further around, at most half way, and there each pair is one."""
    assert play("circular", count, rounds, the_lower_wins) == [expected]


@given(counts)
def test_all_is_every_pair_in_one_round(count: int) -> None:
    """Nothing waits for anything."""
    (pairs,) = play("all", count, 0, the_lower_wins)
    assert {(min(pair), max(pair)) for pair in pairs} == set(combinations(range(count), 2))


@given(counts, st.randoms(use_true_random=False))
def test_the_best_wins_every_knockout(count: int, rng: random.Random) -> None:
    """With a judge without noise the best one is in the final, and every other one has lost exactly once."""
    strength = rng.sample(range(count), count)
    played = play("knockout", count, 1, lambda pair: float(strength[pair[0]] > strength[pair[1]]))
    best = strength.index(count - 1)
    assert len(played) == (count - 1).bit_length()
    assert best in played[-1][0]
    losers = [min(pair, key=strength.__getitem__) for each in played for pair in each]
    assert sorted([*losers, best]) == list(range(count))


def test_ties_and_failures_send_the_earlier_one_on() -> None:
    """Without a winner the tournament goes on with the earlier position."""
    for nothing in (0.5, None):
        played = play("knockout", 8, 1, lambda pair, nothing=nothing: nothing)  # type: ignore[misc]
        assert [len(pairs) for pairs in played] == [4, 2, 1]
        assert {min(pair) for pair in played[0]} == {item for pair in played[1] for item in pair}


@given(counts, st.integers(2, 4), seeds)
def test_tournaments_side_by_side(count: int, tournaments: int, seed: int) -> None:
    """Several take no more rounds than one, and in the first of them all meet different opponents."""
    played = play("knockout", count, tournaments, by_chance(seed))
    assert len(played) <= (count - 1).bit_length()
    apart = min(tournaments, count - 1 + count % 2)
    assert len(played[0]) == apart * (count // 2)


@given(counts, wishes, seeds)
def test_swiss_rounds_are_full(count: int, rounds: int, seed: int) -> None:
    """Each round has all items once, but for one of an odd count, never the same: also with failures, and up to the
    largest number of rounds. Three items without a wish meet at once."""
    assume(count > 3 or rounds)
    played = play("swiss", count, rounds, by_chance(seed))
    wanted = max(rounds, 1 + count % 2) if rounds else (count - 1).bit_length()
    assert len(played) == min(wanted, (count + 1) // 2)
    out: list[int] = []
    for pairs in played:
        met = [item for pair in pairs for item in pair]
        assert len(set(met)) == len(met) == count // 2 * 2
        out += set(range(count)) - set(met)
    assert len(set(out)) == len(out)


def test_swiss_pairs_those_of_equal_points() -> None:
    """Eight items and a sure judge: winners meet winners."""
    first, second, third = play("swiss", 8, 0, the_lower_wins)
    assert [sorted(pair) for pair in first] == [[0, 1], [2, 3], [4, 5], [6, 7]]
    assert [sorted(pair) for pair in second] == [[0, 2], [4, 6], [1, 3], [5, 7]]
    assert [sorted(pair) for pair in third] == [[0, 4], [1, 2], [5, 6], [3, 7]]


def test_an_outcome_that_is_not_sent_is_a_failed_one() -> None:
    """The same pairs follow."""
    under_way = rounds_of("knockout", 4)
    next(under_way)
    assert under_way.send({}) == play("knockout", 4, 1, lambda pair: None)[1]
