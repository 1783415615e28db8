"""What the end of an attempt means for the limiter, the budget, and samples that shared the flight. Plain functions."""

from __future__ import annotations

from msgspec.structs import replace

from referee.cache import Entry
from referee.engine.endpoint import Endpoint
from referee.engine.flight import Flight
from referee.engine.permit import Permit
from referee.limits import Outcome
from referee.records import Action, Ask, Failure, Reply, Settled, Unscored, Verdict

LESSONS: dict[Action, Outcome] = {Action.PARK: "throttled", Action.BACK_OFF: "overloaded"}
"""Outcomes of failed attempts for the limiter; all others are ignored."""


def may_be_billed(failure: Failure) -> bool:
    """The request reached a server that may have done the work, and no count of tokens came back."""
    if failure.status:
        return 200 <= failure.status < 300
    return failure.code not in ("connect", "dns", "tls", "proxy")


def from_flight(
    flight: Flight, verdict: Verdict | Unscored, reply: Reply | None, permit: Permit | None, now: float, wall: float
) -> Settled:
    """The end of a request that was asked, or should have been."""
    sent = flight.sent_first
    return Settled(
        verdict=verdict,
        origin="call" if flight.attempts else "none",
        key=flight.key,
        reply=reply,
        endpoint=permit.endpoint.label if permit else "",
        model=reply.model if reply else "",
        attempts=flight.attempts,
        sent=wall - (now - sent) if sent is not None else 0.0,
        queued_s=(sent if sent is not None else now) - flight.asked,
        latency_s=now - permit.started if permit else 0.0,
        tokens_in=flight.tokens_in,
        tokens_out=flight.tokens_out,
        tokens_cached=flight.tokens_cached,
        tokens_cache_write=flight.tokens_cache_write,
        cost=flight.cost,
    )


def entry_of(request: Ask, endpoint: Endpoint, verdict: Verdict, reply: Reply, wall: float) -> Entry:
    """What the cache keeps of an answer."""
    common, own = endpoint.keys.facets(request)
    return Entry(
        verdict=verdict,
        reply=replace(reply, choices=()) if reply.choices else reply,
        cost=endpoint.cost(reply),
        created=wall,
        endpoint=endpoint.label,
        common=common,
        own=own,
    )


def from_cache(key: str, entry: Entry) -> Settled:
    """The end of a request that the cache answered."""
    return Settled(
        verdict=entry.verdict,
        origin="cache",
        key=key,
        reply=entry.reply,
        endpoint=entry.endpoint,
        model=entry.reply.model,
        saved=entry.cost,
    )


def shared(settled: Settled) -> Settled:
    """The same end, for a sample that did not pay for it."""
    return Settled(
        verdict=settled.verdict,
        origin="shared",
        key=settled.key,
        reply=settled.reply,
        endpoint=settled.endpoint,
        model=settled.model,
        queued_s=settled.queued_s,
        latency_s=settled.latency_s,
        saved=settled.cost,
    )
