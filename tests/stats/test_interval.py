"""Intervals: known critical values, Wilson's by hand, groups that count once, and a bootstrap that repeats."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from referee.stats import Estimate, bootstrap, kappa, mean_interval, proportion, spearman
from referee.stats.bootstrap import quantile
from referee.stats.quantiles import normal, student


def width(found: Estimate) -> float:
    assert found.low is not None
    assert found.high is not None
    return found.high - found.low


def test_critical_values_are_those_of_the_tables() -> None:
    """Student's at 95 % and 99 %, and the normal one."""
    assert normal(0.95) == pytest.approx(1.959964, abs=1e-6)
    for df, at_95 in ((1, 12.7062), (2, 4.30265), (3, 3.18245), (10, 2.22814), (30, 2.04227), (1000, 1.96234)):
        assert student(0.95, df) == pytest.approx(at_95, abs=6e-5)
    assert student(0.99, 5) == pytest.approx(4.03214, abs=1e-5)
    assert student(0.95, 200) == pytest.approx(student(0.95, 201), abs=1e-4)
    assert student(0.95, 0) == math.inf


def test_wilson_by_hand() -> None:
    """8 of 10: (0.8 + 3.84/20 -+ 1.96 sqrt(0.8 * 0.2 / 10 + 3.84/400)) / (1 + 3.84/10) = 0.4902 and 0.9433."""
    found = proportion([1] * 8 + [0] * 2)
    assert (found.low, found.value, found.high) == pytest.approx((0.4902, 0.8, 0.9433), abs=1e-4)


def test_a_share_of_all_or_none_is_not_certain() -> None:
    """10 of 10 may be 0.72; in five groups of two it may be less; and a tie is half a hit."""
    assert proportion([True] * 10).low == pytest.approx(0.7225, abs=1e-4)
    assert proportion([False] * 10).high == pytest.approx(1 - 0.7225, abs=1e-4)
    grouped = proportion([True] * 10, [0, 0, 1, 1, 2, 2, 3, 3, 4, 4])
    assert grouped.low is not None
    assert grouped.low < 0.5
    assert proportion([1.0, 0.5, 0.0, 0.5]).value == 0.5


def test_a_mean_by_hand() -> None:
    """1, 2, 3: 2 -+ t(2) * 1 / sqrt(3). Each twice, named as one group: the same."""
    half = 4.30265 / math.sqrt(3)
    for found in (mean_interval([1, 2, 3]), mean_interval([1, 2, 3, 1, 2, 3], ["a", "b", "c", "a", "b", "c"])):
        assert (found.low, found.value, found.high) == pytest.approx((2 - half, 2, 2 + half), abs=1e-4)
        assert found.groups == 3


def test_what_has_no_interval_says_why() -> None:
    """No rows, one row, one group."""
    for interval in (proportion, mean_interval):
        assert interval([]).reason == "no rows"
        assert interval([1.0]).reason == "only one row"
        found = interval([1.0, 0.0], ["a", "a"])
        assert (found.value, found.low, found.reason) == (0.5, None, "all rows are of one group")
    with pytest.raises(ValueError, match="2 rows, but 1 names"):
        proportion([1.0, 0.0], ["a"])


def test_rows_without_a_group_stand_alone() -> None:
    """None is no name: such rows are independent, beside groups that are not."""
    assert mean_interval([1.0, 2.0, 3.0], [None, None, "a"]).groups == 3
    assert proportion([True, False] * 10, [None] * 20) == proportion([True, False] * 10)


@settings(deadline=None)
@given(st.lists(st.tuples(st.booleans(), st.integers(0, 6)), min_size=2, max_size=40))
def test_a_share_lies_within_its_interval(rows: list[tuple[bool, int]]) -> None:
    """Between 0 and 1, mirrored when hits become misses, no narrower for naming groups."""
    hits, groups = [hit for hit, _ in rows], [group for _, group in rows]
    found, free, mirror = proportion(hits, groups), proportion(hits), proportion([not hit for hit in hits], groups)
    if found.low is None or found.high is None:
        assert found.reason
        return
    assert 0.0 <= found.low <= found.value <= found.high <= 1.0  # type: ignore[operator]
    assert (found.low, found.high) == pytest.approx((1 - mirror.high, 1 - mirror.low))  # type: ignore[operator]
    assert width(found) >= width(free) - 1e-12


def labelled(count: int, seed: int = 1) -> tuple[list[bool], list[bool]]:
    chance = random.Random(seed)
    human = [chance.random() < 0.5 for _ in range(count)]
    return human, [yes if chance.random() < 0.8 else not yes for yes in human]


def test_the_same_seed_gives_the_same_interval() -> None:
    """Another seed, nearly."""
    rows = labelled(100)
    first = bootstrap(kappa, rows, random.Random(1), resamples=300)
    assert first == bootstrap(kappa, rows, random.Random(1), resamples=300)
    other = bootstrap(kappa, rows, random.Random(2), resamples=300)
    assert first != other
    assert (first.low, first.high) == pytest.approx((other.low, other.high), abs=0.06)


def test_resamples_take_whole_groups() -> None:
    """Every row twice, both under one name: to the digit the interval of the rows by themselves."""
    human, judged = labelled(40)
    once = bootstrap(kappa, (human, judged), random.Random(1), resamples=200)
    named = bootstrap(kappa, (human * 2, judged * 2), random.Random(1), [*range(40), *range(40)], resamples=200)
    assert (named.value, named.low, named.high) == pytest.approx((once.value, once.low, once.high))
    free = bootstrap(kappa, (human * 2, judged * 2), random.Random(1), resamples=200)
    assert width(free) < 0.85 * width(once)


def test_two_judges_on_the_same_rows_are_compared_in_pairs() -> None:
    """The interval of their difference is narrower than their two intervals would say."""
    chance = random.Random(5)
    human = [chance.gauss(0, 1) for _ in range(80)]
    first = [x + chance.gauss(0, 1) for x in human]
    second = [x + chance.gauss(0, 0.2) for x in first]
    apart = bootstrap(
        lambda h, a, b: (spearman(h, a) or 0) - (spearman(h, b) or 0),
        (human, first, second),
        random.Random(1),
        resamples=200,
    )
    assert width(apart) < 0.5 * width(bootstrap(spearman, (human, first), random.Random(1), resamples=200))


def test_a_bootstrap_that_cannot_tell_says_why() -> None:
    """Undefined, too few groups, no row that differs, or undefined in many resamples: the value, and no interval."""
    chance = random.Random(1)
    assert bootstrap(kappa, ([], []), chance).reason == "undefined for these rows"
    few = bootstrap(kappa, labelled(12), chance, [0, 1, 2, 3] * 3)
    assert few.value is not None
    assert few.reason == "fewer than 5 independent groups of rows"
    same = bootstrap(kappa, ([0, 1] * 20, [0, 1] * 20), chance, resamples=50)
    assert (same.value, same.low, same.reason) == (1.0, None, "the same in every resample: too few rows that differ")
    rare = bootstrap(kappa, ([1] + [0] * 29, [1] + [0] * 29), chance, resamples=100)
    assert rare.reason == "undefined in many resamples: too few rows of a kind"


def test_quantiles_lie_between_neighbours() -> None:
    """The middle of three, a quarter of the way, and never outside."""
    assert [quantile([1.0, 2.0, 4.0], share) for share in (0.0, 0.375, 0.5, 1.0)] == [1.0, 1.5, 2.0, 4.0]
