"""Permits, places in the queue, and why there will be no permit. `admission` grants them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from referee.engine.endpoint import Endpoint
from referee.limits import Budget, Outcome, Stamp
from referee.limits.account import Account
from referee.limits.billing_bound import Bound
from referee.records import Ask, RateHints, Reply, Unscored

if TYPE_CHECKING:
    from referee.engine.admission import Admission


class Permit:
    """Permission to send one request to one endpoint. Release it once."""

    __slots__ = (
        "_budgets",
        "_gate",
        "account",
        "endpoint",
        "foreseen",
        "held",
        "request",
        "reserved",
        "stamp",
        "started",
        "tokens",
    )

    def __init__(
        self,
        gate: Admission,
        endpoint: Endpoint,
        request: Ask,
        stamp: Stamp,
        foreseen: Bound | None,
        reserved: float,
        now: float,
        account: Account | None,
        budgets: tuple[Budget, ...],
    ) -> None:
        """`account`: of the team it is sent for. `budgets`: where its cost is reserved."""
        self._gate = gate
        self._budgets = budgets
        self.account = account
        self.endpoint = endpoint
        self.request = request
        self.stamp = stamp
        self.foreseen = foreseen
        self.reserved = reserved
        self.started = now
        self.tokens = endpoint.tokens_of(request)
        self.held = True

    def release(
        self, outcome: Outcome, reply: Reply | None = None, hints: RateHints | None = None, unknown: bool = False
    ) -> None:
        """Return the permit: the outcome for the limiter, what was used, what the server's headers said.

        `unknown`: the request reached the server and no usage came back, so the budget assumes the worst case.
        """
        assert self.held, "a permit is released exactly once"
        self.held = False
        self._gate._released(self, outcome, reply, hints, unknown)

    def settle(self, cost: float) -> None:
        """What it cost, to whom that was reserved."""
        for budget in self._budgets:
            budget.settle(self.reserved, cost)

    def expect(self, worst: float) -> None:
        """It may cost this much instead of what was reserved."""
        for budget in self._budgets:
            budget.expect(self.reserved, worst)
        self.reserved = worst


class Closed(NamedTuple):
    """Nothing can be sent any more, and why."""

    verdict: Unscored


class Waiter:
    """A place in the queue. `granted` is called once, with a permit or with why there will be none, unless `gone`."""

    __slots__ = ("avoid", "excluded", "future", "gone", "granted", "open_ended", "request", "turn")

    def __init__(
        self,
        turn: int,
        request: Ask,
        avoid: Endpoint | None,
        excluded: frozenset[Endpoint],
        open_ended: bool,
        granted: Callable[[Permit | Closed], None],
    ) -> None:
        self.turn = turn
        self.request = request
        self.avoid = avoid
        self.excluded = excluded
        self.open_ended = open_ended
        self.granted = granted
        self.gone = False
        """Abandoned; set by the caller of `join`."""
        self.future: asyncio.Future[Permit | Closed] | None = None
        """What `acquire` awaits: if cancelled, it is done before `gone` is set."""

    @property
    def left(self) -> bool:
        """True if it was abandoned."""
        return self.gone or (self.future is not None and self.future.done())

    def __lt__(self, other: Waiter) -> bool:
        return self.turn < other.turn
