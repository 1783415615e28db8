"""The process that serves: where it listens, its token, and how it ends.

SIGTERM or Ctrl-C: no new work is taken, what was accepted is finished within `[serve] drain_seconds`, exit 0. A second
signal ends the process at once. SIGHUP: the configuration is read again.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import socket
from collections.abc import Callable, Iterator, Mapping

import uvicorn
from fastapi import FastAPI

from referee.config import Config, Secret
from referee.engine.spend_file import check_file
from referee.errors import ConfigError
from referee.referee import Referee
from referee.runtime.background import new_loop
from referee.server.app import make_app
from referee.server.gate import is_loopback
from referee.server.protocol import LimitedProtocol
from referee.server.reload import Reload
from referee.server.service import Service
from referee.server.tokens import find_tokens, read_token

log = logging.getLogger("referee.server")

KEEP_ALIVE = 75
"""Seconds an idle connection is kept; longer than clients keep theirs, so that they close first."""
CLOSE_TIMEOUT_S = 5
"""Seconds connections have to take their answers once all work has ended."""


def run(
    config: Config,
    host: str = "127.0.0.1",
    port: int = 8900,
    ready: Callable[[str], None] = lambda url: None,
    extend: Callable[[FastAPI, Config], None] = lambda app, config: None,
    read: Callable[[], Config] | None = None,
) -> None:
    """Serve until a signal. `ready` is told the URL; `extend` may add pages (see `app.add_page`) before it starts;
    `read` gives the configuration anew at SIGHUP."""
    token, teams = find_token(config.serve.token_env, os.environ), find_tokens(config, os.environ)
    if token is None and not teams and not is_loopback(host):
        raise ConfigError(
            f"--host {host} can be reached from other machines, and the service spends your money for every caller. "
            "Put a token in an environment variable and name it with --token-env or [serve] token_env. Not started.",
            setting="serve.token_env",
        )
    if teams and not config.redis.url:
        check_file(config.serve.state)
    with listening(host, port) as sock, Referee(config) as referee, asyncio.Runner(loop_factory=new_loop) as runner:
        referee.start()  # what is wrong with the configuration ends it now, and not the first request
        runner.run(_serve(referee, token, teams, sock, ready, extend, read))


def find_token(variable: str, env: Mapping[str, str]) -> Secret | None:
    """The token callers must send; None if none is asked for."""
    return read_token("[serve] token_env", variable, env, "serve.token_env") if variable else None


@contextlib.contextmanager
def listening(host: str, port: int) -> Iterator[socket.socket]:
    """A socket that listens there, so that an occupied port is one clear error before anything else starts."""
    with contextlib.ExitStack() as stack:
        try:
            found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
            family, kind, proto, _, address = found[0]
            sock = stack.enter_context(socket.socket(family, kind, proto))
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            sock.bind(address)
        except (OSError, OverflowError, UnicodeError) as error:
            raise ConfigError(f"cannot listen on {host} port {port} ({error}). Choose another with --port.") from None
        yield sock


class _Server(uvicorn.Server):
    """uvicorn without its own signal handling: it would stop listening at once and end with the signal's status."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signals to the caller of `run`."""
        yield


async def _serve(
    referee: Referee,
    token: Secret | None,
    teams: Mapping[str, Secret],
    sock: socket.socket,
    ready: Callable[[str], None],
    extend: Callable[[FastAPI, Config], None],
    read: Callable[[], Config] | None,
) -> None:
    app = make_app(referee, token, teams)
    extend(app, referee.config)
    service: Service = app.state.service
    server = _Server(
        uvicorn.Config(
            app,
            http=LimitedProtocol,
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            server_header=False,
            timeout_keep_alive=KEEP_ALIVE,
            timeout_graceful_shutdown=CLOSE_TIMEOUT_S,
        )
    )
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, _on_signal, stop, number)
    reload = Reload(service, read)
    loop.add_signal_handler(signal.SIGHUP, reload.ask)
    serving = asyncio.create_task(server.serve(sockets=[sock]))
    sock.listen(1024)
    ready(url_of(sock))
    waiting = asyncio.create_task(stop.wait())
    await asyncio.wait({serving, waiting}, return_when=asyncio.FIRST_COMPLETED)
    if stop.is_set():
        log.info("draining; samples being judged: %d", service.pending)
        config = service.referee.config
        await service.drain(min(config.serve.drain_seconds, config.limits.deadline))
    waiting.cancel()
    server.should_exit = True
    await serving
    await reload.end()
    await service.referees.close()


def _on_signal(stop: asyncio.Event, number: int) -> None:
    if stop.is_set():
        os._exit(128 + number)
    stop.set()


def url_of(sock: socket.socket) -> str:
    """Where a socket listens, as a URL."""
    host, port = sock.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
