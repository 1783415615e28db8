"""The simulated provider in its own process: running it, and starting, querying and stopping it as a child.

The child ends when its standard input closes, so it never outlives its parent.
"""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import selectors
import subprocess
import sys
from collections.abc import Callable
from typing import IO
from urllib.parse import urlsplit

import msgspec

from referee.errors import RefereeError
from referee.sim.http import serve_http
from referee.sim.precise_clock import PreciseClock
from referee.sim.provider import Provider
from referee.sim.spec import ProviderSpec
from referee.sim.stats import Stats

START_TIMEOUT = 30.0
"""Seconds a child has to print its URL."""
STOP_TIMEOUT = 5.0
"""Seconds a child has to exit before it is killed."""


def run_server(
    spec: ProviderSpec, seed: int = 0, host: str = "127.0.0.1", port: int = 8099, until_eof: bool = False
) -> None:
    """Serve until interrupted, or with `until_eof` until standard input closes. The first line printed is the URL."""
    with contextlib.suppress(KeyboardInterrupt), asyncio.Runner(loop_factory=_loop_factory()) as runner:
        runner.run(_serve(Provider(spec, seed), host, port, until_eof))


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop


async def _serve(provider: Provider, host: str, port: int, until_eof: bool) -> None:
    loop = asyncio.get_running_loop()
    end = loop.create_future()
    precise = PreciseClock() if provider.spec.time_scale > 1 and sys.platform == "linux" else None
    if precise is not None:
        provider.sleep = precise.sleep
    server = await serve_http(provider, host, port)
    pipe = None
    if until_eof:
        pipe, _ = await loop.connect_read_pipe(lambda: _Eof(end), sys.stdin)
    sys.stdout.write(f"{server.url}\n")
    sys.stdout.flush()
    try:
        await end
    finally:
        if pipe is not None:
            pipe.close()
        await server.close()
        if precise is not None:
            precise.close()


class _Eof(asyncio.Protocol):
    """Completes a future when a pipe has closed."""

    def __init__(self, end: asyncio.Future[None]) -> None:
        self._end = end

    def connection_lost(self, exc: Exception | None) -> None:
        if not self._end.done():
            self._end.set_result(None)


class ServerProcess:
    """A child process that serves a provider. Use it in a `with`, or call `stop`."""

    def __init__(self, child: subprocess.Popen[bytes], url: str) -> None:
        self._child = child
        self.url = url
        """Its chat-completions URL."""

    @property
    def pid(self) -> int:
        """The child's process id."""
        return self._child.pid

    def stats(self) -> Stats:
        """What the provider has counted so far."""
        connection = http.client.HTTPConnection(urlsplit(self.url).netloc, timeout=START_TIMEOUT)
        try:
            connection.request("GET", "/stats")
            return msgspec.json.decode(connection.getresponse().read(), type=Stats)
        finally:
            connection.close()

    def stop(self) -> None:
        """End the child. Safe to call twice."""
        child = self._child
        for stream in (child.stdin, child.stdout):
            if stream is not None:
                stream.close()
        try:
            child.wait(STOP_TIMEOUT)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()

    def __enter__(self) -> ServerProcess:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def __repr__(self) -> str:
        return f"ServerProcess({self.url}, pid {self.pid})"


def start_server_process(spec: ProviderSpec, seed: int = 0, host: str = "127.0.0.1") -> ServerProcess:
    """Start a child that serves `spec` on a free port, and wait until it listens."""
    text = msgspec.json.encode(spec).decode()
    # Its own session: Ctrl-C must reach only the parent, which needs its provider until it has shut down.
    child = subprocess.Popen(  # noqa: S603  # our own interpreter and module, no shell
        [sys.executable, "-m", "referee.sim", text, str(seed), host],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    server = ServerProcess(child, "")
    assert child.stdout is not None
    server.url = _first_line(child.stdout)
    if not server.url.startswith("http://"):
        server.stop()
        raise RefereeError("the simulated provider did not start; its own message is above, on standard error")
    return server


def _first_line(stream: IO[bytes]) -> str:
    with selectors.DefaultSelector() as ready:
        ready.register(stream, selectors.EVENT_READ)
        return stream.readline().decode().strip() if ready.select(START_TIMEOUT) else ""
