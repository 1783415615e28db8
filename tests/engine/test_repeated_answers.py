"""A server that sends an answer more than once: no request gets another one's, and honest servers lose nothing.

The servers here are a few lines on a plain socket. What they send upon each request is fixed, so that every moment at
which a copy can arrive is met without waiting for a clock.
"""

from __future__ import annotations

import asyncio
import json
import re
import socket
import threading
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

import pytest
import uvloop
from tests.engine.harness import expected, samples
from tests.engine.proxies import reached

from referee.config import load
from referee.engine.port import Response, TransportFault
from referee.engine.transport import HttpTransport
from referee.records import Reward
from referee.scoring.batch import Batch
from referee.scoring.build import build_scorer

LOOPS = {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}
Send = Callable[[list[bytes]], list[bytes]]
"""From the answers due on one connection so far, the last of them to the request just read, to what is sent now."""


def plain(body: bytes, status: int = 200) -> bytes:
    return b"HTTP/1.1 %d X\r\nContent-Length: %d\r\n\r\n%b" % (status, len(body), body)


def chunked(body: bytes) -> bytes:
    half = len(body) // 2
    pieces = b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in (body[:half], body[half:]))
    return b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + pieces + b"0\r\n\r\n"


class Server:
    """Answers request after request on each connection, as `send` says."""

    def __init__(self, answer: Callable[[bytes], bytes], send: Send) -> None:
        self._answer, self._send = answer, send
        self.asked = 0
        self.connections = 0

    async def talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        due: list[bytes] = []
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = re.search(rb"content-length: (\d+)", head)
                assert length is not None
                self.asked += 1
                due.append(self._answer(await reader.readexactly(int(length[1]))))
                for part in self._send(due):
                    writer.write(part)
                    await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()


def with_server(server: Server, use: Callable[[str], Any], loop: str = "uvloop") -> Any:
    async def main() -> Any:
        listening = await asyncio.start_server(server.talk, "127.0.0.1", 0)
        try:
            return await use(f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}/v1")
        finally:
            listening.close()

    with asyncio.Runner(loop_factory=LOOPS[loop]) as runner:
        return runner.run(main())


async def asked_until_answered(transport: HttpTransport, url: str, body: bytes) -> tuple[Response, int]:
    """The answer, and how many faults came before it."""
    for faults in range(5):
        try:
            return await transport.post(url, {}, body, 20.0), faults
        except TransportFault as fault:
            if fault.kind == "timeout":
                raise
    raise AssertionError("five faults one after another")


def ask(server: Server, count: int, loop: str = "uvloop", route: str = "direct") -> list[tuple[Response, int]]:
    """Requests 0, 1, 2… one after another."""

    async def use(url: str) -> list[tuple[Response, int]]:
        async with reached(urlsplit(url).port or 0, route) as (transport, base):
            return [await asked_until_answered(transport, f"{base}/v1", b"%04d" % n) for n in range(count)]

    found: list[tuple[Response, int]] = with_server(server, use, loop)
    return found


def own(request: bytes) -> bytes:
    """An answer nobody else gets."""
    return b'{"id": "chatcmpl-%b", "of": "%b"}' % (request, request)


def at(turn: int, copies: Callable[[list[bytes]], list[bytes]]) -> Send:
    """On each connection: as it should be, but for the request of that number."""
    return lambda due: copies(due) if len(due) == turn else due[-1:]


MOMENTS: dict[str, Send] = {
    "in the same packet": at(1, lambda due: [due[-1] * 2]),
    "three times in the same packet": at(1, lambda due: [due[-1] * 3]),
    "at once, in packets of its own": at(1, lambda due: [due[-1]] * 2),
    "twice, in packets of its own": at(1, lambda due: [due[-1]] * 3),
    "after the next request": at(2, lambda due: [due[-2], due[-1]]),
    "after the next request, in its packet": at(2, lambda due: [due[-2] + due[-1]]),
    "after the next request, in halves": at(2, lambda due: [due[-2][:30], due[-2][30:], due[-1]]),
    "instead of the next answer": at(2, lambda due: [due[-2]]),
    "five answers later": at(6, lambda due: [due[0], due[-1]]),
    "begun at once, ended after the next request": lambda due: (
        [due[0] + due[0][:9]] if len(due) == 1 else [due[0][9:], due[1]] if len(due) == 2 else due[-1:]
    ),
    "always": lambda due: [due[-1]] * 2,
    "always, one behind": lambda due: due[-2:],
}


