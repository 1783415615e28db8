"""The simulated provider as an HTTP/1.1 server. Sockets only: replies are decided in `provider`.

One write per reply, keep-alive and pipelining, and every wire fault for real: silence, single bytes, resets, cuts,
endless bodies. Routes: POST to the paths of its API, such as …/chat/completions, GET /stats, GET /v1/models, and those
of `batches` if the provider has them.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from collections import deque
from http import HTTPStatus
from typing import cast

import httptools
import msgspec

from referee import clock
from referee.sim.batches import Request, SimBatches
from referee.sim.provider import Provider
from referee.sim.replies import JSON, SimResponse, error

MAX_PENDING = 64
"""Pipelined requests of one connection that may wait before reading pauses."""
HUGE_CHUNK = 64 * 1024
"""Bytes per write of a huge body."""
PHRASES = {status.value: status.phrase for status in HTTPStatus}


class SimServer:
    """A listening server. `url` is its chat-completions URL; of another API its host, which dialects complete."""

    def __init__(self, provider: Provider) -> None:
        self.provider = provider
        self.batches = SimBatches(provider, provider.spec.batch) if provider.spec.batch is not None else None
        self.url = ""
        self._server: asyncio.Server | None = None
        self._connections: set[_Connection] = set()

    async def start(self, host: str, port: int) -> None:
        """Listen; port 0 takes a free one."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(self._connect, host, port)
        bound = self._server.sockets[0].getsockname()[1]
        shown = f"[{host}]" if ":" in host else host
        path = "/v1/chat/completions" if self.provider.spec.api == "chat" else ""
        self.url = f"http://{shown}:{bound}{path}"

    def _connect(self) -> _Connection:
        return _Connection(self.provider, self.batches, self._connections)

    async def close(self) -> None:
        """Stop listening and drop every connection."""
        if self._server is None:
            return
        if self.batches is not None:
            await self.batches.close()
        self._server.close()
        tasks = [task for connection in list(self._connections) if (task := connection.drop())]
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._server.wait_closed()
        self._server = None


async def serve_http(provider: Provider, host: str = "127.0.0.1", port: int = 0) -> SimServer:
    """Start a server for `provider` on the running loop."""
    server = SimServer(provider)
    await server.start(host, port)
    return server


