"""A provider on a thread of its own, and the command line as a user runs it, in a process of its own."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import threading
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import pytest
from tests.cli.forked import Forks

from referee.sim import Provider, ProviderSpec
from referee.sim.http import serve_http
from referee.sim.stats import Stats

T = TypeVar("T")
Run = Callable[..., "subprocess.CompletedProcess[str]"]
Start = Callable[..., "Server"]
KEY = "sk-canary-0123456789abcdef"


class Server:
    """A simulated provider on a thread of its own."""

    def __init__(self, spec: ProviderSpec) -> None:
        self._provider = Provider(spec, 1)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._server = self._on_loop(serve_http(self._provider, "127.0.0.1", 0))
        self.url: str = self._server.url

    def stats(self) -> Stats:
        """What it has counted so far."""
        return self._on_loop(_called(self._provider.stats))

    def stop(self) -> None:
        """Close it. Safe to call twice."""
        if not self._loop.is_closed():
            self._on_loop(self._server.close())
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()

    def _on_loop(self, what: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(what, self._loop).result(30)


async def _called(function: Callable[[], T]) -> T:
    return function()


@pytest.fixture
def provider() -> Iterator[Callable[..., Server]]:
    """Starts simulated providers and stops them after the test."""
    servers: list[Server] = []

    def start(**spec: Any) -> Server:
        servers.append(Server(msgspec.convert(spec, ProviderSpec)))
        return servers[-1]

    yield start
    for server in servers:
        server.stop()


def environment(**more: str) -> dict[str, str]:
    """Ours without anything of referee's or a provider's."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("REFEREE_", "OPENAI_"))}
    return {**kept, "COLUMNS": "200", **more}


@pytest.fixture(scope="session")
def forks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Forks]:
    """What runs of the command are forked from."""
    found = Forks(tmp_path_factory.mktemp("streams"))
    yield found
    found.close()


@pytest.fixture
def referee(tmp_path: Path, forks: Forks) -> Run:
    """Runs `referee …` in the test's folder; the timeout only stops a hang."""

    def run(*args: str, stdin: str | None = None, **env: str) -> subprocess.CompletedProcess[str]:
        return forks.run(args, tmp_path, environment(**env), stdin, 55)

    return run


def write_rollouts(path: Path, count: int, **fields: Any) -> None:
    """Rollouts whose right score the simulated judge can read."""
    with path.open("w") as stream:
        for n in range(count):
            row = {
                "id": f"r{n}",
                "group": f"g{n // 4}",
                "prompt": "p",
                "response": f"[[quality={n % 10 + 1}]] {n}",
                **fields,
            }
            stream.write(json.dumps(row) + "\n")


def write_config(path: Path, url: str, text: str = "", **endpoint: Any) -> None:
    """A configuration for one simulated endpoint."""
    settings = {"url": url, "model": "simulated", "key_env": "", **endpoint}
    lines = "\n".join(f"{name} = {json.dumps(value)}" for name, value in settings.items())
    path.write_text(f"[endpoint]\n{lines}\n{text}\n")


def rows(path: Path) -> list[dict[str, Any]]:
    """The rows of an output file."""
    return [json.loads(line) for line in path.read_text().splitlines()]
