"""An engine that shares its limits with others: what stands in the gate instead of limits of its own.

`Member` takes the place of an Admission's limiters, paces and budget, and keeps them filled by exchanging a report
for a grant, about ten times a second while there is work. Who answers is a port of one function, `Exchange`.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
from collections.abc import Awaitable, Callable

from referee import clock
from referee.engine.admission import Admission
from referee.engine.endpoint import Endpoint
from referee.limits.bucket import Bucket
from referee.limits.budget import NANO, Budget
from referee.limits.limit import Limit, Outcome, Stamp
from referee.limits.shares import (
    LEASE,
    OUTCOMES,
    EndpointGrant,
    EndpointReport,
    Event,
    Grant,
    Hints,
    MoneyReport,
    PaceReport,
    Report,
    fair_part,
)

log = logging.getLogger("referee.engine")

Exchange = Callable[[Report], Awaitable[Grant]]
"""Hand in a report, get the grant. One at a time; raises anything when nobody answers within a second or so."""

PERIOD = 0.1
"""Seconds between two exchanges while there is work."""
GAP = 0.01
"""Seconds to the next exchange when the last one brought a larger share and it is used up already."""
HEARTBEAT = 2.0
"""Seconds between two exchanges without work, where the broker would forget a silent member."""
SAME_PAUSE = 0.05
"""Seconds by which two ends of a pause may differ and be the same: one of them has travelled."""
ALONE = 1.0
"""Seconds without an answer after which a member goes by its even part, if that is less than it has."""
RAISE = 5.0
"""Seconds after that until it goes by its even part if that is more: the others must have come down first."""


class SharedLimit:
    """A share of a limiter that lives elsewhere. Keeps what is over until the next report."""

    def __init__(self, own: Limit, poke: Callable[[], None], learns: bool) -> None:
        self.share = 0
        self.whole = own.limit
        """The limit that all members share, as last heard."""
        self.stamp = Stamp(0)
        self.events: list[tuple[float, Event]] = []
        self._poke = poke
        self._learns = learns

    @property
    def limit(self) -> int:
        """How many may be in flight here. Who looks and finds nothing wants more."""
        if not self.share:
            self._poke()
        return self.share

    def admit(self, now: float, in_flight: int) -> Stamp:
        """A request is being sent; at the share's end, ask for more."""
        if in_flight >= self.share:
            self._poke()
        return self.stamp

    def release(
        self, stamp: Stamp, outcome: Outcome, now: float, in_flight: int, latency: float, tokens_out: int
    ) -> None:
        """It is over: remembered for whoever learns from it."""
        if self._learns and outcome != "ignored":
            place = OUTCOMES.index(outcome)
            self.events.append((now, Event(0.0, place, int(stamp), in_flight, latency, tokens_out)))

    def take_events(self, now: float) -> tuple[Event, ...]:
        """What was over since the last time, and how long ago."""
        events, self.events = self.events, []
        return tuple(Event(now - at, e.outcome, e.stamp, e.in_flight, e.latency, e.tokens_out) for at, e in events)

    def __repr__(self) -> str:
        return f"SharedLimit({self.share} of {self.whole})"


class SharedPace(Bucket):
    """A pace leased in blocks. Without a broker it is an ordinary bucket of the even part."""

    def __init__(self, per_minute: float | None, part: float, poke: Callable[[], None]) -> None:
        super().__init__(None if per_minute is None else per_minute * part)
        self._leased = per_minute is not None
        self._poke = poke
        self._have = 0.0
        self._until = 0.0
        self._unit = 1.0
        self._hints: Hints | None = None
        self.alone = False

    def wait(self, amount: float, now: float) -> float:
        """0, or the seconds until it is worth another look; a grant is looked at when it comes."""
        if self.alone or not self._leased:
            return super().wait(amount, now)
        blocked = max(0.0, self._blocked_until - now)
        if now > self._until:
            self._have = min(0.0, self._have)
        self._unit = amount
        if amount <= self._have + 1e-6:
            return blocked
        self._poke()
        return max(blocked, PERIOD)

    def take(self, amount: float, now: float) -> None:
        """This amount goes out."""
        super().take(amount, now)
        self._have -= amount

    def settle(self, estimated: float, actual: float, now: float) -> None:
        """Replace an estimate by what was used."""
        super().settle(estimated, actual, now)
        self._have += estimated - actual

    def observe(self, limit: float | None, remaining: float | None, reset: float | None, now: float) -> None:
        """What the server's headers say holds here at once, and for the others with the next report."""
        super().observe(None, remaining, reset, now)
        if self._leased and (limit is not None or remaining is not None):
            self._hints = Hints(limit, remaining, reset)

    def report(self, waiting: int, now: float) -> PaceReport:
        """What is needed for what waits, and what is not needed any more."""
        if not self._leased:
            return PaceReport()
        hints, self._hints = self._hints, None
        expired = now > self._until
        returned = 0.0
        if not waiting or expired:
            returned, self._have = max(0.0, self._have), min(0.0, self._have)
        if not waiting:
            returned, self._have = returned + self._have, 0.0  # a debt is settled with the pool
            return PaceReport(returned=returned, hints=hints)
        most = self._unit * waiting - self._have
        least = self._unit - min(0.0, self._have) if most > 0 else 0.0
        return PaceReport(least=least, most=max(least, most), returned=returned, hints=hints)

    def grant(self, amount: float, now: float) -> None:
        """More to use, for a while."""
        if amount > 0:
            self._have += amount
            self._until = now + LEASE


