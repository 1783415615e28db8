"""The order within groups, and text that is safe to print."""

from __future__ import annotations

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from referee.report.agreement import GROUP_MOST, order
from referee.report.plain import plain

scores = st.lists(st.tuples(st.integers(1, 10), st.integers(1, 10)), max_size=40)


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
