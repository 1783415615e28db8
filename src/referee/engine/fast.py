"""HTTP/1.1 made of the pieces uvicorn is made of: the event loop's own sockets and httptools. The default transport.

Same promises as `aio`, at a fraction of its cost: one write per request, headers built once per endpoint, connections
reused last in, first out. Redirects are not followed, the environment's proxies are not used, bodies are capped
after decompression, idle sockets are dropped before servers' usual 5 s. `takes` says what is left to aiohttp.
"""

from __future__ import annotations

import asyncio
import logging
import math
import re
import socket
import ssl
from collections.abc import Mapping
from urllib.parse import SplitResult, urlsplit

from referee import clock
from referee.engine.body import CONNECT, KEEP_ALIVE, say
from referee.engine.connection import Connection
from referee.engine.port import Response, TransportFault

log = logging.getLogger("referee.engine")

DNS_TTL = 300.0
"""Seconds an address is believed."""
CLOSING = 1.0
"""Seconds given to sockets to close."""
CLOCK = 0.001
"""Seconds by which a loop's timer may be early: it counts in milliseconds."""
NO_REUSE = 60.0
"""Seconds for which connections to a server that sent a copy of an answer serve one request each."""

_ID = re.compile(rb'"id"\s*:\s*("(?:[^"\\]|\\.)*"|[^\s,}]*)')


def takes(url: str, proxy: str) -> bool:
    """Whether this transport serves the endpoint: plain or TLS, direct, without credentials in the address."""
    parts = urlsplit(url)
    plain = url.isascii() and url.isprintable() and " " not in url
    return not proxy and plain and parts.scheme in ("http", "https") and "@" not in parts.netloc


class FastTransport:
    """Transport over our own connections. One pool per host; the gate stands before it, so it has no limit."""

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        """`tls`: whom to trust, instead of the system's authorities."""
        self._tls = tls
        self._targets: dict[str, _Target] = {}
        self._closed = False

    async def post(self, url: str, headers: Mapping[str, str], body: bytes, timeout: float) -> Response:
        """Send one request and read its whole answer, or raise TransportFault."""
        target = self._targets.get(url)
        if target is None:
            target = self._targets[url] = _Target(asyncio.get_running_loop(), urlsplit(url), self._tls)
        deadline = target.now() + timeout
        connection = target.idle() or await target.connect(deadline)
        target.watch(deadline)
        answer = await connection.ask(b"%b%d\r\n\r\n%b" % (target.head(headers), len(body), body), deadline, timeout)
        if target.doubted is not None and 200 <= answer.status < 300:
            target.compare(answer.body)
        return answer

    async def close(self) -> None:
        """Close every connection."""
        targets, self._targets = self._targets, {}
        await asyncio.gather(*(target.close() for target in targets.values()))


