"""A connection passed on from one request to the next while the first one's task has not woken yet."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from referee.engine.connection import Connection
from referee.engine.port import Response, TransportFault
from referee.engine.transport import HttpTransport

OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}"


class Socket:
    """What a connection does to its socket, and no more."""

    def __init__(self) -> None:
        self.sent: list[bytes] = []
        self.aborted = False

    def write(self, data: bytes) -> None:
        self.sent.append(data)

    def abort(self) -> None:
        self.aborted = True

    close = abort

    def is_closing(self) -> bool:
        return self.aborted

    def get_extra_info(self, name: str) -> None:
        return None


def passed_on(disturb: Any) -> Response:
    """In one turn of the loop: an answer to the first arrives, the second takes the connection, then `disturb`."""

    async def main() -> Response:
        loop = asyncio.get_running_loop()
        free: list[Connection] = []
        connection = Connection(loop, lambda _: None, free.append, lambda _: None, lambda _: True)
        connection.connection_made(Socket())  # type: ignore[arg-type]
        first = loop.create_task(connection.ask(b"first", loop.time() + 1.0, 1.0))
        await asyncio.sleep(0)

        async def take() -> Response:
            return await free.pop().ask(b"second", loop.time() + 60.0, 60.0)

        loop.call_soon(connection.data_received, OK)
        second = loop.create_task(take())
        loop.call_soon(disturb, connection, first)
        await asyncio.wait([first])
        connection.data_received(OK)
        async with asyncio.timeout(20.0):
            return await second

    return asyncio.run(main())


def test_cancelling_after_the_answer_leaves_the_next_request_alone() -> None:
    """A batch that ends between an answer and its reading does not take the connection from another batch."""
    assert passed_on(lambda _, first: first.cancel()).status == 200


def test_a_timer_that_fires_after_the_answer_leaves_the_next_request_alone() -> None:
    """The first one's time is up just then: that is not the second one's time."""

    def late(connection: Connection, first: asyncio.Task[Response]) -> None:
        connection.expire(asyncio.get_running_loop().time() + 2.0)

    assert passed_on(late).status == 200


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_refused_connections_leave_nothing_behind(loop: str) -> None:
    """A judge that is down for a night costs no memory, and closing does not wait for what was never open."""
    factory = pytest.importorskip("uvloop").new_event_loop if loop == "uvloop" else None

    async def main() -> None:
        server = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        server.close()
        await server.wait_closed()
        transport = HttpTransport()
        for _ in range(5):
            with pytest.raises(TransportFault):
                await transport.post(f"http://127.0.0.1:{port}/v1", {}, b"{}", 5.0)
        assert [len(target._open) for target in transport._targets.values()] == [0]
        await transport.close()

    with asyncio.Runner(loop_factory=factory) as runner:
        runner.run(main())
