"""Checks before a request is read: the token, the Host header (DNS rebinding), the size and kind of a body. Plain ASGI.

A service on loopback without a token is open to every program of this machine, but must not be to every web page its
user visits: such a page cannot send application/json to us without asking first, and cannot name a host of ours.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import ipaddress
import re
from collections.abc import Coroutine
from typing import Any, TypeVar

from starlette.requests import ClientDisconnect, Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from referee.server.access import CALLER
from referee.server.refusals import OPEN_PATHS, SOON, Refusal
from referee.server.service import Service
from referee.server.shares import Shares
from referee.server.tokens import JUDGES, Caller

BODY_SECONDS = 60.0
"""How long a body may take to arrive."""
BODIES = 4
"""Bodies of full size that may be in memory at once, before their samples are counted. A caller with less than its
share of them is let in all the same: slow bodies of one team keep no other out."""
LONGEST_NAME = 64
"""Bytes of a caller's name that are looked at."""
UNNAMED = ("", "referee")
"""User names that identify no caller: the second stands in our examples of a URL with a token."""
NOSNIFF = (b"x-content-type-options", b"nosniff")
"""No answer of ours is ever to be taken for a page or a script that it does not say it is."""
T = TypeVar("T")
_HOST = re.compile(r"(?:\[(?P<v6>[^\[\]]*)\]|(?P<host>[^\[\]:]*))(?::[0-9]*)?")


class Gate:
    """Refuses what may not come in, and counts what was answered."""

    def __init__(self, app: ASGIApp, service: Service) -> None:
        self._app = app
        self._service = service
        self._tokens = service.tokens

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request, or refuse it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        status = 500

        async def note(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = message.setdefault("headers", [])
                if all(name != NOSNIFF[0] for name, _ in headers):
                    message["headers"] = [*headers, NOSNIFF]
            await send(message)

        try:
            refusal = self._refuse(scope)
            if refusal is None:
                await self._app(scope, receive, note)
            else:
                await refusal.response()(scope, receive, note)
        finally:
            place = (str(getattr(scope.get("route"), "path", "other")), status)
            self._service.answers[place] = self._service.answers.get(place, 0) + 1

    def _refuse(self, scope: Scope) -> Refusal | None:
        headers: dict[bytes, bytes] = dict(scope["headers"])
        authorization = headers.get(b"authorization", b"")
        team = self._tokens.team_of(_token(authorization))
        if team is None:
            if scope["path"] in OPEN_PATHS:
                return None  # a probe, which is told nothing of judges
            return Refusal(
                401,
                "no_token",
                "This service needs its token: send `Authorization: Bearer <token>`, or where only a URL can be given, "
                "http://referee:<token>@host. Nothing was judged.",
            )
        name = _caller(authorization, scope.get("client"))
        scope[CALLER] = Caller(name, team)
        if self._tokens.open and not is_loopback(_host(headers.get(b"host", b""))):
            return Refusal(
                421,
                "wrong_host",
                "Without a token this service answers only to the names of this machine (127.0.0.1, localhost). Give "
                "it a token to reach it by another name. Nothing was judged.",
            )
        try:
            wanted = b",".join(value for key, value in scope["headers"] if key == JUDGES)
            scope[CALLER] = self._tokens.caller(scope, name, team, wanted)
        except Refusal as refusal:
            return refusal
        return None


def _token(authorization: bytes) -> bytes:
    kind, _, value = authorization.partition(b" ")
    return value.strip() if kind.lower() == b"bearer" else _basic(authorization)[1]


def _basic(given: bytes) -> tuple[bytes, bytes]:
    """User name and password of a Basic authorization header; empty if it is none."""
    kind, _, value = given.partition(b" ")
    try:
        text = base64.b64decode(value.strip(), validate=True) if kind.lower() == b"basic" else b""
    except (binascii.Error, ValueError):
        text = b""
    name, _, password = text.partition(b":")
    return name, password


def _caller(authorization: bytes, client: tuple[str, int] | None) -> str:
    """The caller a request counts for: the user name it gives, else the address it comes from.

    Names are taken on trust: this shares fairly among callers, it does not protect them from one another.
    """
    name = _basic(authorization)[0][:LONGEST_NAME].decode("latin-1")
    return name if name not in UNNAMED else client[0] if client else ""


def caller_of(request: Request) -> Caller:
    """The caller of a request that came through the gate."""
    found: Caller = request.scope.get(CALLER, Caller())
    return found


def known_caller(request: Request) -> Caller | None:
    """The caller, if it sent its token or none is asked for."""
    return request.scope.get(CALLER)


def _host(header: bytes) -> str:
    """The Host header without its port; empty if it is not a host with at most a port."""
    found = _HOST.fullmatch(header.decode("latin-1").strip().lower())
    return found["host"] or found["v6"] if found else ""


def is_loopback(host: str) -> bool:
    """True for the names and addresses that mean this machine and cannot be reached from another."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


class Bodies:
    """Reads bodies within their limits, and counts the bytes being read, by caller."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._held = Shares(BODIES * limit)

    async def read(self, request: Request) -> bytes:
        """The whole body: 415 unless it is JSON, 413 as soon as it is known to be too long, 408 if it does not come."""
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind != "application/json":
            raise Refusal(415, "not_json", "Send the body as content-type application/json. Nothing was judged.")
        declared = request.headers.get("content-length", "")
        if declared.isascii() and declared.isdigit() and int(declared[:20]) > self._limit:
            raise self._too_long()
        chunks: list[bytes] = []
        size, share = 0, caller_of(request).share
        try:
            async with asyncio.timeout(BODY_SECONDS):
                async for chunk in request.stream():
                    if size + len(chunk) > self._limit:
                        raise self._too_long()
                    if not self._held.fits(share, len(chunk)):
                        raise Refusal(429, "busy", "Too many large bodies at once. Try again.", SOON)
                    self._held.take(share, len(chunk))
                    size += len(chunk)
                    chunks.append(chunk)
        except TimeoutError:
            raise Refusal(
                408, "slow_body", f"The body was not there within {BODY_SECONDS:g} s. Nothing was judged."
            ) from None
        except ClientDisconnect:
            raise Refusal(400, "gone", "The caller left before its body was there.") from None
        finally:
            self._held.give_back(share, size)
        return b"".join(chunks)

    def _too_long(self) -> Refusal:
        return Refusal(
            413,
            "too_long",
            f"The body is longer than [serve] max_body = {self._limit} bytes. Send fewer samples at once. Nothing was "
            "judged.",
        )


async def unless_gone(receive: Receive, work: Coroutine[Any, Any, T]) -> T | None:
    """What work gives; None if the caller left before, and the work is cancelled. Only after the whole body was
    read."""
    working, leaving = asyncio.ensure_future(work), asyncio.ensure_future(_gone(receive))
    try:
        await asyncio.wait({working, leaving}, return_when=asyncio.FIRST_COMPLETED)
        return working.result() if working.done() else None
    finally:
        leaving.cancel()
        if not working.done():
            working.cancel()
            await asyncio.wait({working})


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
