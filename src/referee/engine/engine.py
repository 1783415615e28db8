"""The async pipe: coalesce, cache, admission, attempt, retry. Ask in, Settled out.

Runs on one event loop. Decides nothing about judging or rewards: `Ask.read` says whether a reply holds a verdict.
Retries end by deadline, not by count; only replies without a verdict are counted.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import math
import random
from collections.abc import Callable, Sequence

from referee import clock, wire
from referee.cache import Cache, Entry, SharedCache
from referee.config import Config
from referee.engine.admission import Admission
from referee.engine.calls import Calls
from referee.engine.duplicates import Duplicates
from referee.engine.endpoint import Endpoint
from referee.engine.flight import Flight, Listener
from referee.engine.outcomes import entry_of, from_cache, from_flight, shared
from referee.engine.permit import Closed, Permit
from referee.engine.pools import Pools
from referee.engine.port import Transport
from referee.engine.retry import RetryState
from referee.engine.warm_first import WarmFirst
from referee.limits import Budget, retry_delay
from referee.limits.account import Account
from referee.records import Action, Ask, Reason, Reply, Settled, Unscored, Verdict
from referee.soundness import sound

log = logging.getLogger("referee.engine")

MIN_ATTEMPT_S = 0.1
"""Time that must be left for another attempt."""
MAX_STORING = 2048
"""Flights that may wait to be stored without holding back new ones."""


class Engine:
    """One set of endpoints, one cache, one budget; one flight per pool and key."""

    def __init__(
        self,
        config: Config,
        endpoints: Sequence[Endpoint],
        transports: Sequence[Transport],
        cache: Cache,
        rng: random.Random,
        on_room: Callable[[], None],
        more_to_come: Callable[[], bool],
    ) -> None:
        """`transports[i]` serves `endpoints[i]`; one object may serve several. The cache calls back on this loop.
        `on_room` is called when another request may be begun; `more_to_come` says whether any is about to be."""
        self._loop = asyncio.get_running_loop()
        self._now = clock.running()
        self._config = config
        self._transport = dict(zip(endpoints, transports, strict=True))
        self.cache = cache
        self._shared = cache if isinstance(cache, SharedCache) else None
        self._on_room = on_room
        self._more_to_come = more_to_come
        self._rng = rng
        self._good: dict[Endpoint, Ask] = {}
        """The latest request each endpoint has answered: asked again, it tells an outage from a request at fault."""
        self.pools = Pools(config, endpoints)
        self._no_schema: set[Endpoint] = set()
        self._flights: dict[tuple[str, str, str], Flight] = {}
        """By pool, key and team: of two judges with the same question, each is answered by its own endpoints only."""
        accounts = {team.name: Account(team) for team in config.team}
        self._duplicates = Duplicates(self._flights, accounts)
        self._tasks: set[asyncio.Task[None]] = set()
        """Of all flights, including those that were left and whose cancellation is under way."""
        self._storing = 0
        """Number of flights whose verdict is being stored."""
        self._unstored: dict[tuple[str, str], int] = {}
        """Number of the other flights, by pool and team."""
        self._warm = WarmFirst(self._enqueue)
        budget, patience = Budget(config.limits.budget_usd), config.limits.deadline
        self.admission = Admission(endpoints, budget, rng, patience, accounts)
        self.endpoints = self.admission.endpoints
        self.calls = Calls(config.limits, self._transport, self.admission)

    @property
    def flying(self) -> int:
        """Requests not yet settled, waiting ones included."""
        return len(self._flights)

    def room(self, pool: str, team: str = "") -> int:
        """How many more requests the endpoints of a pool could take now if no other team used them; negative: the
        number that is queued. Flights that are being stored need no endpoint any more, but more than MAX_STORING hold
        back new ones."""
        held = self._warm.held((pool, team)) if self._warm.holding else 0
        begun = self._unstored.get((pool, team), 0)
        return self.pools.limit(pool) - begun + held - max(0, self._storing - MAX_STORING)

    def takes_schema(self, pool: str) -> bool:
        """False once an endpoint of a pool has refused a JSON schema: plan in text form from then on."""
        return not self.pools.any_of(pool, self._no_schema)

    def key(self, request: Ask) -> str:
        """The request's key, here and in the cache."""
        return self.pools.key(request)

    def expect(self, requests: Sequence[Ask]) -> list[str]:
        """These will be asked next: the cache looks them up together. Returns their keys."""
        keys = [self.pools.key(request) for request in requests]
        if self.pools.several:
            others = [key for request in requests for key in self.pools.other_keys(request)]
            self.cache.expect([*keys, *others])
        else:
            self.cache.expect(keys)
        return keys

    def known(self, request: Ask, key: str) -> Settled | None:
        """The cached verdict, if there is one. None while a flight for it is under way, whose verdict may be in memory
        and not yet stored."""
        if self._duplicates.under_way(request.pool, key):
            return None
        entry = self.cache.get(key)
        if entry is not None:
            return from_cache(key, entry)
        for other in self.pools.other_keys(request) if self.pools.several else ():
            entry = self.cache.get(other)
            if entry is not None:
                return from_cache(other, entry)
        return None

    def ask(self, request: Ask, key: str, deadline: float, listener: Listener, team: str = "") -> Flight:
        """A flight for a request that is not cached: a new one, or the one of this team under way for the same key."""
        flight = self._flights.get((request.pool, key, team))
        if flight is not None:
            flight.join(listener, deadline)
            return flight
        flight = self._flights[request.pool, key, team] = Flight(key, request, self._now(), team)
        flight.refused_by = self.pools.excluded(request)
        self._unstored[flight.place] = self._unstored.get(flight.place, 0) + 1
        flight.join(listener, deadline)
        self._search(flight)
        return flight

    def leave(self, flight: Flight, listener: Listener) -> Settled | None:
        """Stop waiting for a flight. If no listener is left, it ends at once; its end, with its cost, is returned."""
        if not flight.leave(listener) or self._flights.get(flight.name) is not flight:
            return None
        self._remove(flight)
        self._stop(flight)
        self._duplicates.leave(flight, self._enqueue)
        return self._end(flight, Unscored(reason=Reason.CANCELLED, detail=flight.trouble()))

    def settle(self) -> None:
        """If all flights only wait to be stored, and no more are about to follow, commit now."""
        if self._storing >= len(self._flights) and not self._more_to_come():
            self.cache.hurry()

    async def close(self) -> None:
        """Cancel all flights, close connections, write out the cache."""
        self._warm.stop()
        for flight in list(self._flights.values()):
            flight.followers = None
            self._stop(flight)
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for flight in list(self._flights.values()):  # queued, searching, or being stored
            self._tell(flight, self._end(flight, Unscored(reason=Reason.CANCELLED, detail=flight.trouble())))
        for transport in {id(t): t for t in self._transport.values()}.values():
            with contextlib.suppress(Exception):
                await transport.close()
        if self._shared is not None:
            with contextlib.suppress(Exception):
                await self._shared.finish()
        self.cache.close()

    def _search(self, flight: Flight) -> None:
        """Search the shared cache; queue the flight if there is none, or nothing in it."""
        if self._shared is not None:
            keys = [flight.key, *self.pools.other_keys(flight.request)]
            # At most half of the time is spent waiting for another job's verdict, so that half is left for our own.
            patience = min(self._config.limits.deadline, flight.deadline - self._now()) / 2
            flight.claim = self._shared.claim(keys, patience, functools.partial(self._searched, flight), flight.team)
        if flight.claim is None:
            self._enqueue(flight)

    def _searched(self, flight: Flight, found: tuple[str, Entry] | None) -> None:
        if found is None:
            self._enqueue(flight)
        else:
            self._tell(flight, from_cache(*found))

    def _enqueue(self, flight: Flight) -> None:
        """Queue the flight for its first permit. Its task is created with that, so that a permit is used at once."""
        flight.turn = flight.turn or self.admission.turn()
        if self._duplicates.follows(flight):
            return
        first = self.pools.warms.get(flight.request.pool) if self.pools.warms else None
        if first is not None and not flight.leads and self._warm.holds(flight, first.warm_from or 1, first.latency):
            return
        flight.waiter = self.admission.join(
            flight.request,
            flight.turn,
            None,
            flight.refused_by,
            math.isinf(flight.deadline),
            flight.team,
            functools.partial(self._granted, flight),
        )

    def _granted(self, flight: Flight, granted: Permit | Closed) -> None:
        if isinstance(granted, Permit):
            self._duplicates.asks(flight)
        flight.task = self._loop.create_task(self._fly(flight, granted))
        self._tasks.add(flight.task)
        flight.task.add_done_callback(functools.partial(self._over, flight, granted))

    def _over(self, flight: Flight, granted: Permit | Closed, task: asyncio.Task[None]) -> None:
        """Cleans up after the task, which may have been cancelled before its first step."""
        self._tasks.discard(task)
        flight.task = flight.waiter = None  # both refer to the flight: only GC frees reference cycles, and late
        if task.cancelled():
            if isinstance(granted, Permit) and granted.held:
                granted.release("ignored")
            self._tell(flight, self._end(flight, Unscored(reason=Reason.CANCELLED, detail=flight.trouble())))

    def _stop(self, flight: Flight) -> None:
        if flight.task is not None:
            flight.task.cancel()
        elif flight.waiter is not None:
            flight.waiter.gone = True
            flight.waiter = None

    async def _fly(self, flight: Flight, granted: Permit | Closed) -> None:
        """Run one request to its end and call its listeners."""
        settled: Settled | None
        try:
            settled = await self._settle(flight, granted)
        except asyncio.CancelledError:
            settled = self._end(flight, Unscored(reason=Reason.CANCELLED, detail=flight.trouble()))
        except Exception as error:  # a bug of ours must not become a hang or a zero
            log.exception("judging failed unexpectedly")
            settled = self._end(
                flight, Unscored(reason=Reason.CONFIG, detail=f"internal error: {type(error).__name__}")
            )
        if settled is not None:
            self._tell(flight, settled)

    def _tell(self, flight: Flight, settled: Settled) -> None:
        self._remove(flight)
        for listener, pays in list(flight.listeners.items()):
            if listener not in flight.listeners:
                continue  # an earlier listener's call removed it
            try:
                listener(settled if pays or settled.origin in ("cache", "shared") else shared(settled))
            except Exception:
                log.exception("a listener failed; the others are still told")
        flight.listeners.clear()
        for other in self._duplicates.leave(flight, self._enqueue, settled):
            self._tell(other, shared(settled))

    def _remove(self, flight: Flight) -> None:
        if self._flights.get(flight.name) is flight:
            del self._flights[flight.name]
            if flight.held or flight.leads:
                self._warm.gone(flight)
            if not flight.stored:
                self._unstored[flight.place] -= 1
            if flight.claim is not None:
                flight.claim.release()
            self._on_room()

    async def _settle(self, flight: Flight, granted: Permit | Closed) -> Settled | None:
        """Try until there is an end. None: listeners are called once the verdict is stored."""
        state = RetryState(flight.request.again, self._config.limits.give_up_after)
        while True:
            if isinstance(granted, Closed):
                return self._end(flight, granted.verdict)
            if flight.leads:
                self._warm.sent(flight, granted.endpoint.latency)
            outcome, permit = await self.calls.ask(flight, granted, state.longer)
            if flight.leads:
                self._warm.ended(flight)
            endpoint = permit.endpoint
            if isinstance(outcome, Reply):
                self._good[endpoint] = flight.request
                verdict = sound(flight.request.read(flight.request, outcome))
                if isinstance(verdict, Verdict):
                    settled = self._end(flight, verdict, outcome, permit)
                    return None if self._keep(flight, endpoint, verdict, settled) else settled
                flight.last = verdict
                if verdict.reason is Reason.REFUSED:
                    flight.refused_by |= {endpoint}
                if not state.after_unread(verdict, self.admission.others(flight.refused_by)):
                    return self._end(flight, verdict, outcome, permit)
                granted = await self._again(flight, endpoint)
                continue
            flight.last = outcome
            if outcome.unsupported and self._adapt(flight, endpoint, outcome.unsupported):
                granted = await self._again(flight, endpoint)
                continue
            if outcome.action is Action.WAIT and endpoint.config.tier_fallback and not flight.standard:
                flight.standard = True
                granted = await self._again(flight, None)
                continue
            now, sent_first = self._now(), flight.sent_first or 0.0
            if not state.after_failure(outcome, endpoint.served, now, sent_first):
                return self._end(flight, state.given_up(outcome, flight.attempts, endpoint.label), None, permit)
            delay = retry_delay(outcome, state.failures, self._rng.random(), endpoint.latency)
            left = self.calls.give_up_at(flight) - now
            lone = len(self.endpoints) - len(flight.refused_by) == 1
            stay_away = outcome.retry_after or 0.0 if lone else 0.0
            if left < MIN_ATTEMPT_S or left <= stay_away:
                why = Unscored(reason=outcome.reason, detail=f"out of time after {flight.trouble()}")
                return self._end(flight, why, None, permit)
            await clock.sleep(min(delay, left / 2))  # a long back-off must leave time for the last attempt
            if state.doubtful:
                await self._ask_known(flight, endpoint)
            granted = await self._again(flight, endpoint)

    async def _ask_known(self, flight: Flight, endpoint: Endpoint) -> None:
        """Ask again what this endpoint has answered before, in place of a request that only fails. An answer updates
        `endpoint.served`, so that the next failure is known to be the request's own. The reply is not used."""
        request = self._good.get(endpoint)
        if request is None:
            return
        probe = Flight("", request, self._now(), flight.team)
        probe.deadline, probe.turn = flight.deadline, flight.turn
        probe.refused_by = frozenset(self.endpoints) - {endpoint}
        granted = await self._again(probe, None)
        if isinstance(granted, Permit):
            await self.calls.ask(probe, granted, False)
            flight.pay(probe.cost, probe)

    async def _again(self, flight: Flight, avoid: Endpoint | None) -> Permit | Closed:
        """Another permit, at the request's old place in the queue."""
        self._duplicates.leave(flight, self._enqueue)  # this team may be held back now; others must not be with it
        granted = await self.admission.acquire(
            flight.request, flight.turn, avoid, flight.refused_by, math.isinf(flight.deadline), flight.team
        )
        if isinstance(granted, Permit):
            self._duplicates.asks(flight)
        return granted

    def _adapt(self, flight: Flight, endpoint: Endpoint, unsupported: str) -> bool:
        """Learn what a server does not support. False: nothing to leave out, or the schema: that needs a new plan."""
        if flight.adaptation is not endpoint.adaptation:
            return True  # another flight learned meanwhile, perhaps the same; ask again with what is known now
        adapted = wire.adapt(endpoint.dialect, endpoint.adaptation, unsupported)
        if adapted is None or (unsupported == "tier" and not endpoint.config.tier_fallback):
            return False  # without the tier it would cost more
        if wire.SCHEMA in adapted:
            if not self._no_schema:
                log.warning("%s does not take response_format; asking for text verdicts instead", endpoint.label)
            self._no_schema.add(endpoint)
            return False
        log.info("%s does not take %s; leaving it out", endpoint.label, unsupported)
        endpoint.adaptation = adapted
        return True

    def _keep(self, flight: Flight, endpoint: Endpoint, verdict: Verdict, settled: Settled) -> bool:
        """Store an accepted verdict. True: listeners are called when it would survive a kill, and not before."""
        reply = settled.reply
        assert reply is not None
        entry = entry_of(flight.request, endpoint, verdict, reply, clock.wall())
        key = endpoint.keys.key(flight.request) if self.pools.several else flight.key
        if not self.cache.put(key, entry, _Stored(self, flight, settled)):
            return False
        self._storing += 1
        flight.stored = True
        self._unstored[flight.place] -= 1
        self.settle()
        self._on_room()
        return True

    def _end(
        self, flight: Flight, verdict: Verdict | Unscored, reply: Reply | None = None, permit: Permit | None = None
    ) -> Settled:
        return from_flight(flight, verdict, reply, permit, self._now(), clock.wall())


class _Stored:
    """Called when a verdict is on disk. Thousands wait at once: one small object each keeps GC cheap."""

    __slots__ = ("engine", "flight", "settled")

    def __init__(self, engine: Engine, flight: Flight, settled: Settled) -> None:
        self.engine = engine
        self.flight = flight
        self.settled = settled

    def __call__(self) -> None:
        self.engine._storing -= 1
        self.engine._tell(self.flight, self.settled)
