"""One attempt: a request out, a Reply or a Failure back. No queueing, no retry but the free replay of a dead socket."""

from __future__ import annotations

from collections.abc import Callable

from referee import clock, wire
from referee.engine.endpoint import Endpoint
from referee.engine.port import Transport, TransportFault
from referee.records import Failure, JudgeRequest, RateHints, Reply


async def attempt(
    transport: Transport,
    endpoint: Endpoint,
    request: JudgeRequest,
    timeout: float,
    now: Callable[[], float],
    max_tokens: int | None = None,
) -> tuple[Reply | Failure, RateHints | None]:
    """Ask once, within `timeout` seconds to the last byte.

    A reused connection that dies before any byte of answer was closed under us: that is replayed once, at no charge.
    """
    body = endpoint.encoder.encode(request, endpoint.adaptation, max_tokens)
    until, replayed = now() + timeout, False
    while True:
        try:
            answer = await transport.post(endpoint.url, endpoint.headers, body, timeout)
            break
        except TransportFault as fault:
            timeout = until - now()
            if replayed or not fault.stale or timeout <= 0:
                return wire.from_fault(fault.kind, endpoint.redactor.text(fault.detail)), None
            replayed = True
    wall = clock.wall()
    headers, content = endpoint.redactor.answer(answer.headers, answer.body)
    return wire.classify(answer.status, headers, content, wall), wire.hints(headers, wall)
