"""The HTTP client: HTTP/1.1 on the event loop's own sockets, parsed by httptools, direct or through an HTTP proxy.

One write per request, headers built once per endpoint, connections reused last in, first out. Redirects are not
followed, the environment's proxies are not used, bodies are capped after decompression, idle sockets are dropped before
servers' usual 5 s.
"""

from __future__ import annotations

import asyncio
import logging
import math
import re
import ssl
from collections.abc import Mapping
from urllib.parse import SplitResult, quote, urlsplit

from referee import clock
from referee.engine.body import MAX_BODY
from referee.engine.connection import Connection
from referee.engine.dial import Dialer
from referee.engine.port import Response, TransportFault
from referee.engine.proxy import Proxy

log = logging.getLogger("referee.engine")

KEEP_ALIVE_S = 4.0
"""Idle sockets are closed after this: uvicorn and vLLM close theirs at 5 s, and a race with that close costs an
attempt."""
CONNECT_S = 10.0
"""Limit for opening a connection (TCP, CONNECT, TLS), within the attempt's own timeout."""
CLOSE_S = 1.0
"""Limit for sockets to close in `close`."""
TIMER_RESOLUTION_S = 0.001
"""A loop's timer may fire this early: it counts in milliseconds."""
SINGLE_USE_S = 60.0
"""After a server sent a copy of an answer, its connections serve one request each for this long."""

_ID = re.compile(rb'"id"\s*:\s*("(?:[^"\\]|\\.)*"|[^\s,}]*)')
_BREAKS = frozenset("\r\n\0")
"""Characters that would end a header for some servers."""
_SAFE = bytes(range(33, 127)).decode()
"""Characters of a path or query that are sent as they are; spaces and non-ASCII ones are percent-encoded."""


class HttpTransport:
    """Transport over our own connections, through `proxy` if one is given. One pool of connections per URL, without a
    limit of its own: admission is the limit."""

    def __init__(self, proxy: str = "", tls: ssl.SSLContext | None = None) -> None:
        """`tls` replaces the system's certificate authorities, for the endpoint and for an https proxy."""
        self._proxy = Proxy(proxy) if proxy else None
        self._tls = tls
        self._targets: dict[str, _Target] = {}

    async def post(self, url: str, headers: Mapping[str, str], body: bytes, timeout: float) -> Response:
        """Send one request and read its whole answer, or raise TransportFault."""
        target = self._targets.get(url)
        if target is None:
            target = self._targets[url] = _Target(asyncio.get_running_loop(), urlsplit(url), self._proxy, self._tls)
        deadline = target.now() + timeout
        connection = target.idle() or await target.connect(deadline)
        target.watch(deadline)
        answer = await connection.ask(b"%b%d\r\n\r\n%b" % (target.head(headers), len(body), body), deadline, timeout)
        if target.doubted is not None and 200 <= answer.status < 300:
            target.compare(answer.body)
        return answer

    async def request(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes, timeout: float, most: int = MAX_BODY
    ) -> Response:
        """Any other request, on a connection of its own: what is looked at again and again has equal answers, which
        `post` takes for copies. `most`: bytes of the answer."""
        loop = asyncio.get_running_loop()
        target = _Target(loop, urlsplit(url), self._proxy, self._tls, method)
        deadline = target.now() + timeout
        try:
            connection = await target.connect(deadline)
            target.watch(deadline)
            request = b"%b%d\r\n\r\n%b" % (target.head(headers), len(body), body)
            return await connection.ask(request, deadline, timeout, most)
        finally:
            await target.close()

    async def close(self) -> None:
        """Close every connection."""
        targets, self._targets = self._targets, {}
        await asyncio.gather(*(target.close() for target in targets.values()))


