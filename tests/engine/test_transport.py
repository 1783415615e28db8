"""What the transport promises beyond naming faults: whole requests, one answer each, deadlines, TLS, closing."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import trustme
import uvloop

from referee.engine.port import Response, TransportFault
from referee.engine.transport import HttpTransport

BODY = b'{"a": 1}'
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n"
Talk = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
Use = Callable[[HttpTransport, str], Awaitable[Any]]


def on_server(talk: Talk, use: Use, tls: ssl.SSLContext | None = None, trust: ssl.SSLContext | None = None) -> Any:
    """Run `use` against a server of a few lines."""

    async def main() -> Any:
        async def guarded(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            try:
                await talk(reader, writer)
            except (ConnectionError, asyncio.IncompleteReadError):
                pass
            finally:
                writer.close()

        server = await asyncio.start_server(guarded, "127.0.0.1", 0, ssl=tls)
        port = server.sockets[0].getsockname()[1]
        transport = HttpTransport(tls=trust)
        try:
            return await use(transport, f"{'https' if tls else 'http'}://127.0.0.1:{port}/v1?version=1")
        finally:
            await transport.close()
            server.close()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(main())


async def request(reader: asyncio.StreamReader) -> bytes:
    return await reader.readuntil(b"\r\n\r\n") + await reader.readexactly(len(BODY))


def times(count: int) -> Use:
    async def use(transport: HttpTransport, url: str) -> list[Response]:
        return [await transport.post(url, {"x": "y"}, BODY, 20.0) for _ in range(count)]

    return use


def answers(*replies: bytes) -> Talk:
    """A server that gives these to the requests of one connection, then hangs up."""

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for reply in replies:
            await request(reader)
            writer.write(reply)
            await writer.drain()

    return talk


def test_the_request_is_what_a_server_expects() -> None:
    """Path with query, host, headers, length, body."""
    seen: list[bytes] = []

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        seen.append(await request(reader))
        writer.write(OK + b"{}")
        await writer.drain()

    on_server(talk, times(1))
    head, _, body = seen[0].partition(b"\r\n\r\n")
    lines = head.split(b"\r\n")
    assert lines[0] == b"POST /v1?version=1 HTTP/1.1"
    assert lines[1].startswith(b"host: 127.0.0.1:")
    assert lines[2:] == [b"x: y", b"content-length: %d" % len(BODY)]
    assert body == BODY


def test_an_interim_answer_is_passed_over() -> None:
    """100 and 103 announce an answer; they are not it."""
    (answer,) = on_server(answers(b"HTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\n" + OK + b"{}"), times(1))
    assert (answer.status, answer.body) == (200, b"{}")
    assert "link" not in answer.headers


def test_a_second_answer_to_one_request_is_never_the_next_ones() -> None:
    """What follows an answer ends the connection, so it cannot be taken for the next answer."""
    doubled = OK + b"{}" + OK + b"[]"
    found = on_server(answers(doubled, OK + b"[]"), times(2))
    assert [answer.body for answer in found] == [b"{}", b"{}"]


def test_a_late_answer_is_never_the_next_ones() -> None:
    """After a time-out the connection is gone, whatever still arrives on it."""
    turn = 0

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal turn
        turn += 1
        await request(reader)
        if turn == 1:
            await reader.read()  # until the client hangs up
        writer.write(OK + b"{}")
        await writer.drain()

    async def use(transport: HttpTransport, url: str) -> Response:
        with pytest.raises(TransportFault) as caught:
            await transport.post(url, {}, BODY, 0.2)
        assert caught.value.kind == "timeout"
        return await transport.post(url, {}, BODY, 20.0)

    assert on_server(talk, use).body == b"{}"
    assert turn == 2


def test_bytes_nobody_asked_for_close_an_idle_connection() -> None:
    """A server's parting words on an idle connection are not the answer to the next request."""

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await request(reader)
        writer.write(OK + b"{}")
        await writer.drain()
        writer.write(b"HTTP/1.1 408 Request Timeout\r\nContent-Length: 0\r\n\r\n")
        await writer.drain()
        await reader.read()

    async def use(transport: HttpTransport, url: str) -> list[int]:
        first = await transport.post(url, {}, BODY, 20.0)
        for _ in range(200):  # let the parting words arrive
            await asyncio.sleep(0.005)
            if not any(target._open for target in transport._targets.values()):
                break
        second = await transport.post(url, {}, BODY, 20.0)
        return [first.status, second.status]

    assert on_server(talk, use) == [200, 200]


