"""Our own paths: score a batch (at once or as a stream), tickets to collect later, health, metrics."""

from __future__ import annotations

from typing import Annotated, Any, TypeVar

import msgspec
from fastapi import FastAPI, Path, Query
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from referee.records import Sample
from referee.server.gate import Bodies, caller_of, known_caller, unless_gone
from referee.server.openapi import OF_BODIES, TICKET_SCHEMA, gives, ref, takes
from referee.server.prometheus import CONTENT_TYPE, exposition
from referee.server.refusals import Problem, Refusal
from referee.server.schemas import (
    Health,
    ScoreReply,
    ScoreRequest,
    StreamEnd,
    TicketRequest,
    decode,
    encode,
    result_of,
    samples_of,
)
from referee.server.service import Service
from referee.server.tokens import Caller

LONGEST_WAIT = 60.0
"""Seconds one GET of a ticket may wait; ask again after that."""
NDJSON = "application/x-ndjson"
STREAM_SCHEMA = {NDJSON: {"schema": {"type": "string", "description": "A Result per line, then one StreamEnd."}}}

Wanted = TypeVar("Wanted", ScoreRequest, TicketRequest)

_score = msgspec.json.Decoder(ScoreRequest)
_ticket = msgspec.json.Decoder(TicketRequest)


def json(body: bytes, status: int = 200) -> Response:
    """An answer whose body is JSON already."""
    return Response(body, status, media_type="application/json")


def add_own_routes(app: FastAPI, service: Service, bodies: Bodies) -> None:
    """Add our own paths."""

    async def read(request: Request, decoder: msgspec.json.Decoder[Wanted]) -> tuple[Caller, Wanted, list[Sample]]:
        wanted = decode(decoder, await bodies.read(request))
        reads = service.teams.reads(caller_of(request))
        return caller_of(request), wanted, samples_of(wanted.samples, reads.columns, reads.polarity)

    @app.post(
        "/v1/score",
        summary="Judge a batch and wait",
        responses=gives(ref(ScoreReply), *OF_BODIES, also=STREAM_SCHEMA),
        openapi_extra=takes(ScoreRequest),
        response_model=None,
    )
    async def score(request: Request) -> Response:
        """Results in the order of the request, or with `stream` one per line as they land. Leaving cancels the work."""
        caller, wanted, samples = await read(request, _score)
        if wanted.stream:
            return Stream(service, samples, wanted.deadline, caller)
        async with service.judging(samples, wanted.deadline, caller) as ticket:
            rewards = await unless_gone(request.receive, service.rewards(ticket, caller))
        if rewards is None:
            raise Refusal(400, "gone", "The caller left; its samples were cancelled.")
        return json(encode(ScoreReply(results=[result_of(reward) for reward in rewards])))

    @app.post(
        "/v1/tickets",
        summary="Start judging a batch",
        responses=gives(TICKET_SCHEMA, *OF_BODIES, status=202),
        openapi_extra=takes(TicketRequest),
        status_code=202,
        response_model=None,
    )
    async def submit(request: Request) -> Response:
        """Returns a ticket at once; collect it at /v1/tickets/{id}."""
        wanted = decode(_ticket, await bodies.read(request))
        caller = caller_of(request)
        reads = service.teams.reads(caller)
        held = await service.tickets.open(
            samples_of(wanted.samples, reads.columns, reads.polarity), wanted.deadline, caller
        )
        return json(held.reply(), 202)

    @app.get(
        "/v1/tickets/{id}",
        summary="Collect a batch",
        responses=gives(TICKET_SCHEMA, 404, 422, 500, 503),
        response_model=None,
    )
    async def collect(
        request: Request,
        id: Annotated[str, Path(description="As given when the batch was submitted.")],
        wait: Annotated[
            float, Query(ge=0, le=LONGEST_WAIT, allow_inf_nan=False, description="Seconds to wait for the end.")
        ] = 0.0,
    ) -> Response:
        """The results when all are final, else how many have landed. Can be asked for again until it is forgotten."""
        return json(await service.tickets.collect(id, wait, caller_of(request)))

    @app.delete(
        "/v1/tickets/{id}",
        summary="Give a batch up",
        responses={204: {"description": "Gone."}, **gives(ref(Problem), 404, 422, 500, status=404)},
        status_code=204,
        response_model=None,
    )
    async def drop(
        request: Request, id: Annotated[str, Path(description="As given when the batch was submitted.")]
    ) -> Response:
        """Forget the ticket and stop judging what it is for. What is judged stays cached."""
        await service.tickets.drop(id, caller_of(request))
        return Response(status_code=204)

    @app.get("/healthz", summary="Is it alive", responses=_health_answers(), response_model=None)
    async def healthz(request: Request) -> Response:
        """200 while the process answers at all, whatever the state it tells of. If it does not, restart it."""
        return json(encode(service.health(known_caller(request))))

    @app.get("/readyz", summary="Is it of use", responses=_health_answers(503), response_model=None)
    async def readyz(request: Request) -> Response:
        """200 while work is taken and a judge can answer; else 503 and why. Send work elsewhere then."""
        return json(encode(service.health(known_caller(request))), 200 if service.ready else 503)

    @app.get(
        "/metrics",
        summary="Numbers for Prometheus",
        responses={
            200: {"description": "Text.", "content": {"text/plain": {"schema": {"type": "string"}}}},
            **_only(gives({}), 401, 403, 421),
        },
        response_class=Response,
        response_model=None,
    )
    async def metrics(request: Request) -> Response:
        """Counters and gauges, in Prometheus' text form. A team gets its own."""
        return Response(exposition(service, caller_of(request).team), headers={"content-type": CONTENT_TYPE})


def _only(answers: dict[int | str, dict[str, Any]], *codes: int) -> dict[int | str, dict[str, Any]]:
    return {code: answers[code] for code in codes}


def _health_answers(*more: int) -> dict[int | str, dict[str, Any]]:
    content = {"application/json": {"schema": ref(Health)}}
    words = {200: "Yes.", 503: "No judge can answer, the budget is spent, or it is about to end."}
    return {
        **{status: {"description": words[status], "content": content} for status in (200, *more)},
        **_only(gives({}), 421),
    }


class Stream(Response):
    """Results as they land, one JSON object per line; the last line is a StreamEnd. Leaving cancels the work.

    The status is sent with the first line, so what goes wrong after it stands in the last one.
    """

    media_type = NDJSON

    def __init__(self, service: Service, samples: list[Sample], deadline: float | None, caller: Caller) -> None:
        super().__init__()
        del self.headers["content-length"]
        self._service = service
        self._samples = samples
        self._deadline = deadline
        self._caller = caller

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let the batch in, then stream."""
        await unless_gone(receive, self._send(send))

    async def _send(self, send: Send) -> None:
        landed = 0
        begun = False
        try:
            async with self._service.judging(self._samples, self._deadline, self._caller) as ticket:
                await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
                begun = True
                async for reward in ticket:
                    landed += 1
                    self._service.noticed(ticket, (reward,), self._caller)
                    await _line(send, encode(result_of(reward)))
            end = StreamEnd(done=True, results=landed)
        except Refusal as refusal:
            if not begun:
                raise
            end = StreamEnd(done=False, results=landed, error=refusal.error, message=refusal.message)
        await _line(send, encode(end), more=False)


async def _line(send: Send, line: bytes, more: bool = True) -> None:
    await send({"type": "http.response.body", "body": line + b"\n", "more_body": more})