class _Connection(asyncio.Protocol):
    """One client. Requests are answered one at a time, in order of arrival."""

    def __init__(self, provider: Provider, batches: SimBatches | None, peers: set[_Connection]) -> None:
        self._provider = provider
        self._batches = batches
        self._peers = peers
        self._parser = httptools.HttpRequestParser(self)
        self._url = b""
        self._headers: dict[str, str] = {}
        self._body: list[bytes] = []
        self._pending: deque[Request | None] = deque()
        """None: what came is no HTTP, and nothing follows."""
        self._task: asyncio.Task[None] | None = None
        self._writable: asyncio.Future[None] | None = None
        self._loop = asyncio.get_running_loop()
        self._transport = cast(asyncio.Transport, None)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._peers.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._peers.discard(self)
        if self._task is not None:
            self._task.cancel()

    def drop(self) -> asyncio.Task[None] | None:
        """Abort the connection. Returns the task still to be awaited, if any."""
        self._transport.abort()
        if self._task is not None:
            self._task.cancel()
        return self._task

    def data_received(self, data: bytes) -> None:
        if self._pending and self._pending[-1] is None:
            return
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade):
            self._pending.append(None)
        if len(self._pending) > MAX_PENDING:
            self._transport.pause_reading()
        if self._pending and self._task is None:
            self._task = self._loop.create_task(self._answer_pending())

    # The parser calls these.

    def on_message_begin(self) -> None:
        self._url, self._headers, self._body = b"", {}, []

    def on_url(self, url: bytes) -> None:
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_body(self, data: bytes) -> None:
        self._body.append(data)

    def on_message_complete(self) -> None:
        method, keep_alive = self._parser.get_method().decode(), self._parser.should_keep_alive()
        path, body = self._url.decode("latin-1"), b"".join(self._body)
        self._pending.append(Request(method, path, self._headers, keep_alive, body))

    def pause_writing(self) -> None:
        self._writable = self._loop.create_future()

    def resume_writing(self) -> None:
        if self._writable is not None and not self._writable.done():
            self._writable.set_result(None)
        self._writable = None

    async def _drain(self) -> None:
        if self._writable is not None:
            await self._writable

    async def _answer_pending(self) -> None:
        """Answer until nothing is pending or the connection ends."""
        try:
            while self._pending and not self._transport.is_closing():
                request = self._pending.popleft()
                if request is None:
                    self._refuse()
                else:
                    await self._answer(request)
                await self._drain()
                if len(self._pending) == MAX_PENDING:
                    self._transport.resume_reading()
        except Exception:
            self._transport.abort()
            raise
        finally:
            self._task = None

    def _refuse(self) -> None:
        answer = error("bad_request", say="not HTTP/1.1")
        self._transport.write(_head(answer.status, answer.headers, len(answer.body), False) + answer.body)
        self._transport.close()

    async def _answer(self, request: Request) -> None:
        path = request.path.partition("?")[0]
        if self._batches is not None and self._batches.serves(path):
            answer = self._batches.answer(request)
        elif request.method == "POST" and self._provider.api.serves(path):
            answer = await self._provider.serve(request.body, request.headers, path)
            if answer.wire not in ("", "bomb"):
                await self._send_faulty(answer)
                return
        else:
            answer = self._other_route(request)
        head = _head(answer.status, answer.headers, len(answer.body), request.keep_alive)
        self._transport.write(head + answer.body)
        if not request.keep_alive:
            self._transport.close()

    def _other_route(self, request: Request) -> SimResponse:
        """Any route but chat completions."""
        if request.method == "GET" and request.path == "/stats":
            return SimResponse(200, JSON, msgspec.json.encode(self._provider.stats()))
        if request.method == "GET" and request.path == "/v1/models":
            name = self._provider.spec.model or "sim"
            return SimResponse(200, JSON, msgspec.json.encode({"object": "list", "data": [{"id": name}]}))
        return error("unknown_url", say=f"Unknown request URL: {request.method} {request.path}.")

    async def _send_faulty(self, answer: SimResponse) -> None:
        """Send a reply with the wire fault it is marked with, and close the connection."""
        transport, spec = self._transport, self._provider.spec
        whole = _head(answer.status, answer.headers, len(answer.body), False)
        endless = _head(answer.status, answer.headers, None, False)
        match answer.wire:
            case "hang":
                await self._loop.create_future()
            case "drip":
                transport.write(whole)
                for at in range(len(answer.body)):
                    await clock.sleep(spec.drip_interval / spec.time_scale)
                    transport.write(answer.body[at : at + 1])
            case "reset":
                _linger_zero(transport)
                transport.abort()
            case "cut":
                transport.write(whole + answer.body[: answer.keep])
            case "cut_silent":
                transport.write(endless + answer.body[: answer.keep])
            case "huge":
                transport.write(endless + b'{"id":"')
                for _ in range(spec.huge_bytes // HUGE_CHUNK + 1):
                    transport.write(b"x" * HUGE_CHUNK)
                    await self._drain()
        transport.close()


def _head(status: int, headers: dict[str, str], length: int | None, keep_alive: bool) -> bytes:
    """Status line and headers. Without a length the body ends with the connection."""
    lines = [f"HTTP/1.1 {status} {PHRASES.get(status, 'Overloaded')}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    if length is not None:
        lines.append(f"content-length: {length}")
    if not keep_alive:
        lines.append("connection: close")
    lines.append("\r\n")
    return "\r\n".join(lines).encode("latin-1")


def _linger_zero(transport: asyncio.Transport) -> None:
    """Make closing send RST instead of FIN."""
    transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
