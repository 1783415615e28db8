"""Proxies: what they are sent and what they never see, every way they can fail, and no socket left behind."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import pytest
import uvloop
from tests.engine.proxies import HttpProxy, client_tls, listening, server_tls
from tests.engine.test_connection import Socket

from referee import wire
from referee.engine.outcomes import may_be_billed
from referee.engine.port import Response, TransportFault
from referee.engine.proxy import Proxy, Tunnel
from referee.engine.transport import HttpTransport
from referee.records import Action, Reason

BODY = b'{"a": 1}'
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"
KEY, USER, PASSWORD = "sk-canary-5f2a9c71d0e84b36", "me", "correct-horse:battery/staple"
LOGIN = "me:correct-horse%3Abattery%2Fstaple"
BASIC = base64.b64encode(f"{USER}:{PASSWORD}".encode())
HEADERS = {"authorization": f"Bearer {KEY}"}
_loop: list[Callable[[], asyncio.AbstractEventLoop]] = [asyncio.new_event_loop]


@pytest.fixture(autouse=True, params=[asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def each(request: pytest.FixtureRequest) -> None:
    """Every test runs on both kinds of loop."""
    _loop[0] = request.param


def run(main: Coroutine[Any, Any, Any]) -> Any:
    with asyncio.Runner(loop_factory=_loop[0]) as runner:
        return runner.run(main)


class Judge:
    """An endpoint that answers each request with its number, and keeps the heads."""

    def __init__(self) -> None:
        self.heads: list[bytes] = []

    async def talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            self.heads.append(await reader.readuntil(b"\r\n\r\n"))
            await reader.readexactly(len(BODY))
            body = b'{"id": "%d"}' % len(self.heads)
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body))
            await writer.drain()


def through(
    talk: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]],
    use: Callable[[HttpTransport], Awaitable[Any]],
    secure: bool = False,
) -> Any:
    """Run `use` with a transport whose proxy is this one."""

    async def main() -> Any:
        async with listening(talk, server_tls() if secure else None) as port:
            proxy = f"{'https' if secure else 'http'}://{LOGIN}@127.0.0.1:{port}"
            transport = HttpTransport(proxy, client_tls())
            try:
                return await use(transport)
            finally:
                await transport.close()

    return run(main())


def fault_through(talk: Any, url: str = "https://judge.example/v1", timeout: float = 20.0) -> TransportFault:
    async def use(transport: HttpTransport) -> Response:
        return await transport.post(url, HEADERS, BODY, timeout)

    with pytest.raises(TransportFault) as caught:
        through(talk, use)
    for secret in (PASSWORD, BASIC.decode(), KEY):
        assert secret not in str(caught.value)
    return caught.value


@pytest.mark.parametrize("secure", [False, True], ids=["http proxy", "https proxy"])
def test_an_https_endpoint_is_reached_through_one_tunnel(secure: bool) -> None:
    """CONNECT with the proxy's login, once for several requests. The proxy sees neither key nor texts, and the endpoint
    does not see the login."""

    async def main() -> tuple[Judge, HttpProxy, list[Response]]:
        judge = Judge()
        async with listening(judge.talk, server_tls("judge.example")) as port:
            proxy = HttpProxy(port)
            async with listening(proxy.talk, server_tls() if secure else None) as at:
                transport = HttpTransport(f"{'https' if secure else 'http'}://{LOGIN}@127.0.0.1:{at}", client_tls())
                found = [await transport.post("https://judge.example/v1", HEADERS, BODY, 20.0) for _ in range(3)]
                await transport.close()
        return judge, proxy, found

    judge, proxy, found = run(main())
    assert [answer.body for answer in found] == [b'{"id": "1"}', b'{"id": "2"}', b'{"id": "3"}']
    assert proxy.heads == [
        b"CONNECT judge.example:443 HTTP/1.1\r\nhost: judge.example:443\r\n"
        b"proxy-authorization: Basic " + BASIC + b"\r\n\r\n"
    ]
    assert KEY.encode() not in proxy.seen
    assert BODY not in proxy.seen
    assert all(KEY.encode() in head for head in judge.heads)
    assert not any(b"proxy-" in head or BASIC in head for head in judge.heads)


@pytest.mark.parametrize("secure", [False, True], ids=["http proxy", "https proxy"])
def test_an_http_endpoint_is_asked_for_by_its_whole_url(secure: bool) -> None:
    """The proxy reads the request, so it gets the absolute form and its login, on every request of a connection."""
    proxy = Judge()

    async def use(transport: HttpTransport) -> list[Response]:
        return [await transport.post("http://judge.example:8000/v1", HEADERS, BODY, 20.0) for _ in range(2)]

    through(proxy.talk, use, secure)
    expected = (
        b"POST http://judge.example:8000/v1 HTTP/1.1\r\nhost: judge.example:8000\r\n"
        b"proxy-authorization: Basic %b\r\nauthorization: Bearer %b\r\ncontent-length: 8\r\n\r\n"
        % (BASIC, KEY.encode())
    )
    assert proxy.heads == [expected, expected]


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.0 200 OK\r\n\r\n",
        b"HTTP/1.1 200\r\n\r\n",
        b"HTTP/1.1 204 No Content\r\nVia: x\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n",
    ],
)
def test_any_2xx_opens_the_tunnel(answer: bytes) -> None:
    """Whatever its version, reason or headers: the answer to CONNECT has no body."""

    async def main() -> Response:
        async with (
            listening(Judge().talk, server_tls("judge.example")) as port,
            listening(HttpProxy(port, answer).talk) as at,
        ):
            transport = HttpTransport(f"http://127.0.0.1:{at}", client_tls())
            found = await transport.post("https://judge.example/v1", {}, BODY, 20.0)
            await transport.close()
            return found

    assert run(main()).status == 200


def answering(answer: bytes) -> Any:
    """A proxy that gives this answer to CONNECT, and closes the connection."""

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer)
        await writer.drain()

    return talk


@pytest.mark.parametrize("status", [401, 403, 407])
def test_a_proxy_that_refuses_us_is_a_wrong_setting(status: int) -> None:
    """One clear error that names endpoint.proxy; nothing is tried again."""
    fault = fault_through(answering(b"HTTP/1.1 %d No\r\nContent-Length: 6\r\n\r\nsecret" % status))
    failure = wire.from_fault(fault.kind, fault.detail)
    assert (failure.reason, failure.action) == (Reason.CONFIG, Action.CLOSE)
    assert "endpoint.proxy" in failure.detail
    assert str(status) in failure.detail


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 502 Bad Gateway\r\n\r\n",
        b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 302 Found\r\nLocation: http://elsewhere.example\r\n\r\n",
        b"HTTP/1.1 100 Continue\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}",
        b"HTTP/1.1 abc\r\n\r\n",
        b"SSH-2.0-OpenSSH_9.2\r\n",
        b"HTTP/1.1 200 OK\r\nx: " + b"y" * 100_000,
        b"HTTP/1.1 200 OK\r\n",
        b"",
    ],
)
def test_a_proxy_that_opens_no_tunnel_is_a_connection_that_failed(answer: bytes) -> None:
    """Other statuses, bytes beyond the answer, no HTTP, endless headers, a close in the middle: tried again later, and
    not billed, because the endpoint has seen no request."""
    fault = fault_through(answering(answer))
    failure = wire.from_fault(fault.kind, fault.detail)
    assert (failure.reason, failure.action) == (Reason.CONNECTION, Action.BACK_OFF)
    assert "proxy" in failure.detail
    assert not may_be_billed(failure)


def test_a_proxy_that_hangs_ends_with_the_attempt() -> None:
    """The deadline counts while the tunnel is opened."""

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        await reader.read()

    fault = fault_through(silent, timeout=0.2)
    assert fault.kind == "connect"
    assert "endpoint.proxy 127.0.0.1: no tunnel to judge.example within" in fault.detail


def test_a_tunnel_cut_in_the_handshake_is_no_certificate_problem() -> None:
    """A network fault does not close the endpoint."""

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        await reader.read(100)  # the first bytes of the handshake

    assert fault_through(talk).kind == "connect"


def test_a_certificate_for_another_name_is_refused_in_a_tunnel() -> None:
    """The name that counts is the endpoint's, not the proxy's."""

    async def main() -> None:
        judge = Judge()
        async with listening(judge.talk, server_tls("127.0.0.1")) as port, listening(HttpProxy(port).talk) as at:
            transport = HttpTransport(f"http://127.0.0.1:{at}", client_tls())
            with pytest.raises(TransportFault) as caught:
                await transport.post("https://judge.example/v1", HEADERS, BODY, 20.0)
            assert caught.value.kind == "tls"
            assert judge.heads == []
            await transport.close()

    run(main())


def test_an_https_proxy_must_have_a_certificate_for_its_name() -> None:
    """Neither login nor target is sent to a proxy that cannot prove who it is, and the fault names the proxy."""

    async def main() -> None:
        proxy = HttpProxy(0)
        async with listening(proxy.talk, server_tls("elsewhere.example")) as at:
            transport = HttpTransport(f"https://{LOGIN}@127.0.0.1:{at}", client_tls())
            with pytest.raises(TransportFault) as caught:
                await transport.post("https://judge.example/v1", HEADERS, BODY, 20.0)
            assert caught.value.kind == "tls"
            assert caught.value.detail.startswith("endpoint.proxy 127.0.0.1: ")
            assert proxy.seen == b""
            await transport.close()

    run(main())


@pytest.mark.parametrize(
    ("host", "kind", "url"),
    [
        ("127.0.0.1:1", "connect", "https://judge.example/v1"),
        ("127.0.0.1:1", "connect", "http://judge.example/v1"),
        ("proxy.invalid", "dns", "https://judge.example/v1"),
    ],
)
def test_a_proxy_that_is_not_there_is_named(host: str, kind: str, url: str) -> None:
    """Refused or not resolved: the fault says that it was the proxy, without its login."""
    with pytest.raises(TransportFault) as caught:
        run(HttpTransport(f"http://{LOGIN}@{host}").post(url, {}, BODY, 10.0))
    assert caught.value.kind == kind
    assert caught.value.detail.startswith(f"endpoint.proxy {host.partition(':')[0]}: ")
    assert PASSWORD not in str(caught.value)


def test_bytes_between_the_tunnel_and_tls_are_a_fault() -> None:
    """They come in a packet of their own, before the handshake has begun."""

    async def main() -> None:
        tunnel = Tunnel(asyncio.get_running_loop(), Proxy("http://127.0.0.1:3128"))
        socket = Socket()
        tunnel.connection_made(socket)  # type: ignore[arg-type]
        tunnel.data_received(b"HTTP/1.1 200 OK\r\n")
        tunnel.data_received(b"\r\n")
        tunnel.data_received(b"HTTP/1.1 200 OK\r\n")
        with pytest.raises(TransportFault, match="not asked for") as caught:
            await tunnel.open(b"CONNECT", client_tls(), "judge.example")
        assert caught.value.kind == "connect"
        assert socket.aborted

    run(main())


@pytest.mark.parametrize("stage", ["CONNECT", "handshake"])
def test_cancelling_while_a_tunnel_is_opened_closes_its_socket(stage: str) -> None:
    """A caller that is cancelled leaves no connection behind."""
    asked, left = asyncio.Event(), asyncio.Event()

    async def slow(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        if stage == "handshake":
            writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
            await reader.read(10)
        asked.set()
        await reader.read()
        left.set()

    async def use(transport: HttpTransport) -> None:
        task = asyncio.ensure_future(transport.post("https://judge.example/v1", {}, BODY, 60.0))
        async with asyncio.timeout(20.0):
            await asked.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await left.wait()

    through(slow, use)


def test_closing_while_a_tunnel_is_opened_sends_nothing() -> None:
    """A tunnel that is ready after `close` is closed, and its request is not sent."""
    judge = Judge()
    asked, answer = asyncio.Event(), asyncio.Event()

    async def main() -> str:
        async with listening(judge.talk, server_tls("judge.example")) as port:
            proxy = HttpProxy(port)

            async def late(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
                asked.set()
                await answer.wait()
                await proxy.talk(reader, writer)

            async with listening(late) as at:
                transport = HttpTransport(f"http://127.0.0.1:{at}", client_tls())
                task = asyncio.ensure_future(transport.post("https://judge.example/v1", {}, BODY, 60.0))
                await asked.wait()
                await transport.close()
                answer.set()
                with pytest.raises(TransportFault) as caught:
                    await task
                return caught.value.kind

    assert run(main()) == "reset"
    assert judge.heads == []
