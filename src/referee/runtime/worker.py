"""A worker process: a WorkerEngine fed over a private pipe. It lives as long as the pipe's other end does."""

from __future__ import annotations

import asyncio
import functools
import logging
import math
import os
import signal
import socket
import traceback
from collections.abc import Callable

from referee.config import Config
from referee.errors import RefereeError
from referee.limits.quota_broker import Grant, Report
from referee.runtime.background import new_loop
from referee.runtime.collector import collect_rarely
from referee.runtime.frames import Frames
from referee.runtime.messages import (
    Asked,
    Granted,
    Leave,
    Note,
    Nudge,
    Open,
    Outbound,
    Ready,
    decode_inbound,
    encode,
    unpack_config,
)
from referee.runtime.worker_engine import WorkerEngine
from referee.scoring.lines import Wanted
from referee.scoring.messages import Cancel, Fault, Update, Work
from referee.version import VERSION

QUIET = 0.5
"""Seconds between two reports on the shared limits while nothing waits: the parent nudges when others need more."""
LINGER = 10
"""Seconds a worker may take to end once its parent is gone; then the system ends it."""


class Worker:
    """Answers to one pipe."""

    def __init__(self) -> None:
        self._engine: WorkerEngine | None = None
        self._grant: asyncio.Future[Grant] | None = None
        self._over = asyncio.Event()
        self._gone = asyncio.Event()
        self._frames = Frames(self._took, self._lost)

    async def live(self, pipe: socket.socket) -> None:
        """Serve until told to leave, or until the parent is gone."""
        await asyncio.get_running_loop().create_unix_connection(lambda: self._frames, sock=pipe)
        await self._over.wait()
        if hasattr(signal, "alarm"):
            signal.alarm(LINGER)
        if self._engine is not None:
            await self._engine.close()
        self._frames.close()
        await self._gone.wait()

    def _lost(self) -> None:
        self._over.set()
        self._gone.set()

    def _took(self, data: memoryview) -> None:
        message = decode_inbound(data)
        engine = self._engine
        if isinstance(message, Open):
            self._open(message)
        elif isinstance(message, Leave):
            self._over.set()
        elif isinstance(message, Granted):
            if self._grant is not None and not self._grant.done():
                self._grant.set_result(message.grant)
        elif engine is not None and isinstance(message, Nudge):
            engine.nudge()
        elif engine is not None and isinstance(message, Work):
            engine.take(message)
        elif engine is not None and isinstance(message, Cancel):
            engine.cancel(message)

    def _open(self, given: Open) -> None:
        fault = None
        try:
            if given.version != VERSION:
                raise RefereeError(f"worker processes run referee {VERSION}, this process runs {given.version}.")
            self._forward_log(given.level)
            self._engine = self._make_engine(unpack_config(given.config), given)
            collect_rarely()
        except RefereeError as error:
            fault = Fault(type(error).__name__, str(error))
        except Exception as error:
            traceback.print_exc()
            why = f"{type(error).__name__} while a worker process started; see its trace."
            fault = Fault(RefereeError.__name__, why)
        self._send(Ready(VERSION, fault))

    def _make_engine(self, config: Config, given: Open) -> WorkerEngine:
        # The broker lives as long as the pipe: its silence is only a busy parent.
        wanted = Wanted(config.ledger.content) if given.lines else None
        return WorkerEngine(
            config,
            self._update,
            wanted=lambda _: wanted,
            exchange=self._exchange,
            members=given.members,
            rank=given.rank,
            patience=math.inf,
            quiet=QUIET,
        )

    def _update(self, client: str, update: Update) -> None:
        self._send(update)

    async def _exchange(self, report: Report) -> Grant:
        self._grant = asyncio.get_running_loop().create_future()
        self._send(Asked(report))
        return await self._grant

    def _send(self, message: Outbound) -> None:
        self._frames.send((encode(message),))

    def _forward_log(self, level: int) -> None:
        logger = logging.getLogger("referee")
        logger.setLevel(level)
        logger.propagate = False
        loop = asyncio.get_running_loop()
        logger.addHandler(_Forward(lambda note: loop.call_soon_threadsafe(functools.partial(self._send, note))))


class _Forward(logging.Handler):
    """Log records become messages to the parent."""

    def __init__(self, post: Callable[[Note], object]) -> None:
        super().__init__()
        self._post = post

    def emit(self, record: logging.LogRecord) -> None:
        """Send one record, its trace included."""
        try:
            text = record.getMessage()
            if record.exc_info and record.exc_info[1] is not None:
                text += "\n" + "".join(traceback.format_exception(record.exc_info[1])).rstrip()
            self._post(Note(record.levelno, record.name, text))
        except Exception:
            self.handleError(record)


def main(pipe: socket.socket) -> None:
    """The whole life of a worker process."""
    # Ctrl-C in a terminal reaches every process in it; whether to stop is the parent's decision.
    signal.signal(signal.SIGINT, signal.SIG_IGN)

    async def live() -> None:
        await Worker().live(pipe)

    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(live())
    os._exit(0)
