"""An HTTP proxy for tests, on the loop that runs them, and ways to a server through it.

It keeps what it was sent: `heads` of requests, and `seen`, every byte that came from clients.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from urllib.parse import urlsplit

import trustme

from referee.engine.transport import HttpTransport

Talk = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@functools.cache
def authority() -> trustme.CA:
    return trustme.CA()


def server_tls(name: str = "127.0.0.1") -> ssl.SSLContext:
    """For a server with a certificate that `client_tls` trusts."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority().issue_cert(name).configure_cert(context)
    return context


def client_tls() -> ssl.SSLContext:
    context = ssl.create_default_context()
    authority().configure_trust(context)
    return context


@contextlib.asynccontextmanager
async def listening(talk: Talk, tls: ssl.SSLContext | None = None) -> AsyncIterator[int]:
    """A server on loopback, by its port. It ends every connection itself, whatever state that is in."""
    tasks: set[asyncio.Task[None]] = set()

    async def guarded(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        try:
            await talk(reader, writer)
        except (OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            writer.transport.abort()
        finally:
            tasks.discard(task)
            writer.close()

    server = await asyncio.start_server(guarded, "127.0.0.1", 0, ssl=tls)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for task in list(tasks):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def joined(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    port: int,
    first: bytes = b"",
    seen: bytearray | None = None,
) -> None:
    """Bytes both ways between a client and a server, until either is done."""
    up_reader, up_writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        up_writer.write(first)
        ways = (passed(reader, up_writer, seen), passed(up_reader, writer))
        tasks = [asyncio.ensure_future(way) for way in ways]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        for task in done:
            task.result()
    finally:
        up_writer.transport.abort()


async def passed(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, seen: bytearray | None = None) -> None:
    while data := await reader.read(65536):
        if seen is not None:
            seen += data
        writer.write(data)
        await writer.drain()


class HttpProxy:
    """Tunnels CONNECT and forwards requests for http URLs, everything to `port`. `answer`: what CONNECT is answered."""

    def __init__(self, port: int, answer: bytes = b"HTTP/1.1 200 Connection established\r\n\r\n") -> None:
        self._port = port
        self._answer = answer
        self.heads: list[bytes] = []
        self.seen = bytearray()

    async def talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        self.heads.append(head)
        self.seen += head
        if head.startswith(b"CONNECT "):
            writer.write(self._answer)
            await writer.drain()
            await joined(reader, writer, self._port, seen=self.seen)
            return
        # Later requests on the connection pass as they are: the servers of these tests do not read the target.
        method, target, rest = head.split(b" ", 2)
        lines = [line for line in rest.split(b"\r\n") if not line.lower().startswith(b"proxy-")]
        path = urlsplit(target.decode()).path.encode()
        await joined(reader, writer, self._port, b" ".join((method, path, b"\r\n".join(lines))), self.seen)


Route = str
"""direct, forwarded (an http URL through a proxy), tunnel (https, CONNECT), or nested (the same, TLS to the proxy)."""


@contextlib.asynccontextmanager
async def reached(port: int, route: Route, secure: bool = False) -> AsyncIterator[tuple[HttpTransport, str]]:
    """A transport and the base URL by which it reaches the server at that port; `secure`: that has TLS itself."""
    async with contextlib.AsyncExitStack() as stack:
        if route in ("tunnel", "nested") and not secure:
            port = await stack.enter_async_context(listening(functools.partial(joined, port=port), server_tls()))
        proxy = ""
        if route != "direct":
            tls = server_tls() if route == "nested" else None
            at = await stack.enter_async_context(listening(HttpProxy(port).talk, tls))
            proxy = f"{'https' if tls else 'http'}://127.0.0.1:{at}"
        scheme = "https" if secure or route in ("tunnel", "nested") else "http"
        transport = HttpTransport(proxy, client_tls())
        stack.push_async_callback(transport.close)
        yield transport, f"{scheme}://127.0.0.1:{port}"