class _Target:
    """One URL: its prepared request head and its connections."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        url: SplitResult,
        proxy: Proxy | None,
        tls: ssl.SSLContext | None,
        method: str = "POST",
    ) -> None:
        self._loop = loop
        self.now = loop.time
        self._host = url.hostname or ""
        authority = url.netloc.rpartition("@")[2]
        target = quote(url.path or "/", safe=_SAFE) + (f"?{quote(url.query, safe=_SAFE)}" if url.query else "")
        self._line = f"{method} {target} HTTP/1.1\r\nhost: {authority}\r\n"
        if proxy is not None and url.scheme == "http":  # the proxy reads the request, so it needs URL and login
            self._line = f"{method} http://{authority}{target} HTTP/1.1\r\nhost: {authority}\r\n{proxy.login}"
        self._dialer = Dialer(loop, url, proxy, tls, self._new)
        self._headers: Mapping[str, str] | None = None
        self._head = b""
        self._free: list[Connection] = []
        self._open: set[Connection] = set()
        self._sweeper: asyncio.TimerHandle | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = math.inf
        self._closed = False
        self.doubted: bytes | None = None
        """The id of an answer that came twice on one connection, until another connection's answer is there."""
        self._constant: set[bytes] = set()
        """Ids this server has given to different requests."""
        self._reuse_from = float("-inf")

    def head(self, headers: Mapping[str, str]) -> bytes:
        """Everything up to the number of bytes in the body, built once for one set of headers."""
        if headers is not self._headers:
            if any(not _BREAKS.isdisjoint(text) for text in (*headers, *headers.values())):
                raise TransportFault("protocol", "a header holds a line break")
            lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
            self._head = f"{self._line}{lines}content-length: ".encode("latin-1")
            self._headers = headers
        return self._head

    def idle(self) -> Connection | None:
        """The connection used last, if one is free and can still be used."""
        free, now = self._free, self._loop.time()
        while free:
            connection = free.pop()
            if (
                connection.usable
                and now - connection.idle_since < KEEP_ALIVE_S
                and now >= self._reuse_from
                and connection.quiet
            ):
                return connection
            connection.close()
        return None

    def watch(self, deadline: float) -> None:
        """Make sure a late answer is noticed. One timer serves all connections: nearly all answers come in time."""
        if deadline < self._timer_at:
            if self._timer is not None:
                self._timer.cancel()
            self._timer_at = deadline
            self._timer = clock.at(self._loop, deadline, self._expire)

    def _expire(self) -> None:
        """Fail requests whose answer is late, and set the timer for the next."""
        self._timer, self._timer_at = None, math.inf
        now = self.now() + TIMER_RESOLUTION_S
        for connection in list(self._open):
            connection.expire(now)
        due = min((connection.due for connection in self._open), default=math.inf)
        if due < math.inf:
            self.watch(due)

    async def connect(self, deadline: float) -> Connection:
        """A new connection, within CONNECT_S."""
        connection = await self._dialer.connect(min(deadline, self.now() + CONNECT_S))
        if self._closed:
            connection.close()
            raise TransportFault("reset", "the connection was closed here")
        return connection

    def _new(self) -> Connection:
        return Connection(self._loop, self._open.add, self._freed, self._open.discard, self._may_repeat)

    def _may_repeat(self, body: bytes) -> bool:
        """Whether a body that came before on its connection can be another request's answer: if the server's ids are
        constant. A copy comes on the connection of the first answer, so an id seen on two connections is constant."""
        if self.doubted is not None:
            self.compare(body)
        name = _id(body)
        if name in self._constant:
            return True
        self.doubted = name
        self._reuse_from = self.now() + SINGLE_USE_S
        return False

    def compare(self, body: bytes) -> None:
        """Another connection's answer shows whether the doubted id is constant."""
        name = _id(body)
        if name == self.doubted:
            self._constant.add(name)
            self._reuse_from = float("-inf")
        else:
            log.warning(
                "%s sent an answer twice. The copy is no verdict, and the request it came for is sent again; for %g s "
                "each connection serves one request. Look at the proxies before endpoint.url.",
                self._host,
                SINGLE_USE_S,
            )
        self.doubted = None

    def _freed(self, connection: Connection) -> None:
        if self._closed:
            connection.close()
            return
        connection.idle_since = self._loop.time()
        self._free.append(connection)
        if self._sweeper is None:
            self._sweeper = clock.at(self._loop, connection.idle_since + KEEP_ALIVE_S, self._sweep)

    def _sweep(self) -> None:
        """Close connections that were idle for too long; the list is oldest first."""
        old = self._loop.time() - KEEP_ALIVE_S
        keep = 0
        while keep < len(self._free) and self._free[keep].idle_since <= old:
            self._free[keep].close()
            keep += 1
        del self._free[:keep]
        self._sweeper = None
        if self._free:
            self._sweeper = clock.at(self._loop, self._free[0].idle_since + KEEP_ALIVE_S, self._sweep)

    async def close(self) -> None:
        """Close idle connections gracefully, others at once, and wait up to CLOSE_S for their sockets."""
        self._closed = True
        for timer in (self._sweeper, self._timer):
            if timer is not None:
                timer.cancel()
        for connection in list(self._open):
            if connection.usable:
                connection.close()
            else:
                connection.end()
        end = self._loop.time() + CLOSE_S
        while self._open and self._loop.time() < end:
            await clock.sleep(0.001)
        for connection in list(self._open):
            connection.end()


def _id(body: bytes) -> bytes:
    found = _ID.search(body)
    return found[1] if found is not None else b""
