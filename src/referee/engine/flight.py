"""One flight per pool and key: the shared state of a request under way and of its listeners."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from referee.cache import Claim
from referee.engine.admission import NO_ENDPOINTS
from referee.engine.endpoint import Endpoint
from referee.engine.permit import Waiter
from referee.records import Ask, Failure, Reply, Settled, Unscored
from referee.wire import Adaptation

if TYPE_CHECKING:
    from referee.engine.warm_first import Beginning

Listener = Callable[[Settled], None]


class Flight:
    """A request under way. Listeners are called once, at its end; when the last one has left, the engine cancels it."""

    __slots__ = (
        "adaptation",
        "asked",
        "asking",
        "attempts",
        "claim",
        "cost",
        "deadline",
        "followers",
        "held",
        "key",
        "last",
        "leads",
        "listeners",
        "name",
        "place",
        "refused_by",
        "request",
        "sent_first",
        "standard",
        "stored",
        "task",
        "team",
        "tokens_cache_write",
        "tokens_cached",
        "tokens_in",
        "tokens_out",
        "turn",
        "waiter",
    )

    def __init__(self, key: str, request: Ask, asked: float, team: str = "") -> None:
        self.key = key
        self.request = request
        self.team = team
        """The team that pays, if any."""
        self.name = request.pool, key, team
        """What the engine knows it by."""
        self.place = request.pool, team
        """Where it takes room."""
        self.asked = asked
        self.deadline = asked
        self.listeners: dict[Listener, bool] = {}
        """Listeners, and whether the cost is charged to them: to one of them, the others share."""
        self.task: asyncio.Task[None] | None = None
        """Created with the first permit: a queued request needs no task."""
        self.claim: Claim | None = None
        """With a shared cache: the search for its verdict, then the lock under which it is judged for all jobs."""
        self.leads: tuple[Beginning, ...] = ()
        """Beginnings that others wait for it to have cached."""
        self.held = False
        """Waits for such a one, outside the queue and what is counted as begun."""
        self.asking = False
        """Has a permit, or an answer that is being stored: other teams' flights for the same question wait for that."""
        self.followers: list[Flight] | None = None
        """Those that do."""
        self.turn = 0
        self.waiter: Waiter | None = None
        """Its place in the queue, until the first permit."""
        self.adaptation: Adaptation | None = None
        """The endpoint's adaptation that the last attempt was sent with."""
        self.attempts = 0
        self.cost = 0.0
        self.tokens_in = self.tokens_out = self.tokens_cached = self.tokens_cache_write = 0
        """Of every reply, also of those without a verdict."""
        self.refused_by: frozenset[Endpoint] = NO_ENDPOINTS
        """Endpoints whose judge declined to answer: only others are asked."""
        self.sent_first: float | None = None
        self.standard = False
        """Ask at the standard tier: the endpoint's had no capacity for it."""
        self.stored = False
        """Its verdict is stored, or is being stored."""
        self.last: Failure | Unscored | None = None

    def join(self, listener: Listener, deadline: float) -> None:
        """Add a listener. The flight lasts until the latest deadline of its listeners."""
        self.listeners[listener] = not self.listeners
        self.deadline = max(self.deadline, deadline)

    def leave(self, listener: Listener) -> bool:
        """Remove a listener; True if none is left. If it was the one that pays, the next one does."""
        paid = self.listeners.pop(listener, False)
        heir = next(iter(self.listeners), None)
        if paid and heir is not None:
            self.listeners[heir] = True
        return heir is None

    def pay(self, cost: float, used: Reply | Flight) -> None:
        """Count what a reply, or a request made on its behalf, has cost."""
        self.cost += cost
        self.tokens_in += used.tokens_in
        self.tokens_out += used.tokens_out
        self.tokens_cached += used.tokens_cached
        self.tokens_cache_write += used.tokens_cache_write

    def trouble(self) -> str:
        """What went wrong so far, in a few words, for a listener that stops waiting."""
        if not self.attempts:
            return "still waiting for its turn"
        tries = f"{self.attempts} attempt{'s' if self.attempts > 1 else ''}"
        return f"{tries}, last: {self.last.reason} ({self.last.detail})" if self.last else f"{tries}, no answer yet"

    def __repr__(self) -> str:
        return f"Flight({self.key[:12]}, {len(self.listeners)} waiting, {self.trouble()})"
