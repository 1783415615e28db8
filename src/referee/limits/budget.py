"""A budget: reserve the worst case before sending, settle with the actual cost."""

from __future__ import annotations

NANO = 1_000_000_000
FLOAT_NOISE = 1e-3
"""Of a nano-dollar: more than rounding adds to sums below a million dollars."""


class Budget:
    """Dollars, counted in whole nano-dollars so that a million small sums do not drift."""

    def __init__(self, limit_usd: float | None) -> None:
        self.limit_usd = limit_usd
        self._limit = None if limit_usd is None else int(limit_usd * NANO)
        self._spent = 0
        self._reserved = 0

    @property
    def spent(self) -> float:
        """US dollars spent so far."""
        return self._spent / NANO

    @property
    def reserved(self) -> float:
        """US dollars that requests in flight may still cost."""
        return self._reserved / NANO

    @property
    def waiting(self) -> bool:
        """True if more may be granted from elsewhere: what cannot be reserved now need not be given up."""
        return False

    def reserve(self, worst_usd: float) -> bool:
        """Reserve the most a request can cost. False: it could pass the limit and must not be sent."""
        amount = nano(worst_usd)
        if self._limit is not None and self._spent + self._reserved + amount > self._limit:
            return False
        self._reserved += amount
        return True

    def expect(self, reserved_usd: float, worst_usd: float) -> None:
        """A request in flight may cost this much instead. It has been sent, so this is not refused."""
        self._reserved += nano(worst_usd) - nano(reserved_usd)

    def settle(self, reserved_usd: float, actual_usd: float) -> None:
        """A reserved request has finished at this cost."""
        self._reserved = max(0, self._reserved - nano(reserved_usd))
        self._spent += nano(actual_usd)

    @property
    def total_spent(self) -> float:
        """US dollars spent by all processes that share the limit."""
        return self.spent

    def no_room(self, worst_usd: float) -> str:
        """Why a request that may cost this much is not sent."""
        return (
            f"limits.budget_usd = {self.limit_usd:g} has no room for another request: {self.total_spent:.4g} is spent, "
            f"and one more could cost up to {worst_usd:.2g}, by judge.max_tokens and the length of its prompt"
        )

    def __repr__(self) -> str:
        return f"Budget({self.spent:.6f} spent, {self.reserved:.6f} reserved, limit {self.limit_usd})"


def nano(usd: float) -> int:
    """Whole nano-dollars, rounded up: many tiny requests must not be free. What a product of floats has too much is not
    a nano-dollar more."""
    return 0 if usd <= 0 else max(1, -int(-(usd * NANO - FLOAT_NOISE) // 1))
