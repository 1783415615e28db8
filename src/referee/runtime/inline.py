"""Plainly synchronous, for debugging: one judge call after another, all of it inside `submit`."""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
import weakref
from collections.abc import Coroutine
from typing import Any

from msgspec.structs import replace

from referee import clock
from referee.config import Config
from referee.errors import TicketCancelled, WrongContext
from referee.ledger import Tally
from referee.scoring.batch import Batch
from referee.scoring.build import build_worker
from referee.scoring.local import BuildWorker, Scorer


class InlineRuntime:
    """A Scorer on a loop that runs only while the caller waits."""

    def __init__(self, config: Config, build: BuildWorker = build_worker) -> None:
        self._config = replace(config, limits=replace(config.limits, concurrency=1))
        self._build = build
        self._closed = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._reset()
        _alive.add(self)

    def _reset(self) -> None:
        """As new. In a forked child the parent's loop is let go without touching what it shares with the parent."""
        if self._loop is not None:
            _detach(self._loop)
            _abandoned.append((self._loop, self._scorer))
        self._pid = os.getpid()
        self._lock = threading.RLock()
        self._loop = None
        self._scorer: Scorer | None = None

    def start(self) -> None:
        """Nothing to bring up: the first batch does."""

    def submit(self, batch: Batch) -> None:
        """Judge the whole batch, now."""

        async def judge() -> None:
            if self._scorer is None:
                self._scorer = Scorer(self._config, self._build)
            await self._scorer.run(batch)

        try:
            self._do(judge())
        except BaseException:
            self._clear()
            batch.fail(TicketCancelled("Judging was interrupted."))
            raise

    def cancel(self, batch: Batch) -> None:
        """Nothing to stop: a batch is finished when `submit` returns."""

    def trouble(self, blocking: bool) -> str:
        """Why a batch submitted here cannot finish."""
        return ""

    def record(self, line: Any) -> None:
        """Add a line to the ledger."""

        async def write() -> None:
            if self._scorer is not None:
                self._scorer.recorder.write(line)
                await clock.breathe()

        if self._scorer is not None and not self._closed:
            self._do(write())

    def metrics(self) -> dict[str, float]:
        """Counts so far; zeros before the first batch."""
        return {} if self._scorer is None else self._scorer.metrics()

    def tally(self) -> Tally | None:
        """What they are counted by; None before the first batch."""
        return None if self._scorer is None else self._scorer.recorder.tally

    def close(self, seconds: float = 2.0) -> None:
        """Write everything out."""
        if self._closed or self._pid != os.getpid():
            return
        if self._scorer is not None and self._loop is not None:
            self._do(self._scorer.aclose())
            self._loop.close()
        self._closed = True

    def _do(self, work: Coroutine[Any, Any, None]) -> None:
        """Run to the end on our loop: in this thread, or in a passing one where this thread's loop is busy running."""
        if self._pid != os.getpid():
            self._reset()
        if self._closed:
            work.close()
            raise WrongContext("this Referee is closed; make a new one.")
        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
            if not loop_is_running():
                self._loop.run_until_complete(work)
                return
            failure: list[BaseException] = []
            thread = threading.Thread(target=_drive, args=(self._loop, work, failure), name="referee-inline")
            thread.start()
            thread.join()
            if failure:
                raise failure[0]

    def _clear(self) -> None:
        """After an interruption nothing of the old work may go on: cancel it, close, and begin anew next time."""
        loop, scorer, self._loop, self._scorer = self._loop, self._scorer, None, None
        if loop is None or loop.is_closed() or loop.is_running():
            return
        for task in asyncio.all_tasks(loop):
            task.cancel()
        if scorer is not None:
            with contextlib.suppress(Exception):
                loop.run_until_complete(scorer.aclose())
        loop.close()


def loop_is_running() -> bool:
    """True if the calling thread is inside an event loop."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def _drive(loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, None], failure: list[BaseException]) -> None:
    try:
        loop.run_until_complete(work)
    except BaseException as error:
        failure.append(error)


_alive: weakref.WeakSet[InlineRuntime] = weakref.WeakSet()
_abandoned: list[Any] = []
"""What a forked child inherited. Collected, its sockets would unregister themselves from a poll set that the parent
still uses; so it is kept, and its poll descriptor is replaced."""


def _detach(loop: asyncio.AbstractEventLoop) -> None:
    selector = getattr(loop, "_selector", None)
    if selector is not None and hasattr(selector, "fileno"):
        null = os.open(os.devnull, os.O_RDWR)
        os.dup2(null, selector.fileno())
        os.close(null)


def _after_fork() -> None:
    for runtime in list(_alive):
        runtime._reset()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
