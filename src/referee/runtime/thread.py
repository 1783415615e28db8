"""The default place: one daemon thread with an event loop of its own (uvloop where there is one).

Nothing here can hang a trainer: the loop starts on first use and again in a forked child, a dead loop fails whoever
waits on it, and at interpreter exit the work is cancelled and written out within a bound.
"""

from __future__ import annotations

import asyncio
import atexit
import functools
import logging
import os
import threading
import weakref
from collections.abc import Callable
from typing import Any

from referee import clock
from referee.batch import Batch
from referee.config import Config
from referee.errors import RefereeError, TicketCancelled, WrongContext
from referee.records import Reason, Unscored
from referee.scorer import Scorer, build_scorer

log = logging.getLogger("referee.runtime")

START = 30.0
"""Seconds the loop may take to come up."""
EXIT = 2.0
"""Seconds given to work in flight when the interpreter exits."""


class ThreadRuntime:
    """A Scorer on a background event loop."""

    def __init__(self, config: Config, build: Callable[[Config], Scorer] = build_scorer) -> None:
        self._config = config
        self._build = build
        self._reset()
        _alive.add(self)

    def _reset(self) -> None:
        """As new. Also in a forked child, where the parent's thread does not exist and its locks may be held."""
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._scorer: Scorer | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._closed = False

    def submit(self, batch: Batch) -> None:
        """Start judging in the background."""
        loop, scorer = self._start()
        loop.call_soon_threadsafe(self._run, scorer, batch, clock.monotonic())

    def cancel(self, batch: Batch) -> None:
        """Stop judging a batch."""
        loop, scorer = self._loop, self._scorer
        if loop is not None and scorer is not None and not self._closed:
            loop.call_soon_threadsafe(
                scorer.stop, batch, Unscored(reason=Reason.CANCELLED, detail="cancelled by the caller")
            )

    def trouble(self, blocking: bool) -> str:
        """Why a batch submitted here cannot finish."""
        if blocking and self._thread is threading.current_thread():
            raise WrongContext(
                "a blocking call from referee's own event loop would wait for itself. Use `await ticket` or "
                "`await referee.ascore(...)` there."
            )
        if self._closed:
            return "The Referee was closed."
        if self._thread is not None and not self._thread.is_alive():
            return "The judging thread has died; see the log."
        return ""

    def record(self, line: Any) -> None:
        """Add a line to the ledger, from any thread."""
        loop, scorer = self._loop, self._scorer
        if loop is not None and scorer is not None and not self._closed:
            loop.call_soon_threadsafe(scorer.recorder.write, line)

    def metrics(self) -> dict[str, float]:
        """Counts so far; zeros before the first batch."""
        scorer = self._scorer
        return {} if scorer is None else scorer.metrics()

    def close(self, seconds: float = EXIT) -> None:
        """Cancel what is in flight, write everything out, end the thread."""
        if self._pid != os.getpid():
            return
        with self._lock:
            thread, loop = self._thread, self._loop
            if self._closed or thread is None or loop is None:
                self._closed = True
                return
            self._closed = True
        if thread is threading.current_thread():
            loop.call_soon(loop.stop)
            return
        if thread.is_alive() and not loop.is_closed():
            try:
                loop.call_soon_threadsafe(loop.stop)
            except RuntimeError:
                return
            thread.join(seconds)
            if seconds and thread.is_alive():
                log.warning("judging did not stop within %g s; it ends with the process", seconds)

    def _start(self) -> tuple[asyncio.AbstractEventLoop, Scorer]:
        if self._pid != os.getpid():
            self._reset()
        with self._lock:
            if self._closed:
                raise WrongContext("this Referee is closed; make a new one.")
            if self._thread is not None and not self._thread.is_alive():
                log.error("the judging thread died; starting another")
                self._thread = self._loop = self._scorer = None
            if self._loop is None or self._scorer is None:
                self._launch()
            assert self._loop is not None
            assert self._scorer is not None
            return self._loop, self._scorer

    def _launch(self) -> None:
        ready = threading.Event()
        failure: list[BaseException] = []
        loop = new_loop()
        thread = threading.Thread(target=self._live, args=(loop, ready, failure), name="referee", daemon=True)
        thread.start()
        if not ready.wait(START):
            raise RefereeError(f"the judging thread did not start within {START:g} s; the machine may be overloaded.")
        if failure:
            thread.join(1.0)
            raise failure[0]
        self._thread, self._loop = thread, loop

    def _live(self, loop: asyncio.AbstractEventLoop, ready: threading.Event, failure: list[BaseException]) -> None:
        asyncio.set_event_loop(loop)

        async def begin() -> Scorer:
            return self._build(self._config)

        try:
            scorer = self._scorer = loop.run_until_complete(begin())
        except BaseException as error:
            failure.append(error)
            loop.close()
            return
        finally:
            ready.set()
        try:
            loop.run_forever()
        finally:
            loop.run_until_complete(self._end(scorer))
            loop.close()

    async def _end(self, scorer: Scorer) -> None:
        await scorer.close()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _run(self, scorer: Scorer, batch: Batch, submitted: float) -> None:
        batch.late = clock.monotonic() - submitted
        task = asyncio.get_running_loop().create_task(scorer.run(batch))
        self._tasks.add(task)
        task.add_done_callback(functools.partial(self._finished, batch))

    def _finished(self, batch: Batch, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            log.error("judging a batch failed unexpectedly", exc_info=task.exception())
        batch.fail(TicketCancelled("Judging this batch failed unexpectedly; see the log."))


def new_loop() -> asyncio.AbstractEventLoop:
    """An event loop for our own thread; the caller's loop policy is left alone."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


_alive: weakref.WeakSet[ThreadRuntime] = weakref.WeakSet()


def _close_all() -> None:
    for runtime in list(_alive):
        runtime.close(EXIT)


def _after_fork() -> None:
    for runtime in list(_alive):
        runtime._reset()


atexit.register(_close_all)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
