"""The application: our paths and those of other projects around one Referee, and a place for pages of others."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Mapping

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Match

from referee.config import Secret
from referee.referee import Referee
from referee.server.access import Access
from referee.server.gate import Bodies, Gate
from referee.server.openapi import describe
from referee.server.refusals import Refusal
from referee.server.routes import add_own_routes
from referee.server.service import Service
from referee.server.tokens import Tokens
from referee.server.trainer_routes import add_trainer_routes
from referee.version import VERSION

Page = Callable[[Mapping[str, str]], "str | bytes | Awaitable[str | bytes]"]

ABOUT = """An LLM judge as an RL reward, for any number of processes: one cache, one limit, one budget.

A sample that could not be judged has no reward; it never becomes 0 by itself. Callers choose neither endpoint nor
model, prompt or policy: those are the configuration's."""


def make_app(referee: Referee, token: Secret | None = None, teams: Mapping[str, Secret] = {}) -> FastAPI:
    """The service over `referee`, which stays the caller's to close. With a token, callers must send it, or that of
    their team, by its name in `teams`.

    Make it where its event loop will run. `app.state.service` is the Service behind it.
    """
    tokens = Tokens(referee.config, token, teams)
    service = Service(referee, tokens)
    # FastAPI's own pages at /docs and /redoc load scripts from a foreign host: they are off.
    app = FastAPI(title="referee", version=VERSION, description=ABOUT, docs_url=None, redoc_url=None)
    app.state.service = service
    bodies = Bodies(service.config.max_body)
    add_own_routes(app, service, bodies)
    add_trainer_routes(app, service, bodies)
    for path in ("other", *(getattr(route, "path", "") for route in app.routes)):
        service.answers[path, 500] = 0  # a count that begins with 1 is no increase to Prometheus, and rings no alert
    app.add_middleware(Gate, service=service)
    app.add_middleware(Access, draining=lambda: service.draining, hidden=tokens.hidden)
    app.add_exception_handler(Refusal, _refused)
    app.add_exception_handler(HTTPException, _http)
    app.add_exception_handler(RequestValidationError, _invalid)
    describe(app, secured=not tokens.open)
    return app


def add_page(
    app: FastAPI,
    path: str,
    page: Page,
    media_type: str = "text/html; charset=utf-8",
    headers: Mapping[str, str] | None = None,
) -> None:
    """Serve something more at `path`, behind the same token: a live view, its data, an icon.

    `page` gets the query as a mapping and returns the body. An async function runs on the server's loop and must not
    block it; a plain one runs in a thread, so it may read files. `headers` are added to the answer, such as a
    Content-Security-Policy. Pages are not part of /openapi.json. A Refusal raised by `page` is answered as it is.
    """

    async def serve(request: Request) -> Response:
        query = dict(request.query_params)
        if inspect.iscoroutinefunction(page):
            body = await page(query)
        else:
            body = await asyncio.to_thread(page, query)
        return Response(body, headers={**(headers or {}), "content-type": media_type, "cache-control": "no-store"})

    app.add_api_route(path, serve, methods=["GET"], include_in_schema=False, response_model=None)


async def _refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, Refusal)
    return error.response()


async def _http(request: Request, error: Exception) -> Response:
    """Unknown paths and methods, in our shape."""
    assert isinstance(error, HTTPException)
    words = {404: ("no_path", "There is nothing here; /openapi.json lists what there is."), 405: ("no_method", "")}
    name, text = words.get(error.status_code, ("http", ""))
    response = Refusal(error.status_code, name, text or str(error.detail)).response()
    response.headers.update(error.headers or {})
    if error.status_code == 405:
        response.headers["allow"] = ", ".join(sorted(_methods(request)))
    return response


def _methods(request: Request) -> set[str]:
    """All that a path takes; the framework tells only of the first route that has it."""
    found: set[str] = set()
    for route in request.app.routes:
        if route.matches(request.scope)[0] is not Match.NONE:
            found |= getattr(route, "methods", None) or set()
    return found


async def _invalid(request: Request, error: Exception) -> Response:
    """A query or path parameter that does not fit."""
    assert isinstance(error, RequestValidationError)
    found = "; ".join(f"{'.'.join(map(str, item['loc']))}: {item['msg']}" for item in error.errors())
    return Refusal(422, "bad_request", f"{found}.").response()
