"""Tests with the providers' own SDKs, in an environment of their own: `make test-sdk`. There a missing SDK is an error,
not a skipped test; elsewhere they are not collected."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from referee.sim import Provider, ProviderSpec, SimServer, serve_http

collect_ignore_glob = [] if os.environ.get("REFEREE_TEST_SDKS") else ["test_*.py"]

Serve = Callable[..., str]


@pytest.fixture(scope="session")
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    """A loop on a thread of its own: the SDKs' clients block."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    yield loop
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()


@pytest.fixture
def serve(loop: asyncio.AbstractEventLoop) -> Iterator[Serve]:
    """A function that starts a simulated provider, given fields of its spec, and returns its URL without a path."""
    started: list[SimServer] = []

    async def run(spec: ProviderSpec) -> SimServer:
        return await serve_http(Provider(spec))

    def start(**spec: Any) -> str:
        started.append(asyncio.run_coroutine_threadsafe(run(ProviderSpec(**spec)), loop).result())
        return started[-1].url.partition("/v1")[0]

    yield start
    for server in started:
        asyncio.run_coroutine_threadsafe(server.close(), loop).result()