def test_a_body_may_end_with_the_connection() -> None:
    """HTTP/1.0 style: no length, the end is the close."""
    (answer,) = on_server(answers(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n{}"), times(1))
    assert answer.body == b"{}"


def test_a_chunked_body_is_put_together() -> None:
    """Chunks, with an extension and a trailer."""
    reply = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1;x=y\r\n%b\r\n1\r\n%b\r\n0\r\nx-t: 1\r\n\r\n"
    found = on_server(answers(reply % (b"{", b"}"), reply % (b"[", b"]")), times(2))
    assert [answer.body for answer in found] == [b"{}", b"[]"]


@pytest.mark.parametrize("trailer", [b"Retry-After: 99", b"X-Request-Id: other", b"Content-Encoding: gzip"])
def test_a_trailer_is_no_header(trailer: bytes) -> None:
    """What follows a chunked body neither replaces nor adds a header, on a kept connection too."""
    head = b"HTTP/1.1 200 OK\r\nRetry-After: 1\r\nX-Request-Id: own\r\nTransfer-Encoding: chunked\r\n\r\n"
    replies = [head + b"2\r\n%b\r\n0\r\n%b\r\n\r\n" % (body, trailer) for body in (b"{}", b"[]")]
    found = on_server(answers(*replies), times(2))
    assert [answer.body for answer in found] == [b"{}", b"[]"]
    for answer in found:
        assert answer.headers == {"retry-after": "1", "x-request-id": "own", "transfer-encoding": "chunked"}


@pytest.mark.parametrize(
    "reply",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n{}",
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\n{}",
        b"HTTP/1.1 200 OK\r\nContent-Length: -2\r\n\r\n{}",
        b"HTTP/1.1 200 OK\r\nx: " + b"y" * 2_000_000 + b"\r\nContent-Length: 2\r\n\r\n{}",
        b"HTTP/1.1 101 Switching Protocols\r\nupgrade: h2c\r\n\r\n",
    ],
)
def test_an_answer_with_two_meanings_is_refused(reply: bytes) -> None:
    """Two lengths, a negative one, endless headers, another protocol."""
    with pytest.raises(TransportFault) as caught:
        on_server(answers(reply), times(1))
    assert caught.value.kind == "protocol"


def test_cancelling_closes_the_connection() -> None:
    """A caller who leaves takes his connection with him."""
    left = asyncio.Event()

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await request(reader)
        asked.set()
        await reader.read()
        left.set()

    asked = asyncio.Event()

    async def use(transport: HttpTransport, url: str) -> bool:
        task = asyncio.ensure_future(transport.post(url, {}, BODY, 60.0))
        await asked.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.wait_for(left.wait(), 20.0)
        return True

    assert on_server(talk, use)


def test_tls_with_an_authority_we_trust() -> None:
    """Several requests over one verified connection."""
    authority = trustme.CA()
    server, client = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.create_default_context()
    authority.issue_cert("127.0.0.1").configure_cert(server)
    authority.configure_trust(client)
    found = on_server(answers(OK + b"{}", OK + b"[]"), times(2), server, client)
    assert [answer.body for answer in found] == [b"{}", b"[]"]


def test_tls_for_another_name_is_refused() -> None:
    """The certificate must be for the host that was asked."""
    authority = trustme.CA()
    server, client = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.create_default_context()
    authority.issue_cert("judge.example").configure_cert(server)
    authority.configure_trust(client)
    with pytest.raises(TransportFault) as caught:
        on_server(answers(OK + b"{}"), times(1), server, client)
    assert caught.value.kind == "tls"


@pytest.mark.parametrize("end", ["\r\n", "\n", "\r", "\0"])
@pytest.mark.parametrize("header", [("authorization", "Bearer k{}x-evil: 1"), ("x-a: Bearer{}x-evil", "1")])
def test_a_header_with_a_line_break_is_not_sent(header: tuple[str, str], end: str) -> None:
    """A key with a line break in it, or with what some servers take for one, would be a second header."""
    name, value = (text.format(end) for text in header)

    async def use(transport: HttpTransport, url: str) -> Response:
        return await transport.post(url, {name: value}, BODY, 20.0)

    with pytest.raises(TransportFault) as caught:
        on_server(answers(OK + b"{}"), use)
    assert caught.value.kind == "protocol"
    assert "Bearer" not in str(caught.value)


@pytest.mark.parametrize(
    ("path", "sent"),
    [
        ("/v1/ein weg", b"/v1/ein%20weg"),
        ("/v1/größe?q=ü", b"/v1/gr%C3%B6%C3%9Fe?q=%C3%BC"),
        ("/v1/a%20b", b"/v1/a%20b"),
        ("/v1/{x}|[y]", b"/v1/{x}|[y]"),
        ("", b"/"),
    ],
)
def test_a_path_is_sent_in_ascii(path: str, sent: bytes) -> None:
    """Spaces and characters beyond ASCII are percent-encoded; everything else goes as it was written."""
    seen: list[bytes] = []

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        seen.append(await request(reader))
        writer.write(OK + b"{}")
        await writer.drain()

    async def use(transport: HttpTransport, url: str) -> Response:
        return await transport.post(url.replace("/v1?version=1", path), {}, BODY, 20.0)

    on_server(talk, use)
    assert seen[0].split(b" ")[1] == sent


def test_nobody_listening_is_a_connect_fault() -> None:
    """Connection refused, at once."""

    async def main() -> None:
        server = await asyncio.start_server(lambda r, w: None, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        server.close()
        await server.wait_closed()
        await HttpTransport().post(f"http://127.0.0.1:{port}/v1", {}, BODY, 5.0)

    with pytest.raises(TransportFault) as caught:
        asyncio.run(main())
    assert caught.value.kind == "connect"


def test_an_unknown_host_is_a_dns_fault() -> None:
    """Names under .invalid never resolve."""
    with pytest.raises(TransportFault) as caught:
        asyncio.run(HttpTransport().post("http://judge.invalid/v1", {}, BODY, 10.0))
    assert caught.value.kind == "dns"


def test_every_request_has_its_own_time_limit() -> None:
    """One timer serves them all: the shortest limit is kept though longer ones came first, and the longer after it."""
    limits = (0.3, 20.0, 0.1, 0.2)

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await request(reader)
        await reader.read()

    async def use(transport: HttpTransport, url: str) -> list[str]:
        ended: list[str] = []

        async def one(seconds: float) -> None:
            try:
                await transport.post(url, {}, BODY, seconds)
            except TransportFault as fault:
                ended.append(str(fault))

        tasks = [asyncio.create_task(one(seconds)) for seconds in limits]
        await asyncio.wait(tasks, timeout=5.0)
        for task in tasks:
            task.cancel()
        return ended

    assert on_server(silent, use) == [f"timeout: no complete answer within {seconds} s" for seconds in (0.1, 0.2, 0.3)]


def test_a_time_limit_that_is_over_with_its_answer_ends_nobody_elses() -> None:
    """The connection is another request's by then, which has its own."""

    async def slow(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await request(reader)
        writer.write(OK + b"ok")
        await request(reader)
        await asyncio.sleep(0.4)
        writer.write(OK + b"no")

    async def use(transport: HttpTransport, url: str) -> list[bytes]:
        first = await transport.post(url, {}, BODY, 0.2)
        second = await transport.post(url, {}, BODY, 20.0)
        return [first.body, second.body]

    assert on_server(slow, use) == [b"ok", b"no"]


def test_closing_ends_what_nobody_cancelled() -> None:
    """Whoever still waits for an answer hears that there will be none."""

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await request(reader)
        await reader.read()

    async def use(transport: HttpTransport, url: str) -> str:
        task = asyncio.create_task(transport.post(url, {}, BODY, 20.0))
        await asyncio.sleep(0.1)
        await transport.close()
        with pytest.raises(TransportFault) as caught:
            await task
        return caught.value.kind

    assert on_server(silent, use) == "reset"


def test_other_methods_have_their_own_connection_and_cap() -> None:
    """`request` sends any method; equal answers are no copies of each other; `most` bounds the answer."""
    seen: list[bytes] = []

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        seen.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(OK + b"{}")
        await writer.drain()

    async def use(transport: HttpTransport, url: str) -> None:
        for _ in range(2):
            answer = await transport.request("GET", url, {"a": "b"}, b"", 10.0)
            assert (answer.status, answer.body) == (200, b"{}")
        with pytest.raises(TransportFault, match="too_large"):
            await transport.request("GET", url, {}, b"", 10.0, most=1)

    on_server(talk, use)
    assert [line.split(b" ", 1)[0] for line in seen] == [b"GET"] * 3
