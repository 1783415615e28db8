"""Calibration: curve and ECE by hand, and what noise alone would show."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from referee.stats import ece, ece_floor, ece_interval, reliability

SAID, TRUE = [0.1, 0.1, 0.9, 0.9], [0, 1, 1, 1]


def test_a_curve_by_hand() -> None:
    """Says 0.1 where half are true, 0.9 where all are: (2 * 0.4 + 2 * 0.1) / 4."""
    curve = reliability(SAID, TRUE)
    assert [(each.count, each.said, each.true) for each in curve] == [(2, 0.1, 0.5), (2, 0.9, 1.0)]
    assert curve[1].low < 0.9 < curve[1].high == 1.0
    assert ece(SAID, TRUE) == pytest.approx(0.25)
    assert ece([], []) is ece_floor([], random.Random(1)) is None
    assert reliability([], []) == []


def test_bins_hold_as_many_rows_each() -> None:
    """A hundred different probabilities, all low: ten bins of ten."""
    said = [place / 2000 for place in range(100)]
    assert [each.count for each in reliability(said, [0.0] * 100)] == [10] * 10


@settings(deadline=None)
@given(st.lists(st.tuples(st.sampled_from([0.0, 0.2, 0.25, 0.7, 1.0]), st.booleans()), min_size=1, max_size=50))
def test_the_order_of_rows_does_not_matter(rows: list[tuple[float, bool]]) -> None:
    """No row is lost, ECE is the same backwards, and between 0 and 1."""
    said, true = [p for p, _ in rows], [y for _, y in rows]
    found = ece(said, true, 4)
    assert sum(each.count for each in reliability(said, true, 4)) == len(rows)
    assert found == pytest.approx(ece(said[::-1], true[::-1], 4))
    assert found is not None
    assert 0.0 <= found <= 1.0


def test_the_floor_is_what_a_calibrated_judge_shows() -> None:
    """On 200 rows a calibrated judge and its floor agree; one that always says 0.9 of coin flips is far above it."""
    chance = random.Random(1)
    said = [chance.random() for _ in range(200)]
    floor = ece_floor(said, random.Random(2))
    found = ece(said, [chance.random() < p for p in said])
    assert floor == pytest.approx(found, abs=0.03)
    assert floor is not None
    assert floor > 0.02
    coin = [chance.random() < 0.5 for _ in range(200)]
    assert (ece([0.9] * 200, coin) or 0) > 5 * (ece_floor([0.9] * 200, random.Random(2)) or 1)


def test_the_interval_of_a_calibrated_judge_holds_its_error() -> None:
    """It reaches down to 0, however large the ECE that noise alone shows; quantiles of resampled ones never do."""
    reached = 0
    for seed in range(20):
        chance = random.Random(seed)
        said = [chance.random() for _ in range(100)]
        found = ece_interval(said, [float(chance.random() < p) for p in said], chance, resamples=60)
        reached += found.low == 0.0
    assert reached >= 18
    wrong = ece_interval([0.9] * 60, [0.0, 1.0] * 30, random.Random(1), resamples=100)
    assert wrong.value == pytest.approx(0.4)
    assert wrong.low is not None
    assert wrong.low > 0.2
    assert ece_interval([], [], random.Random(1)).value is None
