"""What a client may send before it is known: bounded in bytes and in time, over a real socket."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable
from typing import Any, ClassVar

import pytest
import uvicorn
from tests.server.harness import PATIENCE, TOKEN, sample, serving, until
from uvicorn.server import ServerState

from referee.server import add_page
from referee.server.protocol import HEAD_BYTES, HEADER_COST, LimitedProtocol

HEAD = f"POST /v1/score HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {TOKEN}\r\n".encode()
BODY = json.dumps({"samples": [sample()]}).encode()
WHOLE = HEAD + b"content-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(BODY) + BODY


class Client:
    """A plain socket."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def send(self, *pieces: bytes) -> None:
        """Send pieces one after the other, for as long as the other end takes them."""
        with contextlib.suppress(ConnectionError):
            for piece in pieces:
                self.writer.write(piece)
                await self.writer.drain()

    async def answer(self) -> tuple[int, Any]:
        """Status and JSON body of the next answer."""
        head = await asyncio.wait_for(self.reader.readuntil(b"\r\n\r\n"), PATIENCE)
        length = next(line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
        body = await asyncio.wait_for(self.reader.readexactly(int(length.split(b":")[1])), PATIENCE)
        return int(head.split()[1]), json.loads(body)

    async def end(self) -> bytes:
        """All that still comes until the connection is closed."""
        with contextlib.suppress(ConnectionError):
            return await asyncio.wait_for(self.reader.read(), PATIENCE)
        return b""


class Watched(LimitedProtocol):
    """A connection whose deadline never comes by itself within a test."""

    head_seconds = body_seconds = read_seconds = linger = 2 * PATIENCE
    made: ClassVar[list[Watched]] = []

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.made.append(self)

    async def awaits(self, part: str, parts: int) -> None:
        """Wait until it waits for this, after so many parts of requests."""
        await until(lambda: self._awaited == part and self._parts == parts)

    @property
    def unread(self) -> asyncio.TimerHandle | None:
        """Set while the client does not read what there is for it."""
        return self._unread

    def ring_unread(self) -> None:
        """The time to read has passed once more, if the client still has some to read."""
        if self._unread is not None:
            self._see_reading()

    def ring(self) -> None:
        """Its deadline passes, which must have been set."""
        assert self._timer is not None
        self._late()


@contextlib.asynccontextmanager
async def listening(**more: Any) -> AsyncIterator[tuple[Any, Callable[..., Any]]]:
    """The service on a port of loopback, and a function that gives a client and the server's end of its connection."""
    Watched.made.clear()
    async with serving(token=TOKEN, **more) as served, contextlib.AsyncExitStack() as stack:
        config = uvicorn.Config(served.app, lifespan="off", log_config=None)
        state = ServerState()
        server = await asyncio.get_running_loop().create_server(
            lambda: Watched(config=config, server_state=state, app_state={}), "127.0.0.1", 0
        )
        stack.callback(server.close)

        async def connect() -> tuple[Client, Watched]:
            count = len(Watched.made)
            reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname()[:2])
            stack.callback(writer.close)
            await until(lambda: len(Watched.made) > count)
            return Client(reader, writer), Watched.made[-1]

        yield served, connect


