"""A strict HTTP/1.1 request parser: bytes in, requests out. No sockets.

Bodies need a Content-Length. Anything ambiguous is refused.
"""

from __future__ import annotations

import functools
import re

from msgspec import Struct
from msgspec.structs import replace

MAX_HEAD = 32 * 1024
"""Bytes of request line and headers."""
MAX_BODY = 256 * 1024 * 1024
"""Bytes of a request's body."""

NAME = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
LINE = re.compile(r"([A-Z]+) (\S+) HTTP/1\.([01])")


class Request(Struct, frozen=True):
    """One complete request. Header names are lower case."""

    method: str
    path: str
    headers: dict[str, str]
    keep_alive: bool
    body: bytes = b""


class BadRequest(Exception):
    """The stream cannot be parsed; the connection must end."""

    def __init__(self, message: str, status: int = 400) -> None:
        super().__init__(message)
        self.status = status


class RequestParser:
    """An incremental parser."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._head: tuple[Request, int] | None = None
        self._broken = False

    def feed(self, data: bytes) -> list[Request | BadRequest]:
        """Requests completed by `data`, in order. A BadRequest is returned, not raised, and is the last."""
        if self._broken:
            return []
        self._buffer += data
        found: list[Request | BadRequest] = []
        try:
            while (request := self._take()) is not None:
                found.append(request)
        except BadRequest as bad:
            self._broken = True
            found.append(bad)
        return found

    def _take(self) -> Request | None:
        buffer, head = self._buffer, self._head
        if head is None:
            end = buffer.find(b"\r\n\r\n")
            if end > MAX_HEAD or (end < 0 and len(buffer) > MAX_HEAD):
                raise BadRequest(f"the request head passes {MAX_HEAD} bytes", 431)
            if end < 0:
                return None
            head = self._head = read_head(buffer[:end].decode("latin-1"))
            del buffer[: end + 4]
        request, length = head
        if len(buffer) < length:
            return None
        body = bytes(buffer[:length])
        del buffer[:length]
        self._head = None
        return replace(request, body=body)


@functools.lru_cache(maxsize=1024)
def read_head(text: str) -> tuple[Request, int]:
    """A request without its body, and the body's length. Cached: a client sends the same head again and again."""
    first, *lines = text.split("\r\n")
    line = LINE.fullmatch(first)
    if line is None:
        raise BadRequest("malformed request line")
    headers: dict[str, str] = {}
    for entry in lines:
        name, colon, value = entry.partition(":")
        if not colon or NAME.fullmatch(name) is None or "\n" in value or "\r" in value or "\0" in value:
            raise BadRequest("malformed header")
        name = name.lower()
        if name in headers and name in ("content-length", "transfer-encoding", "host"):
            raise BadRequest(f"two {name} headers")
        headers[name] = value.strip(" \t")
    if "transfer-encoding" in headers:
        raise BadRequest("send a Content-Length", 411)
    given = headers.get("content-length", "0")
    if not (given.isascii() and given.isdigit()):
        raise BadRequest("malformed Content-Length")
    length = int(given) if len(given) < 12 else MAX_BODY + 1
    if length > MAX_BODY:
        raise BadRequest(f"the body passes {MAX_BODY} bytes", 413)
    connection = headers.get("connection", "").lower()
    keep_alive = "close" not in connection if line[3] == "1" else "keep-alive" in connection
    return Request(line[1], line[2], headers, keep_alive), length
