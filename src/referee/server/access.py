"""The access log, and a request's id: one line for each request, without query, token or password, and one for a fault
of ours. Plain ASGI.

What a client sends is untrusted and may be secret. Of a path that is none of ours as little is shown as finds a typing
error, and a caller that was refused is not named: what it sent as its name may be a password.
"""

from __future__ import annotations

import contextvars
import logging
import re
import secrets
from collections.abc import Callable, Set
from typing import Any
from urllib.parse import unquote

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from referee import clock
from referee.config.keys import REDACTED, looks_like_key
from referee.server.refusals import Refusal
from referee.server.tokens import Caller

log = logging.getLogger("referee.access")
failures = logging.getLogger("referee.server")

CALLER = "referee.caller"
"""Where the gate puts the Caller of a request, once its token was found to be right."""
FAULT = Refusal(500, "internal", "A fault of the service; its log says more, by X-Request-Id. Nothing was scored.")
LONGEST_PATH = 120
_SANE_ID = re.compile(r"[A-Za-z0-9._:-]{1,64}")
_noted: contextvars.ContextVar[dict[str, int]] = contextvars.ContextVar("noted")


def note(samples: int) -> None:
    """Say how many samples the request that is served here is about."""
    found = _noted.get(None)
    if found is not None:
        found["samples"] = samples


class Access:
    """Gives every request an id, writes its line, and closes kept connections while the service drains."""

    def __init__(self, app: ASGIApp, draining: Callable[[], bool], hidden: Set[str] = frozenset()) -> None:
        """`hidden`: tokens, which are shown nowhere, wherever a client puts them. It may grow."""
        self._app = app
        self._draining = draining
        self._hidden = hidden

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request and tell of it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began, status, begun, name = clock.monotonic(), 500, False, self._id(scope)
        noted: dict[str, int] = {}
        _noted.set(noted)

        async def answer(message: Message) -> None:
            nonlocal status, begun
            if message["type"] == "http.response.start":
                status, begun = message["status"], True
                headers = [*message.get("headers", ()), (b"x-request-id", name.encode())]
                if self._draining():  # so that the client's next request finds another replica
                    headers.append((b"connection", b"close"))
                message = {**message, "headers": headers}
            await send(message)

        try:
            await self._app(scope, receive, answer)
        except Exception:
            failures.exception("a request failed", extra={"fields": {"request_id": name}})
            if begun:
                raise  # so that the connection breaks, and no client takes the beginning for the whole
            await FAULT.response()(scope, receive, answer)
        finally:
            if log.isEnabledFor(logging.INFO):
                fields = self._fields(scope)
                fields |= {"status": status, "seconds": round(clock.monotonic() - began, 6)}
                fields |= {"samples": noted.get("samples", 0), "request_id": name}
                log.info("%s %s %d", fields["method"], fields["path"], status, extra={"fields": fields})

    def _fields(self, scope: Scope) -> dict[str, Any]:
        caller: Caller = scope.get(CALLER, Caller())
        return {
            "method": scope["method"] if re.fullmatch("[A-Z]{1,16}", scope["method"]) else REDACTED,
            "path": getattr(scope.get("route"), "path", "") or self._foreign(scope["path"]),
            "team": caller.team,
            "caller": self._shown(caller.name),
            "client": scope["client"][0] if scope.get("client") else "",
        }

    def _foreign(self, path: str) -> str:
        """A path that is none of ours: one line, nothing that could be a query, a user or a token."""
        path = re.split(r"[?#;&=]", unquote(unquote(path)), maxsplit=1)[0]
        _, at, rest = path.rpartition("@")
        path = "/".join(map(self._shown, (REDACTED + at + rest if at else path).split("/")))
        return path if len(path) <= LONGEST_PATH else f"{path[:LONGEST_PATH]}..."

    def _shown(self, text: str) -> str:
        if looks_like_key(text) or any(token in text for token in self._hidden):
            return REDACTED
        return "".join(char if char.isprintable() and char not in ' "' else "_" for char in text)

    def _id(self, scope: Scope) -> str:
        given = next((value for name, value in scope["headers"] if name == b"x-request-id"), b"").decode("latin-1")
        sane = _SANE_ID.fullmatch(given) and not any(token in given for token in self._hidden)
        return given if sane else secrets.token_hex(8)
