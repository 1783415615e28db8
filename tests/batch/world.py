"""The batch transport over simulated batch APIs, in process and in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec

from referee.batch import BatchTransport, Board, Journal
from referee.batch.calls import Caller, Pace
from referee.batch.open import APIS
from referee.batch.port import BatchApi
from referee.engine.port import Response, TransportFault
from referee.sim import BatchSpec, Provider, ProviderSpec
from referee.sim.batches import Request, SimBatches

URL = "https://api.test/v1/chat/completions"
HEADERS = {"authorization": "Bearer sk-canary-0123456789abcdef"}
TIMEOUT_S = 400_000.0


class World:
    """A provider that outlives the processes which ask it. `start` begins a process: a journal and a transport."""

    def __init__(self, folder: Path, name: str, batch: BatchSpec | None = None, **spec: Any) -> None:
        self.folder = folder
        self.provider = Provider(ProviderSpec(**spec), 1)
        self.http = Network(self.provider, batch or BatchSpec(validate_s=60, process_s=3600))
        self._name = name
        self._open: list[tuple[BatchTransport, Journal]] = []
        self.board = Board()
        self.journal: Journal
        self.max_items: int | None = None

    def start(self) -> BatchTransport:
        """Another process."""
        self.journal, self.board = Journal(self.folder), Board()
        transport = BatchTransport("judge", self._api, self.journal, self.board, Pace())
        self._open.append((transport, self.journal))
        return transport

    def _api(self, headers: Mapping[str, str]) -> BatchApi:
        api = APIS[self._name](URL, Caller(self.http, Pace(), headers))
        if self.max_items is not None:
            api.max_items = self.max_items
        return api

    async def end(self) -> None:
        """End the newest process, and the work of the provider if it was the last."""
        transport, journal = self._open.pop()
        await transport.close()
        journal.close()

    async def cancel_all(self) -> None:
        """As a user does at the provider's console."""
        api = self._api(HEADERS)
        for batch in self.journal.batches():
            if batch.remote:
                await api.cancel(batch.remote)


class Network:
    """The batch APIs in process: what `HttpTransport.request` is over a socket."""

    def __init__(self, provider: Provider, spec: BatchSpec) -> None:
        self.batches = SimBatches(provider, spec)
        self.calls: list[str] = []
        self.dead = ""
        """Calls that hold this fail before they arrive."""
        self.deaf = ""
        """The next call that holds this arrives, and its answer is lost."""

    async def request(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes, timeout: float, most: int = 0
    ) -> Response:
        call = f"{method} {url}"
        if self.dead and self.dead in call:
            raise TransportFault("connect", "no route")
        path = urlsplit(url)._replace(scheme="", netloc="").geturl()
        self.calls.append(f"{method} {path}")
        answer = self.batches.answer(Request(method, path, dict(headers), False, body))
        if self.deaf and self.deaf in call:
            self.deaf = ""
            raise TransportFault("reset", "gone")
        return Response(answer.status, answer.headers, answer.body)


def question(number: int, text: str = "") -> bytes:
    """A body whose right answer the simulated judge can read."""
    content = f"Score from 1 to 10.\n<<<response ab\n[[quality={number % 10 + 1}]] {number} {text}\nab response>>>"
    return msgspec.json.encode({"model": "m", "messages": [{"role": "user", "content": content}]})


async def ask(transport: BatchTransport, *bodies: bytes) -> list[Response]:
    """Post all of these at once."""
    return await asyncio.gather(*(transport.post(URL, HEADERS, body, TIMEOUT_S) for body in bodies))


def score(response: Response) -> str:
    """The verdict in an answer."""
    assert response.status == 200, response.body
    found: str = msgspec.json.decode(response.body)["choices"][0]["message"]["content"]
    return found


def right(responses: list[Response]) -> bool:
    """Whether each is the answer to its own question."""
    return [score(one) for one in responses] == [str(n % 10 + 1) for n in range(len(responses))]
