"""HTTP proxies (`endpoint.proxy`): the URL in its parts, and CONNECT, which opens a tunnel to an https endpoint.

Credentials of the proxy go to the proxy only: in CONNECT, or in the requests it forwards for an http endpoint. What is
sent to an https endpoint, its key included, is encrypted inside the tunnel.
"""

from __future__ import annotations

import asyncio
import re
import ssl
from base64 import b64encode
from typing import cast
from urllib.parse import unquote, urlsplit

from referee.engine.connection import MAX_HEAD
from referee.engine.port import TransportFault

REFUSALS = (401, 403, 407)
"""Statuses of a proxy that will not serve us whatever we do: a setting is wrong."""

_STATUS = re.compile(rb"HTTP/1\.\d (\d{3})[ \r]")


class Proxy:
    """A proxy by its URL. `login` is the header line with its credentials, or empty: a secret, so it has no repr."""

    __slots__ = ("host", "login", "name", "port", "secure")

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self.host = parts.hostname or ""
        self.name = f"endpoint.proxy {self.host}"
        self.secure = parts.scheme == "https"
        self.port = parts.port or (443 if self.secure else 80)
        user, password = unquote(parts.username or ""), unquote(parts.password or "")
        basic = b64encode(f"{user}:{password}".encode()).decode()
        self.login = f"proxy-authorization: Basic {basic}\r\n" if user or password else ""

    def connect(self, host: str, port: int) -> bytes:
        """The request for a tunnel to that port."""
        authority = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        return f"CONNECT {authority} HTTP/1.1\r\nhost: {authority}\r\n{self.login}\r\n".encode("latin-1")


class Tunnel(asyncio.Protocol):
    """A connection to a proxy up to the end of the endpoint's TLS handshake inside it. All faults before that are of
    kind `connect`, `proxy` or `tls`: the endpoint has seen no request, so none can be billed."""

    def __init__(self, loop: asyncio.AbstractEventLoop, proxy: Proxy) -> None:
        self._loop = loop
        self._name = proxy.name
        self._head = b""
        self._answered: asyncio.Future[None] = loop.create_future()
        self._fault: TransportFault | None = None

    async def open(self, request: bytes, tls: ssl.SSLContext, hostname: str) -> asyncio.Transport:
        """Send CONNECT, wait for its answer, and begin TLS with the endpoint. Closes the socket if that fails."""
        try:
            self._transport.write(request)
            await self._answered
            self._check()
            secured = await self._loop.start_tls(self._transport, self, tls, server_hostname=hostname)
            self._check()
            return cast(asyncio.Transport, secured)
        except BaseException as error:
            self._transport.abort()
            # asyncio before 3.11.8 and 3.12.2 fails to report the error of a handshake inside TLS (gh-113214).
            if isinstance(error, TypeError) and isinstance(error.__context__, OSError):
                raise error.__context__ from None
            raise

    def _check(self) -> None:
        if self._fault is not None:
            raise self._fault

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The proxy has accepted the connection."""
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        """Bytes of the answer to CONNECT; any others are a fault, because the endpoint speaks only when asked."""
        if self._answered.done():
            self._end(TransportFault("connect", f"{self._name} sent bytes that were not asked for"))
            return
        self._head += data
        end = self._head.find(b"\r\n\r\n") + 4
        if not b"HTTP/1.".startswith(self._head[:7]):
            self._end(TransportFault("connect", f"{self._name} does not speak HTTP/1.1"))
        elif end > 3:
            self._end(self._meaning(end))
        elif len(self._head) > MAX_HEAD:
            self._end(TransportFault("connect", f"the headers of {self._name} passed {MAX_HEAD} bytes"))

    def connection_lost(self, error: Exception | None) -> None:
        """The socket is closed."""
        self._end(TransportFault("connect", f"{self._name} closed the connection"))

    def _meaning(self, end: int) -> TransportFault | None:
        found = _STATUS.match(self._head)
        if found is None:
            return TransportFault("connect", f"{self._name} does not speak HTTP/1.1")
        status = int(found[1])
        if not 200 <= status < 300:
            return TransportFault("proxy" if status in REFUSALS else "connect", f"the proxy answered {status}")
        if len(self._head) > end:
            return TransportFault("connect", f"{self._name} sent bytes that were not asked for")
        return None

    def _end(self, fault: TransportFault | None) -> None:
        self._fault = self._fault or fault
        if not self._answered.done():
            self._answered.set_result(None)
