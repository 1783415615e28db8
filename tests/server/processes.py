"""The service as a user runs it, in a process of its own, over a judge that answers when it is told to."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import os
import selectors
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from tests.server.harness import PATIENCE

from referee import clock
from referee.sim import Provider, ProviderSpec, SimResponse, serve_http


class HeldProvider(Provider):
    """A simulated provider that keeps its answers until `release`; lives on the loop of its own thread."""

    def __init__(self) -> None:
        super().__init__(ProviderSpec(), 1)
        self._released = asyncio.Event()
        self.asked = 0
        self.loop: asyncio.AbstractEventLoop | None = None

    async def serve(self, body: bytes, headers: Mapping[str, str], path: str = "") -> SimResponse:
        """Answer, once released."""
        self.asked += 1
        await self._released.wait()
        return await super().serve(body, headers, path)

    def release(self) -> None:
        """Answer everything, from now on at once."""
        assert self.loop is not None
        self.loop.call_soon_threadsafe(self._released.set)


@contextlib.contextmanager
def judge() -> Iterator[tuple[HeldProvider, str]]:
    """A held provider over HTTP in a thread, and its URL."""
    ready = threading.Event()
    stop: list[Callable[[], object]] = []
    found: list[tuple[HeldProvider, str]] = []

    async def main() -> None:
        provider = HeldProvider()
        provider.loop = asyncio.get_running_loop()
        end = asyncio.Event()
        stop.append(lambda: provider.loop and provider.loop.call_soon_threadsafe(end.set))
        server = await serve_http(provider)
        found.append((provider, server.url))
        ready.set()
        await end.wait()
        await server.close()

    thread = threading.Thread(target=lambda: asyncio.run(main()), daemon=True)
    thread.start()
    assert ready.wait(PATIENCE)
    try:
        yield found[0]
    finally:
        stop[0]()
        thread.join(PATIENCE)


class ServeProcess:
    """A running `referee serve`."""

    def __init__(self, child: subprocess.Popen[str], log: Path) -> None:
        self.child = child
        self._log = log
        self.announced = self.url = ""

    @property
    def address(self) -> str:
        """Host and port."""
        return self.url.removeprefix("http://")

    def ask(self, method: str, path: str, body: Any = None, token: str = "", **more: Any) -> tuple[int, Any]:
        """Status and body of one request."""
        headers = {"content-type": "application/json", **({"authorization": f"Bearer {token}"} if token else {})}
        connection = http.client.HTTPConnection(self.address, timeout=PATIENCE)
        try:
            text = body if body is None or "encode_chunked" in more else json.dumps(body)
            connection.request(method, path, text, {**headers, **more.pop("headers", {})}, **more)
            answer = connection.getresponse()
            found = answer.read()
            return answer.status, json.loads(found) if answer.getheader("content-type") == "application/json" else found
        finally:
            connection.close()

    def status(self) -> str:
        """What /healthz says, or "" when nobody listens any more."""
        try:
            found: str = self.ask("GET", "/healthz")[1]["status"]
        except OSError:
            return ""
        return found

    def signal(self, number: signal.Signals) -> None:
        """Send a signal."""
        self.child.send_signal(number)

    def wait(self) -> int:
        """The exit status, once it has ended."""
        return self.child.wait(PATIENCE)

    def log(self) -> str:
        """What it wrote to standard error."""
        return self._log.read_text()


@contextlib.contextmanager
def service(folder: Path, url: str, text: str = "", *options: str, **env: str) -> Iterator[ServeProcess]:
    """`referee serve` on a free port; killed at the end if it has not ended by itself."""
    settings = folder / "referee.toml"
    settings.write_text(f'[endpoint]\nurl = "{url}"\nmodel = "m"\nkey_env = ""\n[cache]\npath = ""\n{text}\n')
    log = folder / "stderr.txt"
    command = [sys.executable, "-m", "referee.cli.main", "serve", "-c", str(settings), "--port", "0", *options]
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("REFEREE_", "OPENAI_"))}
    with log.open("w") as stderr:
        child = subprocess.Popen(
            command, cwd=folder, env={**kept, **env}, stdout=subprocess.PIPE, stderr=stderr, text=True
        )
    process = ServeProcess(child, log)
    try:
        assert child.stdout is not None
        with selectors.DefaultSelector() as ready:
            ready.register(child.stdout, selectors.EVENT_READ)
            line = child.stdout.readline() if ready.select(PATIENCE) else ""
        process.announced = line
        process.url = next((word for word in line.split() if word.startswith("http")), "")
        yield process
    finally:
        if child.poll() is None:
            child.kill()
        child.wait()
        if child.stdout is not None:
            child.stdout.close()


def until(condition: Callable[[], bool]) -> None:
    """Wait for a condition; a failure if it never comes."""
    end = clock.monotonic() + PATIENCE
    while not condition():
        assert clock.monotonic() < end, "the condition never came"
        clock.pause(0.01)
