"""The transport port: what the engine needs of an HTTP client.

Implementations: `transport.HttpTransport`, and `referee.sim` for tests.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, Protocol

from msgspec import Struct

FaultKind = Literal["timeout", "connect", "dns", "tls", "proxy", "reset", "cut", "too_large", "protocol", "repeated"]

STALE_S = 0.5
"""A reused connection that dies within this time had been closed before it was used. Later, the server may have worked
on the request."""


class Response(Struct, frozen=True, gc=False):
    """A whole HTTP answer. Header names are lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class TransportFault(Exception):
    """No whole answer came. `stale`: a reused connection died before any byte of it, so the request is sent again."""

    def __init__(self, kind: FaultKind, detail: str = "", stale: bool = False) -> None:
        super().__init__(f"{kind}: {detail}" if detail else kind)
        self.kind: FaultKind = kind
        self.detail = detail
        self.stale = stale


class Transport(Protocol):
    """Sends one request and returns its whole answer within `timeout` seconds, or raises TransportFault."""

    async def post(self, url: str, headers: Mapping[str, str], body: bytes, timeout: float) -> Response: ...

    async def close(self) -> None: ...
