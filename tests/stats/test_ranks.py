"""Order: hand values, bounds, symmetry, and what ties do."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from referee.stats import kendall, pearson, ranks, spearman

numbers = st.lists(st.tuples(st.floats(-1e6, 1e6), st.floats(-1e6, 1e6)), max_size=40)
levels = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), max_size=30)


def test_known_values() -> None:
    """Straight lines, and ranks with ties by hand: (1, 2.5, 2.5, 4) against (1, 3, 2, 4) is 4.5 / sqrt(4.5 * 5)."""
    assert pearson([1, 2, 3, 4], [2, 4, 6, 8]) == pytest.approx(1.0)
    assert spearman([1, 2, 3, 4], [1, 4, 9, 17]) == 1.0
    assert spearman([1, 2, 3], [3, 2, 1]) == -1.0
    assert ranks([5, 1, 5, 9]) == [2.5, 1.0, 2.5, 4.0]
    assert spearman([1, 2, 2, 4], [1, 3, 2, 4]) == pytest.approx(4.5 / math.sqrt(22.5))


def test_kendall_by_hand() -> None:
    """1 2 3 4 against 1 3 2 2: three pairs in order, two not, one tied on one side: 1 / sqrt(6 * 5)."""
    assert kendall([1, 2, 3, 4], [1, 3, 2, 2]) == pytest.approx(1 / math.sqrt(30))


def test_what_is_not_defined_is_none() -> None:
    """No pairs, a constant side: no number is made up."""
    assert pearson([], []) is pearson([1.0], [2.0]) is pearson([0.1] * 5, [1, 2, 3, 4, 5]) is None
    for measure in (spearman, kendall):
        assert measure([], []) is measure([1.0], [2.0]) is measure([1.0, 1.0], [1.0, 2.0]) is None
    with pytest.raises(ValueError, match="2 values against 1"):
        spearman([1.0, 2.0], [1.0])


@settings(deadline=None)
@given(numbers)
def test_correlations_stay_in_range_and_are_symmetric(pairs: list[tuple[float, float]]) -> None:
    """Between -1 and 1, the same both ways round."""
    a, b = [x for x, _ in pairs], [y for _, y in pairs]
    for measure in (pearson, spearman, kendall):
        found = measure(a, b)
        assert found is None or -1.0 <= found <= 1.0
        back = measure(b, a)
        assert (found is None) == (back is None)
        assert found is None or found == pytest.approx(back)


@settings(deadline=None)
@given(levels)
def test_fast_ways_count_what_slow_ones_do(pairs: list[tuple[int, int]]) -> None:
    """Kendall pair by pair, Spearman as the correlation of ranks."""
    a, b = [x for x, _ in pairs], [y for _, y in pairs]
    both = [(p, q) for n, p in enumerate(pairs) for q in pairs[:n]]
    sign = sum(((p[0] > q[0]) - (p[0] < q[0])) * ((p[1] > q[1]) - (p[1] < q[1])) for p, q in both)
    untied = sum(p[0] != q[0] for p, q in both) * sum(p[1] != q[1] for p, q in both)
    assert kendall(a, b) == (pytest.approx(sign / math.sqrt(untied)) if untied else None)
    assert spearman(a, b) == (pytest.approx(pearson(ranks(a), ranks(b)), abs=1e-12) if untied else None)
