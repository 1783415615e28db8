"""Admission: which request is sent next, and to which endpoint. `queues` holds them.

A permit is granted when an endpoint has room (adaptive limit), rate (requests and tokens per minute), health (breaker)
and the budget has money; of a team, also its own rate and budget. It is released exactly once with a named outcome.
Queued requests hold no socket and no timer.
"""

from __future__ import annotations

import asyncio
import heapq
import math
import random
from collections.abc import Callable, Mapping, Sequence

from referee import clock
from referee.engine.endpoint import Endpoint, closed_reason, unserved
from referee.engine.permit import Closed, Permit, Waiter
from referee.engine.queues import Place, Queues
from referee.engine.replicas import Replicas
from referee.limits import Budget, Outcome
from referee.limits.account import Account
from referee.limits.billing_bound import Bound
from referee.records import Ask, Failure, RateHints, Reason, Reply, Unscored

NO_ENDPOINTS: frozenset[Endpoint] = frozenset()
MAX_OVERTAKEN = 256
"""Requests that may go before an older one to let it wait for its own replica."""
IDLE_S = 0.5
"""After this long without any request, the duration of an outage is counted anew: nothing showed whether it went on."""


class Admission:
    """One queue, several endpoints."""

    def __init__(
        self,
        endpoints: Sequence[Endpoint],
        budget: Budget,
        rng: random.Random,
        patience: float,
        accounts: Mapping[str, Account] = {},
    ) -> None:
        """`patience`: seconds of an outage without any success after which open-ended requests are given up.
        `accounts`: of teams, by name."""
        self._now = clock.running()
        self.endpoints = tuple(endpoints)
        self._patience = patience
        self._progress: dict[Endpoint, float] = {}  # when each last answered; at first, when it was first asked
        self._idle_since = -math.inf
        self.budget = budget
        self.accounts = accounts
        self.poke: Callable[[], None] = lambda: None
        """Called when a team needs money that is not leased."""
        self._rng = rng
        self._has_backups = any(endpoint.config.backup for endpoint in endpoints)
        replicas = Replicas(self.endpoints)
        self._replicas = replicas if replicas else None
        self.queues = Queues()
        self._priced: set[Permit] = set()
        """Permits in use that may cost money."""
        self._turns = 0
        self._timer: asyncio.TimerHandle | None = None
        self._pumping = False

    @property
    def queued(self) -> int:
        """Requests waiting for a permit."""
        return len(self.queues)

    @property
    def in_flight(self) -> int:
        """Requests on the wire, all endpoints."""
        return sum(endpoint.in_flight for endpoint in self.endpoints)

    @property
    def _idle(self) -> bool:
        return not self.queued and not self.in_flight

    def turn(self) -> int:
        """A number for the queue. A request keeps it for its retries, and with it its place."""
        self._turns += 1
        return self._turns

    def others(self, excluded: frozenset[Endpoint]) -> bool:
        """True if an endpoint outside this set may still answer."""
        return any(e.breaker.closed is None and e not in excluded for e in self.endpoints)

    def join(
        self,
        request: Ask,
        turn: int,
        avoid: Endpoint | None,
        excluded: frozenset[Endpoint],
        open_ended: bool,
        team: str,
        granted: Callable[[Permit | Closed], None],
    ) -> Waiter:
        """Queue a request; `granted` may be called before this returns. The endpoint `avoid` is used only if no other
        can serve it, `excluded` ones never. `team`: the one that pays, if any. Closed is granted when no endpoint ever
        will serve it, or, for an open-ended request, when none has for too long; or the team has no money for it."""
        own = None if self._replicas is None else self._replicas.of(request, avoid, excluded)
        line = self.queues.of(excluded, own, team)
        if not line:
            if team:
                self.queues.start(team)
            now = self._now()
            if now - self._idle_since >= IDLE_S and self._idle:
                self._progress.clear()  # nothing was sent until now, so no outage was seen
            for endpoint in self.endpoints:
                if endpoint not in excluded:
                    self._progress.setdefault(endpoint, now)
        waiter = Waiter(turn, request, avoid, excluded, open_ended, granted)
        heapq.heappush(line, waiter)
        if line[0] is waiter:  # else the requests before it are still blocked
            self.pump()
        return waiter

    def now(self, request: Ask, avoid: Endpoint | None, excluded: frozenset[Endpoint], team: str) -> Permit | None:
        """A permit if one can be spared: nothing is queued, and an endpoint has room."""
        if self.queued:
            return None
        account = self.accounts.get(team)
        if account is not None and account.requests.wait(1, self._now()) > 0:
            return None
        waiter = Waiter(0, request, avoid, excluded, False, _ignore)
        now = self._now()
        endpoint, _ = self._choose(waiter, now)
        if endpoint is None:
            return None
        foreseen = endpoint.foresee(request)
        reserved = endpoint.worst_cost(foreseen)
        budgets = self._reserve(account, reserved)
        return None if budgets is None else self._permit(endpoint, request, foreseen, reserved, now, account, budgets)

    async def acquire(
        self,
        request: Ask,
        turn: int,
        avoid: Endpoint | None,
        excluded: frozenset[Endpoint],
        open_ended: bool,
        team: str,
    ) -> Permit | Closed:
        """Wait for a permit, or until it is known that there will be none."""
        future: asyncio.Future[Permit | Closed] = asyncio.get_running_loop().create_future()
        waiter = self.join(request, turn, avoid, excluded, open_ended, team, future.set_result)
        waiter.future = future
        try:
            return await future
        except asyncio.CancelledError:
            waiter.gone = True
            if future.done() and not future.cancelled():
                given = future.result()
                if isinstance(given, Permit):
                    given.release("ignored")
            raise

    def close_all(self, verdict: Unscored) -> None:
        """Fail every queued request."""
        for waiter in self.queues.clear():
            if not waiter.left:
                waiter.granted(Closed(verdict))

    def pump(self) -> None:
        """Grant what can be granted, and set a timer for the shortest wait."""
        if self._pumping:
            return
        self._pumping = True
        try:
            wait = self._serve()
        finally:
            self._pumping = False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if wait is not None:
            loop = asyncio.get_running_loop()
            self._timer = clock.at(loop, loop.time() + wait, self.pump)

    def _serve(self) -> float | None:
        """Grant permits while an endpoint can take one. Returns seconds until the next try."""
        now = self._now()
        shortest: float | None = None
        stuck: list[Place] = []
        yielding: list[Place] = []
        while (found := self.queues.oldest(stuck)) is not None:
            place, line = found
            excluded, own, team = place
            waiter = line[0]
            if waiter.left:
                heapq.heappop(line)
                continue
            endpoint, wait = self._choose(waiter, now, own)
            if endpoint is not None and own is not None and endpoint is not own and self._wanted(endpoint, own, waiter):
                endpoint = None
                yielding.append(place)
            elif endpoint is None:
                closed = closed_reason(self.endpoints)
                if closed is not None:
                    self.close_all(closed)
                    return None
                declined = bool(excluded) and not self.others(excluded)
                if declined or (waiter.open_ended and self._hopeless(waiter, now)):
                    heapq.heappop(line)
                    self._idle_since = now
                    usable = [endpoint for endpoint in self.endpoints if endpoint not in excluded]
                    waiter.granted(Closed(unserved(usable, self._patience)))
                    continue
            account = self.accounts.get(team) if team else None
            if endpoint is not None and account is not None:
                wait = account.requests.wait(1, now)
                endpoint = None if wait > 0 else endpoint
            if endpoint is None:
                stuck.append(place)
                if account is not None:
                    self.queues.start(team)
                if wait is not None:
                    shortest = wait if shortest is None else min(shortest, wait)
                continue
            foreseen = endpoint.foresee(waiter.request)
            reserved = endpoint.worst_cost(foreseen)
            budgets = self._reserve(account, reserved)
            if budgets is None and account is not None and not account.may_reserve:
                spent = account.lacking(clock.wall())
                if spent is None or account.in_flight:  # there may be more; replies that cost less free money
                    stuck.append(place)
                    self.queues.start(team)
                else:
                    heapq.heappop(line)
                    detail = f"team {team}: {spent.no_room(reserved)}"
                    waiter.granted(Closed(Unscored(reason=Reason.BUDGET, detail=detail)))
                continue
            if budgets is None:
                if self.in_flight or self.budget.waiting:
                    return None  # replies that cost less than reserved free money
                self.close_all(Unscored(reason=Reason.BUDGET, detail=self.budget.no_room(reserved)))
                return None
            heapq.heappop(line)
            self.queues.served(team)
            if own is not None and self._replicas is not None:
                self._replicas.sent(waiter.request, excluded, endpoint)
            waiter.granted(self._permit(endpoint, waiter.request, foreseen, reserved, now, account, budgets))
            if yielding:
                stuck = [place for place in stuck if place not in yielding]
                yielding.clear()
        return shortest

    def _wanted(self, endpoint: Endpoint, own: Endpoint, waiter: Waiter) -> bool:
        """Whether a request that belongs to another replica, `own`, leaves this one to requests that belong here."""
        if own.breaker.closed is not None or own.breaker.suspended:
            return False
        for place, line in self.queues.items():
            if place.own is endpoint:
                while line and line[0].left:
                    heapq.heappop(line)
                if line and line[0].turn < waiter.turn + MAX_OVERTAKEN:
                    return True
        return False

    def _reserve(self, account: Account | None, worst: float) -> tuple[Budget, ...] | None:
        """Reserve this in the team's budgets and in that of all. None: in neither."""
        if account is None:
            return (self.budget,) if self.budget.reserve(worst) else None
        own = account.reserve(worst, clock.wall())
        if account.needs_lease or not account.sent:
            self.poke()
        if own is None or self.budget.reserve(worst):
            return None if own is None else (self.budget, *own)
        for purse in own:
            purse.settle(worst, 0.0)
        return None

    def _permit(
        self,
        endpoint: Endpoint,
        request: Ask,
        foreseen: Bound | None,
        reserved: float,
        now: float,
        account: Account | None,
        budgets: tuple[Budget, ...],
    ) -> Permit:
        if account is not None:
            account.requests.take(1, now)
            account.sent += 1
            account.in_flight += 1
        endpoint.in_flight += 1
        endpoint.sent += 1
        endpoint.requests.take(1, now)
        endpoint.tokens.take(endpoint.tokens_of(request), now)
        endpoint.breaker.on_send()
        stamp = endpoint.limiter.admit(now, endpoint.in_flight)
        permit = Permit(self, endpoint, request, stamp, foreseen, reserved, now, account, budgets)
        if foreseen is not None:
            self._priced.add(permit)
        return permit

    def _hopeless(self, waiter: Waiter, now: float) -> bool:
        """Every endpoint that may answer it is in an outage, and none of them has answered for `patience` seconds."""
        return all(
            (e.breaker.suspended or e.breaker.closed is not None) and now - self._progress.get(e, now) > self._patience
            for e in self.endpoints
            if e not in waiter.excluded
        )

    def _choose(self, waiter: Waiter, now: float, own: Endpoint | None = None) -> tuple[Endpoint | None, float | None]:
        """The endpoint it belongs to, else the one with the most room, the one to avoid last; else the shortest wait
        until one has any."""
        best: Endpoint | None = None
        best_rank = (2, 2.0)
        shortest: float | None = None
        spare_backups = self._has_backups and self._primary_usable(waiter.excluded)
        for endpoint in self.endpoints:
            if endpoint.in_flight >= endpoint.limiter.limit or endpoint.breaker.closed is not None:
                continue
            if endpoint in waiter.excluded or (spare_backups and endpoint.config.backup):
                continue
            wait = max(
                endpoint.breaker.wait(now),
                endpoint.requests.wait(1, now),
                endpoint.tokens.wait(endpoint.tokens_of(waiter.request), now),
            )
            if math.isinf(wait):
                continue  # a probe is under way; its end triggers the next try
            if wait > 0:
                shortest = wait if shortest is None else min(shortest, wait)
                continue
            if endpoint is own:
                return endpoint, None
            rank = (int(endpoint is waiter.avoid), endpoint.in_flight / endpoint.limiter.limit)
            if rank < best_rank:
                best, best_rank = endpoint, rank
        return best, shortest

    def _primary_usable(self, excluded: frozenset[Endpoint]) -> bool:
        """A primary endpoint is healthy, perhaps only busy: backups stay idle."""
        primary = [e for e in self.endpoints if not e.config.backup and e not in excluded]
        return any(e.breaker.closed is None and not e.breaker.suspended for e in primary)

    def _released(
        self, permit: Permit, outcome: Outcome, reply: Reply | None, hints: RateHints | None, unknown: bool
    ) -> None:
        now = self._now()
        endpoint = permit.endpoint
        endpoint.in_flight -= 1
        if permit.account is not None:
            permit.account.in_flight -= 1
        if outcome == "ok":
            self._progress[endpoint] = now
        endpoint.breaker.on_gone()
        tokens_out = reply.tokens_out if reply else 0
        endpoint.limiter.release(permit.stamp, outcome, now, endpoint.in_flight, now - permit.started, tokens_out)
        if reply is not None:
            used = reply.tokens_in + reply.tokens_out
            if used:
                endpoint.tokens.settle(permit.tokens, used, now)
        elif not unknown:
            endpoint.tokens.settle(permit.tokens, 0, now)
        if permit.foreseen is not None:
            self._pay(permit, permit.foreseen, reply, unknown)
        if hints is not None:
            asked = hints.limit_requests, hints.remaining_requests, hints.reset_requests
            endpoint.requests.on_headers(*asked, 1, outcome, permit.started, now)
            asked = hints.limit_tokens, hints.remaining_tokens, hints.reset_tokens
            endpoint.tokens.on_headers(*asked, permit.tokens, outcome, permit.started, now)
        self.pump()
        if not endpoint.in_flight and self._idle:
            self._idle_since = now

    def _pay(self, permit: Permit, foreseen: Bound, reply: Reply | None, unknown: bool) -> None:
        """Settle what was reserved. If a reply is billed above its bound, requests in flight may be too: the reserve of
        each is raised before anything else is sent."""
        self._priced.discard(permit)
        endpoint = permit.endpoint
        if reply is None:
            permit.settle(permit.reserved if unknown else 0.0)
            return
        # Usage without prompt tokens, or without reply tokens for generated text, is no usage: the worst is the least.
        counted = reply.tokens_in > 0 and (reply.tokens_out > 0 or not reply.text or not foreseen.reply)
        cost = endpoint.cost(reply)
        permit.settle(cost if counted else max(cost, permit.reserved))
        if endpoint.excess.learn(foreseen, reply.tokens_in, reply.tokens_out):
            for other in self._priced:
                if other.endpoint is endpoint:
                    other.expect(endpoint.worst_cost(other.foreseen))

    def learn(self, permit: Permit, failure: Failure) -> None:
        """Update an endpoint's breaker after a failed attempt. Called before the permit is released."""
        permit.endpoint.failed(failure, permit.stamp, self._now(), self._rng.random())


def _ignore(_: Permit | Closed) -> None:
    return None
