"""Agreement of two lists of numbers: known values, bounds, and the order within groups."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from referee.report.agreement import GROUP_MOST, kappa, order, pearson, ranks, spearman, weighted_kappa
from referee.report.plain import plain

numbers = st.lists(st.tuples(st.floats(-1e6, 1e6), st.floats(-1e6, 1e6)), max_size=40)
scores = st.lists(st.tuples(st.integers(1, 10), st.integers(1, 10)), max_size=40)


def test_known_values() -> None:
    """Worked examples from textbooks."""
    assert pearson([1, 2, 3, 4], [2, 4, 6, 8]) == pytest.approx(1.0)
    assert spearman([1, 2, 3, 4], [1, 4, 9, 17]) == pytest.approx(1.0)
    assert spearman([1, 2, 3], [3, 2, 1]) == pytest.approx(-1.0)
    assert ranks([5, 1, 5, 9]) == [2.5, 1.0, 2.5, 4.0]
    yes_yes, yes_no, no_yes, no_no = 20, 5, 10, 15
    a = ["y"] * (yes_yes + yes_no) + ["n"] * (no_yes + no_no)
    b = ["y"] * yes_yes + ["n"] * yes_no + ["y"] * no_yes + ["n"] * no_no
    assert kappa(a, b) == pytest.approx(0.4)


def test_what_is_not_defined_is_none() -> None:
    """No pairs, a constant side, one class: no number is made up."""
    assert pearson([], []) is None
    assert pearson([1.0], [2.0]) is None
    assert pearson([0.1] * 5, [1, 2, 3, 4, 5]) is None
    assert kappa([], []) is None
    assert kappa([1, 1], [1, 1]) is None
    assert weighted_kappa([0.5, 0.5], [0.5, 0.5]) is None


@settings(deadline=None)
@given(numbers)
def test_correlations_stay_in_range_and_are_symmetric(pairs: list[tuple[float, float]]) -> None:
    """Between -1 and 1, the same both ways round."""
    a, b = [x for x, _ in pairs], [y for _, y in pairs]
    for measure in (pearson, spearman):
        found = measure(a, b)
        assert found is None or -1.0 <= found <= 1.0
        back = measure(b, a)
        assert (found is None) == (back is None)
        assert found is None or found == pytest.approx(back)


@settings(deadline=None)
@given(scores)
def test_kappa_is_one_only_for_equal_lists(pairs: list[tuple[int, int]]) -> None:
    """At most 1, and 1 exactly where both say the same."""
    a, b = [float(x) for x, _ in pairs], [float(y) for _, y in pairs]
    for measure in (kappa, weighted_kappa):
        found = measure(a, b)
        if found is not None:
            assert found <= 1.0 + 1e-9
            assert (a == b) == (found > 1.0 - 1e-9)


def test_weighted_kappa_forgives_near_misses() -> None:
    """Off by one counts less than off by five."""
    a = [float(n % 10) for n in range(50)]
    near = weighted_kappa(a, [x + 1 for x in a])
    far = weighted_kappa(a, [9 - x for x in a])
    assert near is not None
    assert far is not None
    assert near > 0.8 > 0 > far


def test_order_counts_flips_and_ties() -> None:
    """Three siblings: one pair in the same order, one flipped, one told apart by one side only."""
    found = order([[(1.0, 1.0), (2.0, 2.0), (3.0, 1.0)], [(0.0, 0.0)]])
    assert (found.groups, found.same, found.flipped, found.tied_b, found.tied_a) == (1, 1, 1, 1, 0)
    assert found.best_kept == 0
    assert found.pairs == 3


@settings(deadline=None)
@given(st.lists(scores, max_size=5))
def test_order_is_mirrored_when_the_sides_are(groups: list[list[tuple[int, int]]]) -> None:
    """Swapping the sides swaps the ties and keeps the flips."""
    ahead = order([[(float(x), float(y)) for x, y in group] for group in groups])
    back = order([[(float(y), float(x)) for x, y in group] for group in groups])
    assert (ahead.same, ahead.flipped, ahead.tied_a) == (back.same, back.flipped, back.tied_b)
    assert ahead.pairs == ahead.same + ahead.flipped + ahead.tied_a + ahead.tied_b


def test_a_huge_group_is_cut_and_said() -> None:
    """A group of thousands does not take for ever; that it was cut is counted."""
    rng = random.Random(1)
    found = order([[(rng.random(), rng.random()) for _ in range(GROUP_MOST * 4)]])
    assert found.cut == 1
    assert found.pairs == GROUP_MOST * (GROUP_MOST - 1) // 2


@settings(deadline=None)
@given(st.text(), st.integers(5, 50))
def test_plain_text_cannot_act_on_a_terminal(text: str, limit: int) -> None:
    """Printable characters only, never longer than asked."""
    shown = plain(text, limit)
    assert shown.isprintable()
    assert len(shown) <= limit


def test_plain_text_shows_what_it_hides() -> None:
    """Escapes, turned text, null bytes and half characters are written out; megabytes are cut."""
    assert plain("a\x1b[31mb\n\tc") == "a\\x1b[31mb c"
    assert plain("\u202eabc\x00\ud800") == "\\u202eabc\\x00\\ud800"
    assert plain("ab " * 10_000_000, 20) == "ab ab ab ab ab ab a…"
    assert plain("", 10) == ""
