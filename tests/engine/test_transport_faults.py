"""The transport on real sockets: every way a server can misbehave becomes a named fault, in bounded time, on both kinds
of loop, directly and through a proxy."""

from __future__ import annotations

import asyncio
import gzip
import ssl
from collections.abc import Callable, Coroutine
from typing import Any
from urllib.parse import urlsplit

import pytest
import trustme
import uvloop
from tests.engine.proxies import Talk, listening, reached

from referee.engine.body import MAX_BODY
from referee.engine.port import STALE_S, Response, TransportFault
from referee.sim import Provider, ProviderSpec, serve_http

BODY = b'{"model":"m","messages":[{"role":"user","content":"hello"}]}'
LOOPS = {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}
_now: dict[str, str] = {}


@pytest.fixture(
    autouse=True,
    params=[
        "direct-asyncio",
        "direct-uvloop",
        "forwarded-uvloop",
        "tunnel-asyncio",
        "tunnel-uvloop",
        "nested-asyncio",
        "nested-uvloop",
    ],
)
def each(request: pytest.FixtureRequest) -> None:
    """Every test runs on each route and loop."""
    _now["route"], _now["loop"] = request.param.split("-")


def run(main: Coroutine[Any, Any, Any]) -> Any:
    with asyncio.Runner(loop_factory=LOOPS[_now["loop"]]) as runner:
        return runner.run(main)


def post(spec: ProviderSpec, timeout: float = 20.0) -> Response:
    """Send to the simulated provider over loopback."""

    async def main() -> Response:
        server = await serve_http(Provider(spec, 1))
        parts = urlsplit(server.url)
        try:
            async with reached(parts.port or 0, _now["route"]) as (transport, base):
                return await transport.post(base + parts.path, {}, BODY, timeout)
        finally:
            await server.close()

    found: Response = run(main())
    return found


def post_to(talk: Talk, count: int = 1, tls: ssl.SSLContext | None = None) -> list[Response]:
    """Send to a server of a few lines that does one thing wrong."""

    async def main() -> list[Response]:
        async with (
            listening(talk, tls) as port,
            reached(port, _now["route"], secure=tls is not None) as (transport, base),
        ):
            return [await transport.post(f"{base}/v1", {"x-api-key": "k"}, BODY, 20.0) for _ in range(count)]

    found: list[Response] = run(main())
    return found


async def read_request(reader: asyncio.StreamReader) -> None:
    await reader.readuntil(b"\r\n\r\n")
    await reader.readexactly(len(BODY))


def fault_of(call: Callable[[], object]) -> TransportFault:
    with pytest.raises(TransportFault) as caught:
        call()
    return caught.value


def test_an_answer_comes_whole_with_lower_case_headers() -> None:
    """Status, headers and body as the server sent them."""
    answer = post(ProviderSpec())
    assert answer.status == 200
    assert answer.headers["content-type"].startswith("application/json")
    assert b"choices" in answer.body


def test_error_statuses_are_answers_not_faults() -> None:
    """A 503 is for the classifier to judge."""
    assert post(ProviderSpec(faults={"http_503": 1.0})).status == 503


@pytest.mark.parametrize(
    ("fault", "kind"),
    [
        ("hang", "timeout"),
        ("drip", "timeout"),
        ("reset", "reset"),
        ("cut", "cut"),
        ("huge", "too_large"),
        ("bomb", "too_large"),
    ],
)
def test_wire_faults_have_names(fault: str, kind: str) -> None:
    """Hangs and drips end by the total timeout, cut and huge bodies are not taken for answers."""
    spec = ProviderSpec(faults={fault: 1.0}, drip_interval=0.2)  # type: ignore[dict-item]
    assert fault_of(lambda: post(spec, timeout=0.5 if kind == "timeout" else 20.0)).kind == kind


def test_a_redirect_is_not_followed() -> None:
    """The key must not travel to wherever the server points."""
    answer = post(ProviderSpec(faults={"redirect": 1.0}))
    assert 300 <= answer.status < 400


def test_a_certificate_nobody_vouches_for_is_a_tls_fault() -> None:
    """A self-signed server is refused before anything is sent."""
    seen: list[bytes] = []

    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        seen.append(await reader.read(10))

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    trustme.CA().issue_cert("127.0.0.1").configure_cert(context)
    assert fault_of(lambda: post_to(handler, tls=context)).kind == "tls"
    assert seen in ([], [b""])


def test_gzip_that_was_not_asked_for_is_unpacked_within_the_cap() -> None:
    """Some servers compress whatever we say."""

    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        body = gzip.compress(b'{"fine": true}')
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        await writer.drain()

    assert post_to(handler)[0].body == b'{"fine": true}'


@pytest.mark.parametrize("encoding", [b"br", b"zstd", b"gzip, gzip"])
def test_an_encoding_we_cannot_unpack_is_a_protocol_fault(encoding: bytes) -> None:
    """Unknown encodings are refused, not passed on as text."""

    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Encoding: %b\r\nContent-Length: 2\r\n\r\n{}" % encoding)
        await writer.drain()

    assert fault_of(lambda: post_to(handler)).kind == "protocol"


def test_a_cut_gzip_body_is_a_cut() -> None:
    """Half a compressed body is not an answer."""

    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        body = gzip.compress(b'{"fine": true}' * 50)[:-12]
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        await writer.drain()

    assert fault_of(lambda: post_to(handler)).kind in ("cut", "protocol")


def test_an_endless_chunked_body_stops_at_the_cap() -> None:
    """No Content-Length and no end: never more than the cap in memory."""

    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        chunk = b"10000\r\n" + b"x" * 0x10000 + b"\r\n"
        for _ in range(2 * MAX_BODY // 0x10000):
            writer.write(chunk)
            await writer.drain()

    assert fault_of(lambda: post_to(handler)).kind == "too_large"


def test_nonsense_instead_of_http_is_a_protocol_fault() -> None:
    """A server of another protocol is named as such."""

    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(b"SSH-2.0-OpenSSH_9.2\r\n")
        await writer.drain()

    assert fault_of(lambda: post_to(handler)).kind in ("protocol", "reset")


def test_a_kept_connection_that_died_is_stale_and_a_fresh_one_is_not() -> None:
    """Only a reused socket that dies before any byte may be replayed for free."""

    async def once(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")
        await writer.drain()
        await read_request(reader)  # and hang up without a word

    assert fault_of(lambda: post_to(once, count=2)).stale

    async def never(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)

    assert not fault_of(lambda: post_to(never)).stale


def test_a_kept_connection_that_dies_late_is_not_stale() -> None:
    """A server that hung up after a while may have done the work, and charged for it: no free replay."""

    async def slow(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")
        await writer.drain()
        await read_request(reader)
        await asyncio.sleep(STALE_S + 0.2)

    fault = fault_of(lambda: post_to(slow, count=2))
    assert (fault.kind, fault.stale) == ("reset", False)


def test_connections_are_reused() -> None:
    """Requests one after another share a socket."""
    connections = 0

    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        for turn in range(5):
            await read_request(reader)
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 11\r\n\r\n" + b'{"id": "%d"}' % turn)
            await writer.drain()

    assert len(post_to(handler, count=5)) == 5
    assert connections == 1