@pytest.mark.parametrize(
    ("loop", "route"), [("asyncio", "direct"), ("uvloop", "direct"), ("uvloop", "tunnel"), ("asyncio", "forwarded")]
)
@pytest.mark.parametrize("form", [plain, chunked])
@pytest.mark.parametrize("moment", MOMENTS)
def test_a_copy_is_never_the_answer_to_another_request(
    moment: str, form: Any, loop: str, route: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Whenever it comes. At worst one request is sent once more, and one warning says so."""
    server = Server(lambda request: form(own(request)), MOMENTS[moment])
    found = ask(server, 12, loop, route)
    assert [answer.body for answer, _ in found] == [own(b"%04d" % n) for n in range(12)]
    faults = sum(faults for _, faults in found)
    assert faults <= 1
    assert len([record for record in caplog.records if "sent an answer twice" in record.message]) == faults


@pytest.mark.parametrize("cut", range(1, 48))
def test_a_copy_that_is_cut_anywhere_is_never_part_of_the_next_answer(cut: int) -> None:
    """Its first bytes come with the answer, the others before the next one."""

    def send(due: list[bytes]) -> list[bytes]:
        if len(due) == 1:
            return [due[0] + due[0][:cut]]
        return [due[0][cut:], due[1]] if len(due) == 2 else due[-1:]

    found = ask(Server(lambda request: plain(own(request)), send), 4)
    assert [answer.body for answer, _ in found] == [own(b"%04d" % n) for n in range(4)]


@pytest.mark.parametrize("failed", [plain(b""), plain(b"", 204), plain(b'{"error": "busy"}', 503), plain(b"", 429)])
def test_a_copy_of_a_failure_does_not_shift_what_follows(failed: bytes) -> None:
    """It may be taken for the next request's failure, which asks again; the answer after that goes to nobody else."""

    def answer(request: bytes) -> bytes:
        return failed if request == b"0000" else plain(own(request))

    found = ask(Server(answer, at(2, lambda due: [due[-2], due[-1]])), 8)
    bodies = [answer.body for answer, _ in found]
    assert [body for body in bodies[2:] if body] == [own(b"%04d" % n) for n in range(2, 8)]
    assert bodies[1] in (own(b"0001"), failed.partition(b"\r\n\r\n")[2])


@pytest.mark.parametrize(
    "body",
    [b'{"id": "chatcmpl-1", "score": 7}', b'{"id": "", "score": 7}', b'{"id": null}', b'{"score": 7}', b'{"id": 0}'],
)
@pytest.mark.parametrize("at_once", [1, 20])
def test_a_server_that_answers_all_alike_is_asked_once_too_often(
    body: bytes, at_once: int, caplog: pytest.LogCaptureFixture
) -> None:
    """Its ids say nothing, which one answer on another connection shows; from then on its answers are taken."""
    server = Server(lambda _: plain(body), lambda due: due[-1:])

    async def use(url: str) -> int:
        transport = HttpTransport()
        faults = 0
        try:
            for turn in range(0, 200, at_once):
                these = (asked_until_answered(transport, url, b"%04d" % (turn + n)) for n in range(at_once))
                faults += sum([failed for _, failed in await asyncio.gather(*these)])
        finally:
            await transport.close()
        return faults

    assert with_server(server, use) == 1
    assert server.asked == 201
    assert server.connections <= at_once + 1
    assert not caplog.records


def test_an_error_page_that_is_always_the_same_is_an_answer() -> None:
    """Throttling sends the same body over and over: every one is heard."""
    found = ask(Server(lambda _: plain(b'{"error": "slow down"}', 429), lambda due: due[-1:]), 20)
    assert [(answer.status, faults) for answer, faults in found] == [(429, 0)] * 20


def test_ids_that_differ_keep_the_connection() -> None:
    """An ordinary server is asked on one connection for as long as it likes."""
    server = Server(lambda request: plain(own(request)), lambda due: due[-1:])
    assert sum(faults for _, faults in ask(server, 300)) == 0
    assert (server.asked, server.connections) == (300, 1)


def test_a_connection_the_server_has_closed_is_not_used() -> None:
    """The end has arrived, though the loop has not looked yet: nothing is sent there."""
    hung_up = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            for _ in range(2):
                talk, _ = listening.accept()
                with talk:
                    talk.recv(1000)
                    talk.sendall(plain(b"{}"))
                hung_up.set()

        async def use() -> list[int]:
            transport = HttpTransport()
            url = f"http://127.0.0.1:{listening.getsockname()[1]}/v1"
            first = await transport.post(url, {}, b"", 20.0)
            assert hung_up.wait(20.0)  # holds the loop
            second = await transport.post(url, {}, b"", 20.0)
            await transport.close()
            return [first.status, second.status]

        thread = threading.Thread(target=serve)
        thread.start()
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            assert runner.run(use()) == [200, 200]
        thread.join(20.0)


def judged(request: bytes) -> bytes:
    """An honest judge: the score it gives is written in the answer it is asked about."""
    text = json.loads(request)["messages"][-1]["content"]
    score = re.search(r"quality=(\d+)", text)
    name = re.search(r"\bn (\d+)", text)
    assert score is not None
    assert name is not None
    verdict = json.dumps({"reason": "because", "score": int(score[1])})
    message = {"message": {"role": "assistant", "content": verdict}, "finish_reason": "stop"}
    return plain(json.dumps({"id": f"chatcmpl-{name[1]}", "choices": [message]}).encode())


@pytest.mark.parametrize("at_once", [1, 8])
@pytest.mark.parametrize(
    "moment",
    ["in the same packet", "at once, in packets of its own", "after the next request", "five answers later", "always"],
)
def test_no_verdict_is_credited_to_another_sample(moment: str, at_once: int) -> None:
    """The whole way, with verdicts in the form that holds no code of the request's."""
    given = samples(60)
    server = Server(judged, MOMENTS[moment])

    async def use(url: str) -> list[Reward]:
        config = load(
            {
                "endpoint": {"url": url, "model": "m", "key_env": ""},
                "cache": {"path": ""},
                "judge": {"reply": "schema"},
                "limits": {"concurrency": at_once},
            }
        )
        scorer = build_scorer(config, secret=b"secret")
        rewards: list[Reward] = []
        await scorer.run(Batch("b", given, config, 60.0, lambda landed, error, done: rewards.extend(landed)))
        await scorer.aclose()
        return sorted(rewards, key=lambda reward: reward.index)

    rewards = with_server(server, use)
    assert [reward.verdict for reward in rewards if not reward.scored] == []
    assert [reward.verdict.score for reward in rewards] == expected(given)
