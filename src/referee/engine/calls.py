"""Attempts under permits: their timeout, what their outcome teaches limiter and breaker, and hedging.

What happens after an attempt is decided in `engine`.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Coroutine, Mapping
from typing import Any

from referee import clock
from referee.config import LimitsConfig
from referee.engine.admission import Admission
from referee.engine.attempt import STALE_CODE, attempt
from referee.engine.endpoint import Endpoint
from referee.engine.flight import Flight
from referee.engine.hedge import hedged
from referee.engine.identity import Change, Identity
from referee.engine.outcomes import LESSONS, may_be_billed
from referee.engine.permit import Permit
from referee.engine.port import Transport
from referee.limits import Stragglers
from referee.records import Action, Failure, Reason, Reply

log = logging.getLogger("referee.engine")

HEDGE_CHECK_S = 0.25
"""Interval of checks while it is not known yet what counts as late."""


class Calls:
    """Sends requests that have a permit."""

    def __init__(self, limits: LimitsConfig, transports: Mapping[Endpoint, Transport], admission: Admission) -> None:
        self._now = clock.running()
        self._limits = limits
        self._transports = transports
        self._admission = admission
        self.stragglers = Stragglers(limits.hedge)
        self._identities = {endpoint: Identity() for endpoint in transports}
        self.changes: list[Change] = []
        """Every time another model, provider or fingerprint answered than before."""

    async def ask(self, flight: Flight, permit: Permit, longer: bool) -> tuple[Reply | Failure, Permit]:
        """One attempt, or two if the first is late and limits.hedge allows it. Returns the permit that counts."""
        stragglers = self.stragglers
        stragglers.sent()
        if not stragglers.share:
            return await self._attempt(flight, permit, longer)

        def look_after() -> float:
            late = stragglers.late_after
            return HEDGE_CHECK_S if late is None else max(late - (self._now() - permit.started), late / 8)

        def again() -> Coroutine[Any, Any, tuple[Reply | Failure, Permit]] | None:
            late = stragglers.late_after
            if late is None or self._now() - permit.started < late:
                return None
            spare = self._admission.now(flight.request, permit.endpoint, flight.refused_by, flight.team)
            if spare is None:
                return None
            if not stragglers.take():
                spare.release("ignored")
                return None
            return self._attempt(flight, spare, longer)

        return await hedged(
            self._attempt(flight, permit, longer), look_after, again, lambda found: isinstance(found[0], Reply)
        )

    async def _attempt(self, flight: Flight, permit: Permit, longer: bool) -> tuple[Reply | Failure, Permit]:
        """One attempt, repeated immediately if it met a dead kept connection. The repeat is a request like any other:
        it waits for a permit, and counts against rate and budget. The first failure teaches nothing."""
        outcome = await self._send(flight, permit, longer, first=True)
        if isinstance(outcome, Failure) and outcome.code == STALE_CODE:
            granted = await self._admission.acquire(
                flight.request, flight.turn, None, flight.refused_by, math.isinf(flight.deadline), flight.team
            )
            if isinstance(granted, Permit):
                permit = granted
                outcome = await self._send(flight, permit, longer, first=False)
        return outcome, permit

    async def _send(self, flight: Flight, permit: Permit, longer: bool, first: bool) -> Reply | Failure:
        """One request under a permit, which is released whatever happens."""
        endpoint, request = permit.endpoint, flight.request
        flight.attempts += 1
        number = flight.attempts
        flight.adaptation = endpoint.adaptation
        if flight.sent_first is None:
            flight.sent_first = self._now()
        full = self._limits.attempt_timeout if flight.standard else endpoint.attempt_timeout
        timeout = min(full, max(0.05, self.give_up_at(flight) - self._now()))
        max_tokens = request.sampling.max_tokens * 2 if longer else None
        try:
            outcome, hints = await attempt(
                self._transports[endpoint], endpoint, request, timeout, max_tokens, flight.standard
            )
            if isinstance(outcome, Reply):
                latency = self._now() - permit.started
                endpoint.answered(permit.started, latency)
                endpoint.proved(request.sampling, flight.adaptation)
                self.stragglers.answered(latency)
                endpoint.breaker.on_ok(permit.started)
                flight.pay(endpoint.cost(outcome), outcome)
                self._look_who_answered(endpoint, outcome)
                permit.release("ok", outcome, hints)
                self._note(permit, number, outcome)
                return outcome
            if first and outcome.code == STALE_CODE:
                permit.release("ignored", unknown=True)  # a server that read it before closing may bill it
                return outcome
            outcome = endpoint.believed(outcome, request.sampling, self._now())
            self._note(permit, number, outcome)
            cut_short = outcome.reason is Reason.TIMEOUT and timeout < full  # our deadline cut it short, not the server
            if outcome.action is Action.GIVE_UP and outcome.status:
                endpoint.breaker.on_ok(permit.started)  # it rightly refused this request, so it is up
            elif not cut_short:
                self._admission.learn(permit, outcome)
            # In an outage the breaker decides; what the limiter has learned stays valid for afterwards.
            lesson = "ignored" if cut_short or endpoint.breaker.suspended else LESSONS.get(outcome.action, "ignored")
            permit.release(lesson, None, hints, unknown=may_be_billed(outcome))
            return outcome
        finally:
            if permit.held:
                permit.release("ignored", unknown=True)
                self._note(permit, number, None)

    def _look_who_answered(self, endpoint: Endpoint, reply: Reply) -> None:
        changed = self._identities[endpoint].seen(reply)
        if changed is not None:
            self.changes.append(Change(endpoint.label, *changed, clock.wall()))

    def give_up_at(self, flight: Flight) -> float:
        """The latest deadline of its listeners; if that is open-ended, limits.deadline after the first attempt."""
        if math.isinf(flight.deadline) and flight.sent_first is not None:
            return flight.sent_first + self._limits.deadline
        return flight.deadline

    def _note(self, permit: Permit, number: int, end: Reply | Failure | None) -> None:
        """One line for each attempt, without content: a provider's error may quote the request. None: cancelled."""
        endpoint = permit.endpoint
        if log.isEnabledFor(logging.DEBUG):
            found = "cancelled"
            if isinstance(end, Reply):
                found = f"answered, {end.tokens_in} tokens in, {end.tokens_out} out"
            elif end is not None:
                found = f"{end.reason} ({f'status {end.status}' if end.status else 'no answer'})"
            log.debug("%s: attempt %d: %s, %.3f s", endpoint.label, number, found, self._now() - permit.started)
        if isinstance(end, Failure) and end.action is Action.CLOSE and endpoint.breaker.closed is None:
            status = end.status or "no answer"
            log.warning("%s: %s (%s) %s", endpoint.label, end.reason, status, end.detail)
