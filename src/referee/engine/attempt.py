"""One attempt: a request out, a Reply or a Failure back. No queueing, no retry."""

from __future__ import annotations

from msgspec.structs import replace

from referee import clock, wire
from referee.engine.endpoint import Endpoint
from referee.engine.port import Transport, TransportFault
from referee.limits.price import STANDARD
from referee.records import Action, Ask, Failure, RateHints, Reply

STALE_CODE = "stale"
"""Failure.code of a reused connection that died before any byte of an answer: probably closed before it was used, so
the request is worth sending again at once."""
SHED = 503
"""How Google answers a request of the flex tier for which it has no capacity; at the standard tier it is an outage."""


async def attempt(
    transport: Transport,
    endpoint: Endpoint,
    request: Ask,
    timeout: float,
    max_tokens: int | None = None,
    standard: bool = False,
) -> tuple[Reply | Failure, RateHints | None]:
    """Ask once, within `timeout` seconds to the last byte. `standard`: not at the endpoint's tier."""
    adaptation = endpoint.at_standard_tier() if standard else endpoint.adaptation
    body = endpoint.encoder.encode(request, adaptation, max_tokens)
    try:
        answer = await transport.post(endpoint.url, endpoint.headers, body, timeout)
    except TransportFault as fault:
        failure = wire.from_fault(fault.kind, endpoint.redactor.text(fault.detail))
        return replace(failure, code=STALE_CODE) if fault.stale else failure, None
    wall = clock.wall()
    headers, content = endpoint.redactor.answer(answer.headers, answer.body)
    dialect = endpoint.dialect
    found = dialect.read(answer.status, headers, content, wall)
    tier = endpoint.config.tier
    if tier and isinstance(found, Reply) and not found.tier:
        found = replace(found, tier=STANDARD if "tier" in adaptation else tier)
    elif tier and isinstance(found, Failure) and found.status == SHED and "tier" not in adaptation:
        found = replace(found, action=Action.WAIT)
    return found, dialect.hints(headers, wall)