@pytest.mark.parametrize(
    "pieces",
    [
        pytest.param([b"x-%d: %s\r\n" % (n, b"v" * 1000) for n in range(100)], id="many"),
        pytest.param([b"x: "] + [b"v" * 4096] * 500, id="one that never ends"),
        pytest.param([b"x:\r\n" * (HEAD_BYTES // HEADER_COST)], id="empty ones"),
        pytest.param([b"x" * 4096] * 500, id="a name that never ends"),
        pytest.param([b"x:\r\n" * (HEAD_BYTES // HEADER_COST) + b"\0\0 no header"], id="and then no HTTP"),
    ],
)
def test_headers_are_bounded_before_the_token_is_looked_at(
    pieces: list[bytes], caplog: pytest.LogCaptureFixture
) -> None:
    """Many, long or endless: 431 in the service's own shape, and the connection is closed."""

    async def main() -> None:
        async with listening() as (_, connect):
            client, _connection = await connect()
            await client.send(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n", *pieces)
            status, problem = await client.answer()
            assert (status, problem["error"]) == (431, "too_long")
            assert await client.end() == b""

    asyncio.run(main())
    assert "Traceback" not in caplog.text


def test_a_target_is_bounded() -> None:
    """An endless path is no way around the limit."""

    async def main() -> None:
        async with listening() as (_, connect):
            client, _connection = await connect()
            await client.send(b"GET /", *[b"x" * 4096] * 20)
            assert (await client.answer())[0] == 431

    asyncio.run(main())


def test_trailers_are_bounded() -> None:
    """Fields behind a chunked body count as headers; the request they belong to is not served."""

    async def main() -> None:
        async with listening() as (served, connect):
            client, _connection = await connect()
            await client.send(HEAD + b"content-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n")
            await client.send(b"%x\r\n%s\r\n0\r\n" % (len(BODY), BODY), *[b"x: %s\r\n" % (b"v" * 4000)] * 20)
            assert await client.end() == b""
            await until(lambda: served.service.pending == 0)
            assert served.held.asked == 0

    asyncio.run(main())


def test_headers_up_to_the_limit_are_served() -> None:
    """A long cookie of a browser is no attack; each request on a connection is counted by itself."""

    async def main() -> None:
        async with listening() as (_, connect):
            client, _connection = await connect()
            for _ in range(3):
                long = b"cookie: %s\r\ncontent-type: " % (b"c" * (HEAD_BYTES - 1000))
                await client.send(WHOLE.replace(b"content-type: ", long))
                status, reply = await client.answer()
                assert (status, reply["results"][0]["score"]) == (200, 7)

    asyncio.run(main())


@pytest.mark.parametrize("sent", [b"P", HEAD, HEAD + b"x"])
def test_half_sent_headers_are_cut_off(sent: bytes) -> None:
    """A request that does not get to the end of its headers in time is 408, and the connection is closed."""

    async def main() -> None:
        async with listening() as (_, connect):
            client, connection = await connect()
            await client.send(sent)
            await connection.awaits("head", 1)
            connection.ring()
            status, problem = await client.answer()
            assert (status, problem["error"]) == (408, "slow_head")
            assert await client.end() == b""

    asyncio.run(main())


def test_a_connection_without_a_request_just_ends() -> None:
    """Nobody asked, so nobody is answered."""

    async def main() -> None:
        async with listening() as (_, connect):
            client, connection = await connect()
            connection.ring()
            assert await client.end() == b""

    asyncio.run(main())


@pytest.mark.parametrize("sent", [b"\r\n", HEAD])
def test_a_further_request_has_the_same_deadline(sent: bytes) -> None:
    """An answered connection is not a place to wait for ever either."""

    async def main() -> None:
        async with listening() as (_, connect):
            client, connection = await connect()
            await client.send(WHOLE)
            assert (await client.answer())[0] == 200
            await client.send(sent)
            await connection.awaits("head", 4)
            connection.ring()
            assert (await client.answer())[0] == 408
            assert await client.end() == b""

    asyncio.run(main())


def test_judging_has_no_deadline_of_the_connection() -> None:
    """While the application works nothing is waited for; a request sent behind it has to wait its turn."""

    async def main() -> None:
        async with listening(held=True) as (served, connect):
            client, connection = await connect()
            await client.send(WHOLE)
            await until(lambda: served.held.asked == 1)
            assert connection._timer is None
            await client.send(HEAD)
            await connection.awaits("head", 4)
            connection.ring()
            served.held.release()
            assert (await client.answer())[0] == 200
            connection.ring()
            assert (await client.answer())[0] == 408

    asyncio.run(main())


@pytest.mark.parametrize("token", [TOKEN, "a-wrong-one-0123456789"])
def test_half_sent_bodies_are_cut_off(token: str) -> None:
    """Whether the body is waited for or the request was refused already: the connection ends."""

    async def main() -> None:
        async with listening() as (served, connect):
            client, connection = await connect()
            await client.send(WHOLE.replace(TOKEN.encode(), token.encode())[:-1])
            if token != TOKEN:
                assert (await client.answer())[0] == 401
            await connection.awaits("body", 2)
            connection.ring()
            assert await client.end() == b""
            assert served.held.asked == 0

    asyncio.run(main())


def test_requests_sent_ahead_are_bounded() -> None:
    """A few wait for their turn; thousands in one packet end the connection."""

    async def main() -> None:
        async with listening(held=True) as (served, connect):
            (polite, _), (rude, _) = await connect(), await connect()
            await polite.send(WHOLE * 3)
            await until(lambda: served.held.asked == 1)
            await rude.send(WHOLE + HEAD + b"\r\n" + b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n" * 5000)
            assert await rude.end() == b""
            served.held.release()
            assert [(await polite.answer())[0] for _ in range(3)] == [200, 200, 200]

    asyncio.run(main())


def test_an_answer_that_is_not_read_does_not_stay_in_memory_for_ever() -> None:
    """The connection of a client that hangs is ended; one that reads in the end gets all of it."""

    async def main() -> None:
        async with listening() as (served, connect):
            add_page(served.app, "/large", lambda query: b"x" * 30_000_000)
            ask = HEAD.replace(b"POST /v1/score", b"GET /large") + b"\r\n"
            hung, connection = await connect()
            await hung.send(ask)
            await until(lambda: connection.unread is not None)
            for _ in range(2):
                connection.ring_unread()
            assert len(await hung.end()) < 30_000_000
            assert connection.unread is None
            slow, connection = await connect()
            await slow.send(ask)
            await until(lambda: connection.unread is not None)
            head = await slow.reader.readuntil(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 200")
            for _ in range(2):
                assert len(await slow.reader.readexactly(10_000_000)) == 10_000_000
                connection.ring_unread()
            assert len(await slow.reader.readexactly(10_000_000)) == 10_000_000
            await until(lambda: connection.unread is None)

    asyncio.run(main())
