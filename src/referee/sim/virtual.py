"""An event loop in virtual time: an hour of sleeping passes in milliseconds.

When nothing is ready the clock jumps to the next timer. It stops while a job runs in the loop's executor, which takes
real time. Other threads may wake the loop with `call_soon_threadsafe`, but timers do not wait for them. Real sockets do
not belong on this loop.
"""

from __future__ import annotations

import asyncio
import math
import selectors
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor
from typing import Any, TypeVar, TypeVarTuple, Unpack

T = TypeVar("T")
Args = TypeVarTuple("Args")

Events = list[tuple[selectors.SelectorKey, int]]

THREAD_TIMEOUT_S = 10.0
"""Real seconds in which a thread must wake an idle loop before that counts as a deadlock."""


class Deadlock(RuntimeError):
    """Tasks wait, but no timer is set and no thread wakes the loop."""


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop whose clock starts at 0 and jumps from timer to timer."""

    _scheduled: list[asyncio.TimerHandle]
    _clock_resolution: float

    def __init__(self, thread_timeout: float = THREAD_TIMEOUT_S) -> None:
        self._virtual_now = 0.0
        self._thread_timeout = thread_timeout
        self._jobs = 0
        super().__init__(_Selector(self._idle))
        self._clock_resolution = math.ulp(0.0)

    def time(self) -> float:
        """Virtual seconds since the loop was created."""
        return self._virtual_now

    def run_in_executor(
        self, executor: Executor | None, func: Callable[[Unpack[Args]], T], *args: *Args
    ) -> asyncio.Future[T]:
        """As in asyncio; the clock stops until the job has ended."""
        future = super().run_in_executor(executor, func, *args)
        self._jobs += 1
        future.add_done_callback(self._job_ended)
        return future

    async def shutdown_default_executor(self, timeout: float | None = None) -> None:
        """As in asyncio, but without `timeout`: in virtual time it would expire before any thread could end."""
        self._jobs += 1
        try:
            await super().shutdown_default_executor()
        finally:
            self._jobs -= 1

    def _job_ended(self, _: asyncio.Future[Any]) -> None:
        self._jobs -= 1

    def _idle(self, timeout: float | None, wait: Callable[[float], Events]) -> Events:
        """Nothing is ready. `timeout` is the time to the next timer, None without one."""
        if timeout is not None and not self._jobs:
            # Exactly the timer's own time, and a resolution of its last bit: a sum that falls short by rounding would
            # skip the timer or fire it early, and either can spin for ever.
            self._virtual_now = self._scheduled[0].when()
            self._clock_resolution = math.ulp(self._virtual_now)
            return []
        if self._jobs or threading.active_count() > 1:
            events = wait(self._thread_timeout)
            if events:
                return events
        raise Deadlock(self._describe_deadlock())

    def _describe_deadlock(self) -> str:
        waiting = sorted(getattr(task.get_coro(), "__qualname__", "?") for task in asyncio.all_tasks(self))
        cause = f"{self._jobs} executor job(s) did not end" if self._jobs else "no timer is set and nothing is ready"
        return f"deadlock at virtual second {self._virtual_now:g}: {cause}; waiting: {', '.join(waiting) or 'no task'}"


class _Selector(selectors.DefaultSelector):
    """Calls `idle` where the plain selector would block."""

    def __init__(self, idle: Callable[[float | None, Callable[[float], Events]], Events]) -> None:
        super().__init__()
        self._idle = idle

    def select(self, timeout: float | None = None) -> Events:
        events = super().select(0)
        if events or (timeout is not None and timeout <= 0):
            return events
        return self._idle(timeout, super().select)


def run_virtual(main: Coroutine[Any, Any, T], thread_timeout: float = THREAD_TIMEOUT_S) -> T:
    """Run `main` in virtual time and return its result. Remaining tasks are cancelled and the loop is closed."""
    with asyncio.Runner(loop_factory=lambda: VirtualLoop(thread_timeout)) as runner:
        return runner.run(main)
