"""`referee serve` as a process: signals, bodies, tokens over a real socket."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from tests.server.harness import PATIENCE, TOKEN, sample
from tests.server.processes import ServeProcess, judge, service, until

BODY = {"samples": [sample()]}


class Asking(threading.Thread):
    """One request in a thread of its own."""

    def __init__(self, process: ServeProcess) -> None:
        super().__init__(daemon=True)
        self._process = process
        self.answer: tuple[int, Any] = (0, None)
        self.start()

    def run(self) -> None:
        """Ask, and keep the answer; (0, None) if the connection breaks."""
        with contextlib.suppress(OSError, http.client.HTTPException):
            self.answer = self._process.ask("POST", "/v1/score", BODY)

    def result(self) -> tuple[int, Any]:
        """The answer, once it is there."""
        self.join(PATIENCE)
        return self.answer


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_drains_and_ends_with_zero(number: signal.Signals, tmp_path: Path) -> None:
    """What was accepted is answered, new work is refused, and the exit status says that all went well."""
    with judge() as (provider, url), service(tmp_path, url) as process:
        asking = Asking(process)
        until(lambda: provider.asked == 1)
        process.signal(number)
        until(lambda: process.status() == "draining")
        status, problem = process.ask("POST", "/v1/score", BODY)
        assert (status, problem["error"]) == (503, "draining")
        assert process.child.poll() is None
        provider.release()
        status, reply = asking.result()
        assert (status, reply["results"][0]["score"]) == (200, 7)
        assert process.wait() == 0
        assert "Traceback" not in process.log()


def test_a_second_signal_ends_at_once(tmp_path: Path) -> None:
    """Work under way does not keep it, and the exit status says that it was cut short."""
    with judge() as (provider, url), service(tmp_path, url) as process:
        asking = Asking(process)
        until(lambda: provider.asked == 1)
        process.signal(signal.SIGTERM)
        until(lambda: process.status() == "draining")
        process.signal(signal.SIGTERM)
        assert process.wait() == 128 + signal.SIGTERM
        assert asking.result() == (0, None)


def test_draining_has_a_bound(tmp_path: Path) -> None:
    """A judge that never answers does not keep the process: its caller is told, and the exit status is 0."""
    with judge() as (provider, url), service(tmp_path, url, "[serve]\ndrain_seconds = 0.2") as process:
        asking = Asking(process)
        until(lambda: provider.asked == 1)
        process.signal(signal.SIGTERM)
        assert process.wait() == 0
        status, reply = asking.result()
        assert (status, reply["results"][0]["unscored"]) == (200, "cancelled")


def test_an_idle_service_with_open_connections_ends(tmp_path: Path) -> None:
    """A client that keeps its connection does not keep the process."""
    with judge() as (provider, url), service(tmp_path, url) as process:
        provider.release()
        connection = http.client.HTTPConnection(process.address, timeout=PATIENCE)
        connection.request("GET", "/healthz")
        assert connection.getresponse().read()
        process.signal(signal.SIGTERM)
        assert process.wait() == 0
        connection.close()


def test_a_long_chunked_body_is_413(tmp_path: Path) -> None:
    """Without a declared length it is counted as it comes, and the service goes on."""

    def pieces() -> Iterator[bytes]:
        for _ in range(512):
            yield b" " * 4096

    with judge() as (provider, url), service(tmp_path, url, "[serve]\nmax_body = 65536") as process:
        provider.release()
        headers = {"transfer-encoding": "chunked"}
        status, problem = process.ask("POST", "/v1/score", pieces(), encode_chunked=True, headers=headers)
        assert (status, problem["error"]) == (413, "too_long")
        status, problem = process.ask("POST", "/v1/score", {"x": "y" * 100_000})
        assert (status, problem["error"]) == (413, "too_long")
        assert process.ask("POST", "/v1/score", BODY)[0] == 200


def test_a_connection_that_closes_cancels_its_work(tmp_path: Path) -> None:
    """The samples of a caller that is gone are no longer pending."""
    with judge() as (provider, url), service(tmp_path, url) as process:
        connection = http.client.HTTPConnection(process.address, timeout=PATIENCE)
        connection.request("POST", "/v1/score", json.dumps(BODY), {"content-type": "application/json"})
        until(lambda: provider.asked == 1)
        assert process.ask("GET", "/healthz")[1]["queued"] == 1
        connection.close()
        until(lambda: process.ask("GET", "/healthz")[1]["queued"] == 0)


def test_a_token_lets_trainers_in_that_know_only_a_url(tmp_path: Path) -> None:
    """As a bearer token, or inside the URL as aiohttp (OpenRLHF, slime) sends it; without it 401."""
    text = '[serve]\ntoken_env = "JUDGE_TOKEN"'
    body = {"query": ["Q?[[quality=10]] a"], "prompts": ["Q?"], "labels": [None]}

    async def as_openrlhf(address: str) -> Any:
        async with (
            aiohttp.ClientSession() as session,
            session.post(f"http://referee:{TOKEN}@{address}/get_reward", json=body) as answer,
        ):
            answer.raise_for_status()
            return await answer.json()

    with judge() as (provider, url), service(tmp_path, url, text, "--host", "0.0.0.0", JUDGE_TOKEN=TOKEN) as process:
        provider.release()
        process.url = process.url.replace("0.0.0.0", "127.0.0.1")
        assert process.ask("POST", "/v1/score", BODY)[0] == 401
        assert process.ask("POST", "/v1/score", BODY, token=TOKEN)[0] == 200
        assert asyncio.run(as_openrlhf(process.address))["rewards"] == [1.0]
        assert TOKEN not in process.log()


def test_it_does_not_start_where_it_would_be_open_to_all(tmp_path: Path) -> None:
    """Another bind than loopback without a token: exit 2 and one clear message."""
    with service(tmp_path, "http://127.0.0.1:9/v1", "", "--host", "0.0.0.0") as process:
        assert process.wait() == 2
        assert "--token-env" in process.log()
        assert "Traceback" not in process.log()


def test_the_live_page_is_there_when_a_ledger_is_kept(tmp_path: Path) -> None:
    """/live/ shows the service's own ledger; without a ledger there is no such page."""
    with judge() as (provider, url):
        provider.release()
        with service(tmp_path, url) as process:
            assert process.ask("GET", "/live/")[0] == 404
        with service(tmp_path, url, f"[ledger]\ndir = {json.dumps(str(tmp_path / 'run'))}") as process:
            assert process.ask("POST", "/v1/score", BODY)[0] == 200
            status, page = process.ask("GET", "/live/")
            assert status == 200
            assert b"<html" in page
            assert process.ask("GET", "/live/data.json")[0] == 200
