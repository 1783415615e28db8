"""An engine that shares its limits with other members, through a broker.

`QuotaClient` replaces an Admission's limiters, rates and budget by leased ones, and refills them by exchanging a report
for a grant, about ten times a second while there is work. The broker is behind a port of one function, `Exchange`.
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
from referee.engine.leased_limits import SharedBreaker, SharedBudget, SharedLimit, SharedPace
from referee.limits.limit import Stamp
from referee.limits.quota_broker import EndpointGrant, EndpointReport, Grant, MoneyReport, Report, fair_part

log = logging.getLogger("referee.engine")

Exchange = Callable[[Report], Awaitable[Grant]]
"""Send a report, get the grant. One at a time; raises anything if there is no answer within a second or so."""

EXCHANGE_S = 0.1
"""Interval of exchanges while there is work."""
MIN_EXCHANGE_S = 0.01
"""Interval after a grant of a larger share that is used up already."""
HEARTBEAT_S = 2.0
"""Interval of exchanges without work, if the broker would forget a silent member."""
PAUSE_TOLERANCE_S = 0.05
"""Two ends of a pause that differ by less are the same one: one of them has travelled."""
BROKER_TIMEOUT_S = 1.0
"""Without an answer for this long, a member uses its even part, if that is less than it has."""
RAISE_DELAY_S = 5.0
"""After that, the time until it uses its even part if that is more: the others must have come down first."""


class QuotaClient:
    """Puts leased limits into an Admission and refills them, in a task on its loop, until `close`."""

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
        patience: float = BROKER_TIMEOUT_S,
        quiet: float = EXCHANGE_S,
    ) -> None:
        """`members` and `rank`: the even part used without a broker. `concurrency`, `money`: False keeps the gate's own
        limiter, or budget, if only the rates are shared. `heartbeat`: report also without work. `patience`: seconds
        without an answer that mean there is no broker. `quiet`: seconds between exchanges while nothing is queued,
        for a member that is nudged when others need what it has."""
        self._gate = gate
        self._exchange = exchange
        self._members, self._rank = members, rank
        self._heartbeat = heartbeat
        self._patience = patience
        self._quiet = quiet
        self._wake = asyncio.Event()
        self._hurry = asyncio.Event()
        self._heard = clock.now()
        self.alone = False
        """The broker does not answer: every member uses its even part."""
        self._lowered = False
        self._paused: dict[Endpoint, float] = {}
        self._limits: dict[Endpoint, SharedLimit] = {}
        self._breakers: dict[Endpoint, SharedBreaker] = {}
        self._paces: dict[Endpoint, tuple[SharedPace, SharedPace]] = {}
        for endpoint in gate.endpoints:
            if concurrency:
                learns = hasattr(endpoint.limiter, "mode")
                shared = SharedLimit(endpoint.limiter, self.poke, self.nudge, learns)
                endpoint.limiter = self._limits[endpoint] = shared
            endpoint.breaker = self._breakers[endpoint] = SharedBreaker()
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
        """Report soon: there may be something to ask for."""
        self._wake.set()

    def nudge(self) -> None:
        """Report now: another member needs what this one may be able to spare."""
        self._wake.set()
        self._hurry.set()

    def whole(self, endpoint: Endpoint) -> int:
        """The limit that all members share at an endpoint."""
        shared = self._limits.get(endpoint)
        return endpoint.limiter.limit if shared is None else shared.whole

    async def close(self) -> None:
        """Stop exchanging."""
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    @property
    def _busy(self) -> bool:
        return bool(self._gate.queued or self._gate.in_flight)

    async def _run(self) -> None:
        owing = False
        while True:
            if not self._busy and not owing:
                await _either(self._wake, HEARTBEAT_S if self._heartbeat else None)
                await clock.breathe()  # the caller of `poke` is about to queue more
            self._wake.clear()
            self._hurry.clear()
            owing = self._busy  # after the last request, one more report gives back what is left
            gained = await self._once()
            owing = owing or self._lowered  # and one more says that a lower share is in force
            await clock.sleep(MIN_EXCHANGE_S)
            if not gained and not self._lowered:
                await _either(self._hurry, EXCHANGE_S - MIN_EXCHANGE_S)
                if self._busy and not self._gate.queued and not self._hurry.is_set():
                    await _either(self._wake, self._quiet - EXCHANGE_S)

    async def _once(self) -> bool:
        """One report, one grant. True if the next exchange should follow soon."""
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
        gained = self._lowered = False
        for endpoint, given in zip(self._gate.endpoints, grant.endpoints, strict=True):
            gained |= self._apply(endpoint, given, now)
        if self.budget is not None:
            self.budget.grant(grant)
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
                    pause=self._new_pause(endpoint, now),
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
            self._lowered |= given.share < limit.share
            limit.share, limit.whole, limit.stamp = given.share, given.limit, Stamp(given.stamp)
        requests.grant(given.requests, now)
        tokens.grant(given.tokens, now)
        if now + given.pause > self._paused.get(endpoint, now) + PAUSE_TOLERANCE_S:
            self._paused[endpoint] = now + given.pause
            endpoint.breaker.pause(now + given.pause)
        return gained

    def _new_pause(self, endpoint: Endpoint, now: float) -> float:
        """Seconds of the pause the server asked for, if the other members do not know it yet."""
        until = self._breakers[endpoint].asked_until
        if until <= self._paused.get(endpoint, now) + PAUSE_TOLERANCE_S:
            return 0.0
        self._paused[endpoint] = until
        return until - now

    def _unanswered(self, error: Exception) -> None:
        silent = clock.now() - self._heard
        if not self.alone and silent >= self._patience:
            log.warning(
                "the shared limits cannot be reached (%s); keeping to an even part of them until they can",
                type(error).__name__,
            )
            self._set_alone(True)
        if self.alone:
            for limit in self._limits.values():
                part = fair_part(limit.whole, self._members, self._rank)
                limit.share = part if silent > self._patience + RAISE_DELAY_S else min(limit.share, part)
            self._gate.pump()

    def _set_alone(self, alone: bool) -> None:
        self.alone = alone
        for paces in self._paces.values():
            for pace in paces:
                pace.alone = alone


async def _either(event: asyncio.Event, seconds: float | None) -> None:
    """Until the event is set, or the time is over."""
    if seconds is not None and seconds <= 0:
        return
    with contextlib.suppress(TimeoutError):
        await clock.within(event.wait(), seconds)
