"""A daemon thread with an event loop of its own (uvloop where installed), on which a tracker lives: the base of every
runtime but `inline`.

Nothing here can hang a trainer: the loop starts on first use and again in a forked child, waits on a dead loop fail,
and at interpreter exit the work is cancelled and written out within a bound.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import logging
import os
import threading
import weakref
from collections.abc import Callable
from typing import Any, ClassVar

from referee import clock
from referee.errors import RefereeError, WrongContext
from referee.ledger import Tally
from referee.records import Reason, Unscored
from referee.scoring.batch import Batch
from referee.scoring.tracker import BatchTracker

log = logging.getLogger("referee.runtime")

EXIT = 2.0
"""Seconds given to work in flight when the interpreter exits."""


class Background:
    """Starts and ends the thread, and passes calls to its tracker, which `_begin` makes and `_end` ends."""

    _who: ClassVar[str]
    """The thread, in messages."""
    _name: ClassVar[str]
    _patience = 30.0
    """Seconds it may take to come up."""
    _margin = 0.0
    """Seconds `close` waits beyond those that `_end` has."""

    def __init__(self) -> None:
        self._reset()
        _alive.add(self)

    def _reset(self) -> None:
        """As new. Also in a forked child, where the parent's thread does not exist and its locks may be held."""
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._closed = False
        self._seconds = EXIT
        self._tracker: BatchTracker | None = None

    async def _begin(self) -> None:
        """Make what lives on the loop, the tracker too. What this raises, the first batch raises."""
        raise NotImplementedError

    async def _end(self, seconds: float) -> None:
        """Give everything an end within about this long, and write it out."""
        raise NotImplementedError

    def _after_fork(self) -> None:
        self._reset()

    def start(self) -> None:
        """Bring the thread up now; else the first batch does."""
        self._start()

    def submit(self, batch: Batch) -> None:
        """Start judging in the background."""
        self._start().call_soon_threadsafe(self._take, batch, clock.monotonic())

    def cancel(self, batch: Batch) -> None:
        """Stop judging a batch."""
        tracker = self._tracker
        if tracker is not None:
            why = Unscored(reason=Reason.CANCELLED, detail="cancelled by the caller")
            self._on_loop(tracker.cancel, batch, why)

    def record(self, line: Any) -> None:
        """Add a line to the ledger, from any thread."""
        tracker = self._tracker
        if tracker is not None:
            self._on_loop(tracker.recorder.write, line)

    def metrics(self) -> dict[str, float]:
        """Counts so far; none before the first batch."""
        tracker = self._tracker
        return {} if tracker is None else tracker.metrics()

    def tally(self) -> Tally | None:
        """What they are counted by; None before the first batch."""
        tracker = self._tracker
        return None if tracker is None else tracker.recorder.tally

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
            return f"{self._who[0].upper()}{self._who[1:]} has died; see the log."
        return ""

    def close(self, seconds: float = EXIT) -> None:
        """Cancel what is in flight, write everything out, end the thread."""
        if self._pid != os.getpid():
            return
        with self._lock:
            if self._closed:
                return
            self._closed, self._seconds = True, seconds
            thread, loop = self._thread, self._loop
        if thread is None:
            return
        if thread is threading.current_thread():
            if loop is not None:
                loop.call_soon(loop.stop)
            return
        if loop is not None:
            with contextlib.suppress(RuntimeError):  # it is closed: the thread has ended by itself
                loop.call_soon_threadsafe(loop.stop)
        thread.join(seconds and seconds + self._margin)
        if seconds and thread.is_alive():
            log.warning("%s did not stop within %g s; it ends with the process", self._who, seconds)

    def _take(self, batch: Batch, submitted: float) -> None:
        """On the loop: a batch that was submitted then."""
        assert self._tracker is not None
        batch.late = clock.monotonic() - submitted
        self._tracker.submit(batch)

    def _on_loop(self, call: Callable[..., object], *args: object) -> None:
        """Run something on the loop, from any thread. Nothing happens where there is no loop, or none any more."""
        loop = None if self._closed else self._loop
        if loop is not None:
            with contextlib.suppress(RuntimeError):  # it has just been closed
                loop.call_soon_threadsafe(call, *args)

    def _retire(self) -> None:
        """On the loop: it ends, and the next batch begins another."""
        self._loop = None
        asyncio.get_running_loop().stop()

    def _start(self) -> asyncio.AbstractEventLoop:
        """The loop, started if it is not there, or not any more."""
        if self._pid != os.getpid():
            self._reset()
        with self._lock:
            if self._closed:
                raise WrongContext("this Referee is closed; make a new one.")
            if self._thread is not None and self._loop is None:
                self._thread.join(self._seconds + self._margin)  # it writes out what it has
                self._thread = None
            if self._thread is not None and not self._thread.is_alive():
                log.error("%s died; starting another", self._who)
                self._thread = self._loop = None
            return self._loop or self._launch()

    def _launch(self) -> asyncio.AbstractEventLoop:
        ready = threading.Event()
        failure: list[BaseException] = []
        loop = new_loop()
        thread = threading.Thread(target=self._live, args=(loop, ready, failure), name=self._name, daemon=True)
        thread.start()
        if not ready.wait(self._patience):
            raise RefereeError(f"{self._who} did not start within {self._patience:g} s; the machine may be overloaded.")
        if failure:
            thread.join(1.0)
            raise failure[0]
        self._thread, self._loop = thread, loop
        return loop

    def _live(self, loop: asyncio.AbstractEventLoop, ready: threading.Event, failure: list[BaseException]) -> None:
        asyncio.set_event_loop(loop)
        try:
            loop.run_until_complete(self._begin())
        except BaseException as error:
            failure.append(error)
            loop.close()
            return
        finally:
            ready.set()
        try:
            loop.run_forever()
        finally:
            loop.run_until_complete(self._end(self._seconds))
            loop.close()


def new_loop() -> asyncio.AbstractEventLoop:
    """An event loop for our own thread; the caller's loop policy is left alone."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


_alive: weakref.WeakSet[Background] = weakref.WeakSet()


def close_all() -> None:
    """The interpreter exits."""
    for runtime in list(_alive):
        runtime.close(EXIT)


def _after_fork() -> None:
    for runtime in list(_alive):
        runtime._after_fork()


atexit.register(close_all)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
