"""The budget holds in any order of events."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule

from referee.limits import Budget


def test_reserves_until_the_limit() -> None:
    """The request that could pass the limit is not allowed; the one that just fits is."""
    budget = Budget(1.0)
    assert budget.reserve(0.6)
    assert not budget.reserve(0.5)
    assert budget.reserve(0.4)
    assert not budget.reserve(1e-9)


def test_settling_frees_what_was_not_used() -> None:
    """A request that cost less than its worst case leaves room for others."""
    budget = Budget(1.0)
    assert budget.reserve(1.0)
    budget.settle(1.0, 0.25)
    assert budget.spent == pytest.approx(0.25)
    assert budget.reserved == 0.0
    assert budget.reserve(0.75)


def test_without_a_limit_everything_passes_and_is_counted() -> None:
    """No limit: nothing is refused, and the sum is still known."""
    budget = Budget(None)
    assert budget.reserve(1e6)
    budget.settle(1e6, 3.5)
    assert budget.spent == pytest.approx(3.5)


def test_a_million_small_sums_do_not_drift() -> None:
    """Tenths of a cent a hundred thousand times over are exact, and nothing stays reserved."""
    budget = Budget(1000.0)
    for _ in range(100_000):
        assert budget.reserve(0.003)
        budget.settle(0.003, 0.001)
    assert budget.spent == pytest.approx(100.0, rel=1e-9)
    assert budget.reserved == 0.0


def test_tiny_requests_are_not_free() -> None:
    """Less than the smallest unit counts as one: rounding cannot pass the limit."""
    budget = Budget(5e-9)
    assert [budget.reserve(4e-10) for _ in range(6)] == [True] * 5 + [False]


def test_a_cost_above_the_reservation_is_counted_in_full() -> None:
    """If a provider charges more than the worst case, that counts, and nothing more is sent."""
    budget = Budget(1.0)
    assert budget.reserve(0.5)
    budget.settle(0.5, 2.0)
    assert budget.spent == pytest.approx(2.0)
    assert not budget.reserve(0.0001)
    assert "2.0" in repr(budget)


class Spending(RuleBasedStateMachine):
    """Any interleaving of reserving and settling, each settled for at most what was reserved."""

    reservations = Bundle("reservations")

    def __init__(self) -> None:
        super().__init__()
        self.limit = 1.0
        self.budget = Budget(self.limit)
        self.open = 0

    @rule(target=reservations, worst=st.floats(0.0, 0.4))
    def reserve(self, worst: float) -> float | None:
        allowed = self.budget.reserve(worst)
        self.open += allowed
        return worst if allowed else None

    @rule(worst=consumes(reservations), share=st.floats(0.0, 1.0))
    def settle(self, worst: float | None, share: float) -> None:
        if worst is not None:
            self.budget.settle(worst, worst * share)
            self.open -= 1

    @invariant()
    def never_over(self) -> None:
        assert 0 <= self.budget.spent <= self.limit
        assert 0 <= self.budget.reserved <= self.limit
        assert self.budget.spent + self.budget.reserved <= self.limit + 1e-12

    @invariant()
    def nothing_open_nothing_reserved(self) -> None:
        if self.open == 0:
            assert self.budget.reserved == 0.0


TestSpending = Spending.TestCase
TestSpending.settings = settings(max_examples=40, stateful_step_count=40, deadline=None)


def test_an_unshared_budget_waits_for_no_grant() -> None:
    """What cannot be reserved is given up at once."""
    assert Budget(1.0).waiting is False