class _Target:
    """One address: its prepared request head, its connections, its resolved addresses."""

    def __init__(self, loop: asyncio.AbstractEventLoop, url: SplitResult, tls: ssl.SSLContext | None) -> None:
        self._loop = loop
        self.now = loop.time
        self._host = url.hostname or ""
        self._port = url.port or (443 if url.scheme == "https" else 80)
        self._tls = (tls or _context()) if url.scheme == "https" else None
        path = (url.path or "/") + (f"?{url.query}" if url.query else "")
        self._line = f"POST {path} HTTP/1.1\r\nhost: {url.netloc}\r\n"
        self._headers: Mapping[str, str] | None = None
        self._head = b""
        self._free: list[Connection] = []
        self._open: set[Connection] = set()
        self._sweeper: asyncio.TimerHandle | None = None
        self._alarm: asyncio.TimerHandle | None = None
        self._alarm_at = math.inf
        self._addresses: list[tuple[int, str]] = []
        self._resolved = float("-inf")
        self._closed = False
        self.doubted: bytes | None = None
        """The id of an answer that came twice on one connection, until another connection's answer is there."""
        self._constant: set[bytes] = set()
        """Ids this server has given to different requests."""
        self._reuse_from = float("-inf")

    def head(self, headers: Mapping[str, str]) -> bytes:
        """Everything up to the number of bytes in the body, built once for one set of headers."""
        if headers is not self._headers:
            lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
            if (self._line + lines).count("\r\n") != 2 + len(headers) or "\n" in lines.replace("\r\n", ""):
                raise TransportFault("protocol", "a header holds a line break")
            self._head = f"{self._line}{lines}content-length: ".encode("latin-1")
            self._headers = headers
        return self._head

    def idle(self) -> Connection | None:
        """The connection used last, if one is free and young enough."""
        free, now = self._free, self._loop.time()
        while free:
            connection = free.pop()
            if (
                connection.usable
                and now - connection.idle_since < KEEP_ALIVE
                and now >= self._reuse_from
                and connection.quiet
            ):
                return connection
            connection.close()
        return None

    def watch(self, deadline: float) -> None:
        """An answer is due by then. One timer for all of them: nearly all come in time, and timers cost."""
        if deadline < self._alarm_at:
            if self._alarm is not None:
                self._alarm.cancel()
            self._alarm_at = deadline
            self._alarm = clock.at(self._loop, deadline, self._ring)

    def _ring(self) -> None:
        """Give up on what is late, and see to it that the next is noticed."""
        self._alarm, self._alarm_at = None, math.inf
        now = self.now() + CLOCK
        for connection in list(self._open):
            connection.expire(now)
        due = min((connection.due for connection in self._open), default=math.inf)
        if due < math.inf:
            self.watch(due)

    async def connect(self, deadline: float) -> Connection:
        """A new connection, to the address that worked last if there are several."""
        patience = min(deadline, self._loop.time() + CONNECT)
        addresses = await self._resolve(patience)
        failure = TransportFault("connect", "no address")
        for at, (family, address) in enumerate(addresses):
            left = patience - self._loop.time()
            share = left if at == len(addresses) - 1 else left / 2
            try:
                connection = await self._dial(family, address, share)
            except TransportFault as fault:
                failure = fault
                if fault.kind == "tls":
                    break
                continue
            if at:
                self._addresses = [addresses[at], *(a for a in addresses if a is not addresses[at])]
            return connection
        self._resolved = float("-inf")  # the judge may have moved: ask for its address again
        raise failure

    async def _dial(self, family: int, address: str, seconds: float) -> Connection:
        try:
            async with asyncio.timeout(max(0.0, seconds)):
                _, connection = await self._loop.create_connection(
                    self._new,
                    address,
                    self._port,
                    family=family,
                    ssl=self._tls,
                    server_hostname=self._host if self._tls else None,
                )
                return connection
        except TimeoutError:
            raise TransportFault("connect", f"no connection to {self._host} within {seconds:.3g} s") from None
        except (ssl.SSLError, ssl.CertificateError) as error:
            raise TransportFault("tls", say(error)) from None
        except OSError as error:
            raise TransportFault("connect", say(error)) from None

    def _new(self) -> Connection:
        return Connection(self._loop, self._open.add, self._freed, self._open.discard, self._may_repeat)

    def _may_repeat(self, body: bytes) -> bool:
        """Whether a body that came before on its connection can be another request's answer: where ids are constant.
        Copies are sent on the connection of the first answer, so an id that comes on two connections is constant."""
        if self.doubted is not None:
            self.compare(body)
        name = _id(body)
        if name in self._constant:
            return True
        self.doubted = name
        self._reuse_from = self.now() + NO_REUSE
        return False

    def compare(self, body: bytes) -> None:
        """Another connection's answer shows whether the doubted id says anything."""
        name = _id(body)
        if name == self.doubted:
            self._constant.add(name)
            self._reuse_from = float("-inf")
        else:
            log.warning(
                "%s sent an answer twice. The copy is no verdict, and the request it came for is sent again; for %g s "
                "each connection serves one request. Look at the proxies before endpoint.url.",
                self._host,
                NO_REUSE,
            )
        self.doubted = None

    async def _resolve(self, deadline: float) -> list[tuple[int, str]]:
        now = self._loop.time()
        if now - self._resolved < DNS_TTL:
            return self._addresses
        try:
            async with asyncio.timeout_at(deadline):
                found = await self._loop.getaddrinfo(self._host, self._port, type=socket.SOCK_STREAM)
        except TimeoutError:
            raise TransportFault("dns", f"{self._host} was not resolved in time") from None
        except (OSError, UnicodeError) as error:
            raise TransportFault("dns", say(error)) from None
        self._addresses = list(dict.fromkeys((int(family), str(where[0])) for family, _, _, _, where in found))
        self._resolved = now
        return self._addresses

    def _freed(self, connection: Connection) -> None:
        if self._closed:
            connection.close()
            return
        connection.idle_since = self._loop.time()
        self._free.append(connection)
        if self._sweeper is None:
            self._sweeper = clock.at(self._loop, connection.idle_since + KEEP_ALIVE, self._sweep)

    def _sweep(self) -> None:
        """Close what idled too long: the oldest stand first."""
        old = self._loop.time() - KEEP_ALIVE
        keep = 0
        while keep < len(self._free) and self._free[keep].idle_since <= old:
            self._free[keep].close()
            keep += 1
        del self._free[:keep]
        self._sweeper = None
        if self._free:
            self._sweeper = clock.at(self._loop, self._free[0].idle_since + KEEP_ALIVE, self._sweep)

    async def close(self) -> None:
        """Close idle connections politely, others at once, and wait a little for the sockets to be gone."""
        self._closed = True
        for timer in (self._sweeper, self._alarm):
            if timer is not None:
                timer.cancel()
        for connection in list(self._open):
            if connection.usable:
                connection.close()
            else:
                connection.end()
        end = self._loop.time() + CLOSING
        while self._open and self._loop.time() < end:
            await clock.sleep(0.001)
        for connection in list(self._open):
            connection.end()


def _id(body: bytes) -> bytes:
    found = _ID.search(body)
    return found[1] if found is not None else b""


def _context() -> ssl.SSLContext:
    context = ssl.create_default_context()
    context.set_alpn_protocols(["http/1.1"])
    return context
