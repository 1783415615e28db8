"""The provider over real loopback sockets, spoken to by a raw client."""

from __future__ import annotations

import asyncio
import json
import zlib
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from typing import Any, TypeVar
from urllib.parse import urlsplit

import pytest
import uvloop

from referee import clock
from referee.engine.port import TransportFault
from referee.engine.transport import HttpTransport
from referee.sim.http import MAX_PENDING, SimServer, serve_http
from referee.sim.provider import Provider
from referee.sim.spec import Fault, ProviderSpec

MakeBody = Callable[..., bytes]
T = TypeVar("T")
Run = Callable[[Coroutine[Any, Any, T]], T]
Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@pytest.fixture(params=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Callable[[Coroutine[Any, Any, Any]], Any]:
    """Runs a coroutine on either event loop."""
    return uvloop.run if request.param == "uvloop" else asyncio.run


@asynccontextmanager
async def serving(spec: ProviderSpec | None = None) -> AsyncIterator[SimServer]:
    """A server for the length of a block."""
    server = await serve_http(Provider(spec or ProviderSpec()))
    try:
        yield server
    finally:
        await server.close()


@asynccontextmanager
async def connected(server: SimServer) -> AsyncIterator[Streams]:
    """A connection for the length of a block."""
    parts = urlsplit(server.url)
    reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
    try:
        yield reader, writer
    finally:
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()


async def until(done: Callable[[], bool]) -> None:
    """Let the loop turn until something has happened."""
    while not done():
        await clock.breathe()


def request(body: bytes, extra: str = "") -> bytes:
    """A POST with this body."""
    head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\n{extra}Content-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


async def answer(reader: asyncio.StreamReader) -> tuple[int, dict[str, str], bytes]:
    """One whole answer with a Content-Length."""
    status, headers = await head_of(reader)
    return status, headers, await reader.readexactly(int(headers["content-length"]))


async def head_of(reader: asyncio.StreamReader) -> tuple[int, dict[str, str]]:
    """Status and headers."""
    first, *lines = (await reader.readuntil(b"\r\n\r\n")).decode().strip().split("\r\n")
    return int(first.split()[1]), dict(line.split(": ", 1) for line in lines)


def score(body: bytes) -> int:
    """The score in a completion by schema."""
    found: int = json.loads(json.loads(body)["choices"][0]["message"]["content"])["score"]
    return found


def test_one_connection_serves_many(run: Run[None], body: MakeBody) -> None:
    """Keep-alive: request after request on one connection, each with its own answer."""

    async def main() -> None:
        async with serving() as server, connected(server) as (reader, writer):
            for n in (3, 9, 1):
                writer.write(request(body(f"[[quality={n}]]")))
                status, headers, content = await answer(reader)
                assert (status, headers["content-type"], score(content)) == (200, "application/json", n)
                assert "connection" not in headers

    run(main())


def test_pipelined_requests_are_answered_in_order(run: Run[None], body: MakeBody) -> None:
    """Many requests at once, more than the server reads ahead, come back complete and in order."""
    wanted = [n % 10 + 1 for n in range(3 * MAX_PENDING)]

    async def main() -> None:
        spec = ProviderSpec(latency_median=0.001, latency_sigma=1.0, time_scale=10.0)
        async with serving(spec) as server, connected(server) as (reader, writer):
            writer.write(b"".join(request(body(f"[[quality={n}]]" + "x" * 9000)) for n in wanted))
            assert [score((await answer(reader))[2]) for _ in wanted] == wanted

    run(main())


def test_a_request_may_come_in_pieces(run: Run[None], body: MakeBody) -> None:
    """Byte by byte is as good as at once."""

    async def main() -> None:
        async with serving() as server, connected(server) as (reader, writer):
            for byte in request(body("[[quality=5]]")):
                writer.write(bytes([byte]))
                await writer.drain()
            assert score((await answer(reader))[2]) == 5

    run(main())


def test_a_big_body_passes(run: Run[None], body: MakeBody) -> None:
    """Two megabytes of candidate are read whole."""

    async def main() -> None:
        async with serving() as server, connected(server) as (reader, writer):
            writer.write(request(body("x" * 2_000_000 + "[[quality=8]]")))
            _, _, content = await answer(reader)
            assert score(content) == 8
            assert json.loads(content)["usage"]["prompt_tokens"] > 500_000

    run(main())


@pytest.mark.parametrize(
    ("sent", "status"),
    [(b"hello\r\n\r\n", 400), (b"POST / HTTP/1.1\r\nContent-Length: x\r\n\r\n", 400), (request(b"{"), 400)],
)
def test_a_bad_request_gets_400(run: Run[None], sent: bytes, status: int) -> None:
    """Broken HTTP ends the connection after the answer; broken JSON is only that request's problem."""

    async def main() -> None:
        async with serving() as server, connected(server) as (reader, writer):
            writer.write(sent)
            found, headers, content = await answer(reader)
            assert found == status
            assert json.loads(content)["error"]["type"] == "invalid_request_error"
            if headers.get("connection") == "close":
                assert await reader.read() == b""
            else:
                assert sent == request(b"{")

    run(main())


def test_connection_close_is_honoured(run: Run[None], body: MakeBody) -> None:
    """A client that asks for it gets its answer and the end."""

    async def main() -> None:
        async with serving() as server, connected(server) as (reader, writer):
            writer.write(request(body(), "Connection: close\r\n"))
            _, headers, _ = await answer(reader)
            assert headers["connection"] == "close"
            assert await reader.read() == b""

    run(main())


def test_other_paths(run: Run[None], body: MakeBody) -> None:
    """Statistics and models can be asked for; anything else is not found."""

    async def main() -> None:
        async with serving() as server, connected(server) as (reader, writer):
            writer.write(request(body()))
            await answer(reader)
            writer.write(b"GET /stats HTTP/1.1\r\n\r\nGET /v1/models HTTP/1.1\r\n\r\nPOST /v1/other HTTP/1.1\r\n\r\n")
            assert json.loads((await answer(reader))[2])["answered"] == 1
            assert json.loads((await answer(reader))[2])["data"] == [{"id": "sim"}]
            assert (await answer(reader))[0] == 404

    run(main())


def test_hanging_says_nothing_until_the_end(run: Run[bytes], body: MakeBody) -> None:
    """The request is taken and no byte ever comes; closing the server ends it."""

    async def main() -> bytes:
        async with serving(ProviderSpec(faults={"hang": 1.0})) as server, connected(server) as (reader, writer):
            writer.write(request(body()))
            await until(lambda: server.provider.stats().broken > 0)
            await server.close()
            try:
                return await reader.read()
            except ConnectionError:
                return b""

    assert run(main()) == b""


def test_dripping_comes_byte_by_byte(run: Run[None], body: MakeBody) -> None:
    """The head comes at once, the body in single bytes, all of it in the end."""

    async def main() -> None:
        spec = ProviderSpec(faults={"drip": 1.0}, drip_interval=0.5, time_scale=1000.0)
        async with serving(spec) as server, connected(server) as (reader, writer):
            writer.write(request(body("[[quality=6]]")))
            _, headers = await head_of(reader)
            pieces: list[bytes] = []
            while sum(len(piece) for piece in pieces) < int(headers["content-length"]):
                pieces.append(await reader.read(65536))
                assert pieces[-1]
            assert len(pieces) > 20
            assert score(b"".join(pieces)) == 6

    run(main())


def test_a_reset_is_a_reset(run: Run[None], body: MakeBody) -> None:
    """The client sees ECONNRESET, not an orderly end."""

    async def main() -> None:
        async with serving(ProviderSpec(faults={"reset": 1.0})) as server, connected(server) as (reader, writer):
            writer.write(request(body()))
            with pytest.raises(ConnectionResetError):
                await reader.read()

    run(main())


@pytest.mark.parametrize("fault", ["cut", "cut_silent"])
def test_a_cut_body_ends_early(run: Run[None], body: MakeBody, fault: Fault) -> None:
    """With a length the cut shows, without one it does not."""

    async def main() -> None:
        async with serving(ProviderSpec(faults={fault: 1.0})) as server, connected(server) as (reader, writer):
            writer.write(request(body()))
            status, headers = await head_of(reader)
            rest = await reader.read()
            assert status == 200
            with pytest.raises(json.JSONDecodeError):
                json.loads(rest)
            if fault == "cut":
                assert len(rest) < int(headers["content-length"])
            else:
                assert "content-length" not in headers

    run(main())


def test_a_huge_body_is_huge_and_stops_with_its_reader(run: Run[None], body: MakeBody) -> None:
    """It streams as far as it is read; a client that leaves ends it."""

    async def main() -> None:
        spec = ProviderSpec(faults={"huge": 1.0}, huge_bytes=32 * 1024 * 1024)
        async with serving(spec) as server:
            async with connected(server) as (reader, writer):
                writer.write(request(body()))
                await head_of(reader)
                assert len(await reader.readexactly(1_000_000)) == 1_000_000
                writer.transport.abort()
            async with connected(server) as (reader, writer):
                writer.write(request(body()))
                await head_of(reader)
                total = 0
                while piece := await reader.read(1 << 20):
                    total += len(piece)
                assert total >= spec.huge_bytes

    run(main())


def test_a_bomb_unpacks_to_what_it_says(run: Run[None], body: MakeBody) -> None:
    """A few bytes on the wire, a great many behind them."""

    async def main() -> None:
        spec = ProviderSpec(faults={"bomb": 1.0}, huge_bytes=5_000_000)
        async with serving(spec) as server, connected(server) as (reader, writer):
            writer.write(request(body()))
            _, headers, content = await answer(reader)
            assert headers["content-encoding"] == "gzip"
            assert len(content) < 50_000
            assert len(zlib.decompress(content, zlib.MAX_WBITS | 16)) > 4_900_000

    run(main())


def test_a_client_that_leaves_frees_its_slot(run: Run[None], body: MakeBody) -> None:
    """As vLLM does: a dropped connection aborts the work."""

    async def main() -> None:
        spec = ProviderSpec(latency_median=3600.0, capacity=1, mode="queue")
        async with serving(spec) as server:
            async with connected(server) as (_, writer):
                writer.write(request(body()))
                await until(lambda: server.provider.stats().busy > 0)
            await until(lambda: server.provider.stats().abandoned > 0)
            assert server.provider.stats().busy == 0

    run(main())


def test_closing_twice_is_safe(run: Run[None]) -> None:
    """close() can be called again."""

    async def main() -> None:
        server = await serve_http(Provider(ProviderSpec()))
        await server.close()
        await server.close()

    run(main())


@pytest.mark.parametrize(
    ("fault", "kind"),
    [
        ("reset", "reset"),
        ("cut", "cut"),
        ("huge", "too_large"),
        ("bomb", "too_large"),
        ("hang", "timeout"),
        ("drip", "timeout"),
    ],
)
def test_the_real_transport_sees_what_the_simulated_one_does(
    run: Run[None], body: MakeBody, fault: Fault, kind: str
) -> None:
    """Both faces of the provider give the same fault kinds, so tests in virtual time speak for the wire."""

    async def main() -> None:
        async with serving(ProviderSpec(faults={fault: 1.0}, huge_bytes=8 * 1024 * 1024)) as server:
            transport = HttpTransport()
            try:
                with pytest.raises(TransportFault) as caught:
                    await transport.post(server.url, {}, body(), 0.2 if kind == "timeout" else 20.0)
                assert caught.value.kind == kind
            finally:
                await transport.close()

    run(main())
