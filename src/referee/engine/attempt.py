"""One attempt: a request out, a Reply or a Failure back. No queueing, no retry but the free replay of a dead socket."""

from __future__ import annotations

from referee import clock, wire
from referee.engine.endpoint import Endpoint
from referee.engine.port import Response, Transport, TransportFault
from referee.records import Failure, JudgeRequest, RateHints, Reply


async def attempt(
    transport: Transport, endpoint: Endpoint, request: JudgeRequest, timeout: float, max_tokens: int | None = None
) -> tuple[Reply | Failure, RateHints | None]:
    """Ask once, within `timeout` seconds to the last byte."""
    body = wire.encode(endpoint.config, request, endpoint.adaptation, max_tokens)
    try:
        answer = await _post(transport, endpoint, body, timeout)
    except TransportFault as fault:
        return wire.from_fault(fault.kind, fault.detail), None
    wall = clock.wall()
    return wire.classify(answer.status, answer.headers, answer.body, wall), wire.hints(answer.headers, wall)


async def _post(transport: Transport, endpoint: Endpoint, body: bytes, timeout: float) -> Response:
    """A reused connection that dies before any byte of answer was closed under us: replay once, at no charge."""
    started = clock.now()
    try:
        return await transport.post(endpoint.url, endpoint.headers, body, timeout)
    except TransportFault as fault:
        left = timeout - (clock.now() - started)
        if not fault.stale or left <= 0:
            raise
        return await transport.post(endpoint.url, endpoint.headers, body, left)
