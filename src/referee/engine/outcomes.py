"""What the end of an attempt means for the limiter, the budget, and samples that shared the flight. Plain functions."""

from __future__ import annotations

from referee.cache import Entry
from referee.limits import Outcome
from referee.records import Action, Failure, Settled

LESSONS: dict[Action, Outcome] = {Action.PARK: "throttled", Action.BACK_OFF: "overloaded"}
"""Outcomes of failed attempts for the limiter; all others are ignored."""


def may_be_billed(failure: Failure) -> bool:
    """The request reached a server that may have done the work, and no count of tokens came back."""
    if failure.status:
        return 200 <= failure.status < 300
    return failure.code not in ("connect", "dns", "tls", "proxy")


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
