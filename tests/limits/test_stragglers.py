"""Which requests are late, and how many may be hedged."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from referee.limits import Stragglers


def test_nothing_is_late_before_enough_replies() -> None:
    """A small sample says nothing."""
    found = Stragglers(0.05)
    for _ in range(Stragglers.MIN_SAMPLE - 1):
        found.answered(1.0)
    assert found.late_after is None
    found.answered(1.0)
    assert found.late_after == 1.0


def test_late_is_slower_than_ninety_five_in_a_hundred() -> None:
    """Of a hundred different latencies, five are late."""
    found = Stragglers(0.05)
    for n in range(96):
        found.answered(float(n))
    late = found.late_after
    assert late is not None
    assert 3 <= sum(n > late for n in range(96)) <= 6


def test_off_means_off() -> None:
    """With a share of 0 nothing is ever late."""
    found = Stragglers(0.0)
    for _ in range(100):
        found.sent()
        found.answered(1.0)
    assert found.late_after is None
    assert not found.take()


@given(st.floats(0.0, 1.0), st.lists(st.booleans(), max_size=200))
def test_never_more_than_the_share(share: float, events: list[bool]) -> None:
    """In any order of sends and hedges."""
    found, sent = Stragglers(share), 0
    for send in events:
        if send:
            found.sent()
            sent += 1
        else:
            found.take()
        assert found.hedged <= share * sent
