"""The service in process, over the simulated provider: what its tests stand on."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import threading
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

import httpx
from fastapi import FastAPI

from referee import clock
from referee.config import Config, Secret, load
from referee.engine.port import Response
from referee.referee import Referee
from referee.scoring.build import worker_with
from referee.server import make_app
from referee.server.service import Service
from referee.sim import Provider, ProviderSpec, SimTransport

TOKEN = "token-of-the-tests-0123456789"
PATIENCE = 50.0
"""Seconds after which a condition that does not come is a failure. Nothing is expected to take this long."""


class HeldTransport:
    """Holds every answer of a simulated provider back until released. `asked` counts what has arrived."""

    def __init__(self, spec: ProviderSpec) -> None:
        self._inner = SimTransport(Provider(spec, 1))
        self._open = threading.Event()
        self._waiting: list[tuple[asyncio.AbstractEventLoop, asyncio.Future[None]]] = []
        self.asked = 0
        self.shown: list[str] = []
        """What the judge was asked, request by request."""
        self.left = 0
        """Requests whose caller gave up."""

    async def post(self, url: str, headers: Mapping[str, str], body: bytes, timeout: float) -> Response:
        """One request, answered after `release`."""
        self.asked += 1
        self.shown.append(json.loads(body)["messages"][-1]["content"])
        if not self._open.is_set():
            loop = asyncio.get_running_loop()
            future: asyncio.Future[None] = loop.create_future()
            self._waiting.append((loop, future))
            try:
                await future
            except asyncio.CancelledError:
                self.left += 1
                raise
        return await self._inner.post(url, headers, body, timeout)

    async def close(self) -> None:
        """Refuse further requests."""
        await self._inner.close()

    def hold(self) -> None:
        """Hold back what is asked from now on."""
        self._open.clear()

    def release(self) -> None:
        """Answer everything, from now on at once."""
        self._open.set()
        for loop, future in self._waiting:
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(_settle, future)


def _settle(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


class Served:
    """A client of the service, and what is behind it."""

    def __init__(self, client: httpx.AsyncClient, app: FastAPI, referee: Referee, held: HeldTransport) -> None:
        self.client = client
        self.app = app
        self.referee = referee
        self.held = held

    @property
    def service(self) -> Service:
        """The Service behind the application."""
        found: Service = self.app.state.service
        return found

    async def post(self, path: str, body: Any, **more: Any) -> httpx.Response:
        """POST JSON."""
        return await self.client.post(path, json=body, **more)

    async def get(self, path: str, **more: Any) -> httpx.Response:
        """GET."""
        return await self.client.get(path, **more)


def config_for(**sections: Any) -> Config:
    """One simulated endpoint, cache in memory."""
    endpoint = {"url": "http://a.test/v1", "model": "m", "key_env": "", **sections.pop("endpoint", {})}
    return load({"cache": {"path": ""}, **sections, "endpoint": endpoint})


@contextlib.asynccontextmanager
async def serving(
    spec: ProviderSpec | None = None,
    *,
    token: str = "",
    held: bool = False,
    teams: Mapping[str, str] = {},
    **sections: Any,
) -> AsyncIterator[Served]:
    """The service over a simulated provider. `held`: answers wait for `served.held.release()`. `teams`: tokens of the
    teams of the configuration."""
    transport = HeldTransport(spec or ProviderSpec())
    if not held:
        transport.release()

    referee = Referee(config_for(**sections), worker_with(lambda: transport, random.Random(1), b"secret"))
    tokens = {name: Secret(text) for name, text in teams.items()}
    app = make_app(referee, Secret(token) if token else None, tokens)
    web = httpx.ASGITransport(app)
    try:
        async with httpx.AsyncClient(transport=web, base_url="http://127.0.0.1:8900", timeout=PATIENCE) as client:
            yield Served(client, app, referee, transport)
    finally:
        transport.release()
        service: Service = app.state.service
        if "redis" in sections:
            await service.drain(0)
        await service.referees.close()
        await asyncio.to_thread(service.referee.close)
        await asyncio.to_thread(referee.close)


async def until(condition: Callable[[], bool]) -> None:
    """Wait for a condition; a failure if it never comes."""
    end = clock.monotonic() + PATIENCE
    while not condition():
        assert clock.monotonic() < end, "the condition never came"
        await asyncio.sleep(0.005)


def sample(quality: int = 7, name: str = "", **fields: Any) -> dict[str, Any]:
    """A sample whose right score the simulated judge can read."""
    return {"prompt": "p", "response": f"[[quality={quality}]] {name}", **fields}


def samples(count: int) -> list[dict[str, Any]]:
    """Different samples with different right scores."""
    return [sample(n % 10 + 1, str(n), id=f"r{n}") for n in range(count)]