class SharedBudget(Budget):
    """Money leased in blocks."""

    def __init__(self, limit_usd: float | None, poke: Callable[[], None]) -> None:
        super().__init__(limit_usd)
        self._shared = limit_usd is not None
        self._poke = poke
        self._short = 0
        self._returned = 0
        self.broke = False
        if self._shared:
            self._limit = 0

    @property
    def waiting(self) -> bool:
        """True if money may still come: a refusal to reserve is not the end."""
        return self._shared and not self.broke

    def reserve(self, worst_usd: float) -> bool:
        """Set aside the most a request can cost, out of what is leased."""
        if super().reserve(worst_usd):
            self._short = 0
            return True
        self._short = max(1, -int(-worst_usd * NANO // 1))
        self._poke()
        return False

    def report(self, waiting: int) -> MoneyReport:
        """What is spent, held and needed. Who is short, or has nothing to send, keeps nothing back."""
        if not self._shared or self._limit is None:
            return MoneyReport()
        self.broke = False
        short = self._short if waiting else 0
        returned = 0
        if short or not waiting or self._returned:
            returned = max(0, self._limit - self._spent - self._reserved)
            self._limit -= returned
        self._returned = 0
        return MoneyReport(self._spent, self._reserved, returned, short, short * (waiting + 1))

    def grant(self, amount: int, broke: bool, recall: bool) -> None:
        """More to spend, or the news that there is none."""
        if self._limit is not None and self._shared:
            self._limit += amount
        self._returned = int(recall)
        if amount:
            self._short = 0
        self.broke = broke


class Member:
    """Puts shared limits into a gate and keeps them filled. `run` lives on the gate's loop until `close`."""

    def __init__(
        self,
        gate: Admission,
        exchange: Exchange,
        *,
        members: int = 1,
        rank: int = 0,
        concurrency: bool = True,
        money: bool = True,
        heartbeat: bool = False,
        patience: float = ALONE,
    ) -> None:
        """`members` and `rank`: the even part that is left without a broker. `concurrency`, `money`: False keeps the
        gate's own limiter, or budget, where only the paces are shared. `heartbeat`: report also without work.
        `patience`: seconds without an answer that mean there is no broker."""
        self._gate = gate
        self._exchange = exchange
        self._members, self._rank = members, rank
        self._heartbeat = heartbeat
        self._patience = patience
        self._wake = asyncio.Event()
        self._heard = clock.now()
        self.alone = False
        """Nobody answers: every member goes by its even part."""
        self._paused: dict[Endpoint, float] = {}
        self._limits: dict[Endpoint, SharedLimit] = {}
        self._paces: dict[Endpoint, tuple[SharedPace, SharedPace]] = {}
        for endpoint in gate.endpoints:
            if concurrency:
                learns = hasattr(endpoint.limiter, "mode")
                endpoint.limiter = self._limits[endpoint] = SharedLimit(endpoint.limiter, self.poke, learns)
            paces = tuple(
                SharedPace(own.per_minute, 1.0 / members, self.poke) for own in (endpoint.requests, endpoint.tokens)
            )
            endpoint.requests, endpoint.tokens = paces
            self._paces[endpoint] = (paces[0], paces[1])
        self.budget: SharedBudget | None = None
        if money:
            gate.budget = self.budget = SharedBudget(gate.budget.limit_usd, self.poke)
        self._task = asyncio.get_running_loop().create_task(self._run())

    def poke(self) -> None:
        """There may be something to ask for."""
        self._wake.set()

    def whole(self, endpoint: Endpoint) -> int:
        """The limit that all members share at an endpoint."""
        shared = self._limits.get(endpoint)
        return endpoint.limiter.limit if shared is None else shared.whole

    async def close(self) -> None:
        """Stop asking."""
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    @property
    def _busy(self) -> bool:
        return bool(self._gate.queued or self._gate.in_flight)

    async def _run(self) -> None:
        owing = False
        while True:
            if not self._busy and not owing:
                await self._rest(HEARTBEAT if self._heartbeat else None)
            owing = self._busy  # after the last request, one more report gives back what is left
            gained = await self._once()
            await self._rest(GAP if gained else PERIOD, at_least=GAP if gained else PERIOD)

    async def _rest(self, seconds: float | None, at_least: float = 0.0) -> None:
        """Until poked or the time is over, but no shorter than `at_least`."""
        if at_least:
            await clock.sleep(at_least)
        else:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._wake.wait(), seconds)
            await clock.breathe()  # whoever poked is about to queue more
        self._wake.clear()

    async def _once(self) -> bool:
        """One report, one grant. True if it was worth asking again soon."""
        now = clock.now()
        report = self._report(now)
        try:
            async with asyncio.timeout(self._patience if math.isfinite(self._patience) else None):
                grant = await self._exchange(report)
        except Exception as error:
            self._unanswered(error)
            return False
        now = self._heard = clock.now()
        if self.alone:
            log.warning("limits are shared again")
            self._set_alone(False)
        gained = False
        for endpoint, given in zip(self._gate.endpoints, grant.endpoints, strict=True):
            gained |= self._apply(endpoint, given, now)
        if self.budget is not None:
            self.budget.grant(grant.money, grant.broke, grant.recall)
        self._gate.pump()
        return gained and self._gate.queued > 0

    def _report(self, now: float) -> Report:
        waiting = self._gate.queued
        found = []
        for endpoint in self._gate.endpoints:
            limit, (requests, tokens) = self._limits.get(endpoint), self._paces[endpoint]
            breaker = endpoint.breaker
            found.append(
                EndpointReport(
                    share=limit.share if limit else 0,
                    in_flight=endpoint.in_flight,
                    waiting=0 if breaker.closed or breaker.suspended else waiting,
                    pause=self._news_of_pause(endpoint, now),
                    requests=requests.report(waiting, now),
                    tokens=tokens.report(waiting, now),
                    events=limit.take_events(now) if limit else (),
                )
            )
        money = self.budget.report(waiting) if self.budget is not None else MoneyReport()
        return Report(endpoints=tuple(found), money=money)

    def _apply(self, endpoint: Endpoint, given: EndpointGrant, now: float) -> bool:
        limit, (requests, tokens) = self._limits.get(endpoint), self._paces[endpoint]
        gained = False
        if limit is not None and given.share is not None:
            gained = given.share > limit.share
            limit.share, limit.whole, limit.stamp = given.share, given.limit, Stamp(given.stamp)
        requests.grant(given.requests, now)
        tokens.grant(given.tokens, now)
        if now + given.pause > self._paused.get(endpoint, now) + SAME_PAUSE:
            self._paused[endpoint] = now + given.pause
            endpoint.breaker.pause(now + given.pause)
        return gained

    def _news_of_pause(self, endpoint: Endpoint, now: float) -> float:
        """Seconds the server wants to be left alone, if the others do not know yet."""
        until = now if endpoint.breaker.suspended else now + endpoint.breaker.wait(now)
        if until <= self._paused.get(endpoint, now) + SAME_PAUSE:
            return 0.0
        self._paused[endpoint] = until
        return until - now

    def _unanswered(self, error: Exception) -> None:
        silent = clock.now() - self._heard
        if not self.alone and silent >= self._patience:
            log.warning(
                "nobody answers for the shared limits (%s); going by an even part of them until somebody does",
                type(error).__name__,
            )
            self._set_alone(True)
        if self.alone:
            for limit in self._limits.values():
                part = fair_part(limit.whole, self._members, self._rank)
                limit.share = part if silent > self._patience + RAISE else min(limit.share, part)
            self._gate.pump()

    def _set_alone(self, alone: bool) -> None:
        self.alone = alone
        for paces in self._paces.values():
            for pace in paces:
                pace.alone = alone
