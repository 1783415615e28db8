"""An event loop in virtual time: sleeping costs nothing, an hour passes in milliseconds. No provider, no transport.

When nothing is ready the loop moves its clock to the next timer instead of waiting for it. The clock stands still
while a job runs in the loop's executor, because that job takes real time. Threads of your own may wake the loop
with `call_soon_threadsafe`, but timers do not wait for them. Real sockets do not belong on this loop.
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

PATIENCE = 10.0
"""Real seconds to wait for a thread to wake a loop that has nothing else to do, before calling it a deadlock."""


class Deadlock(RuntimeError):
    """Tasks wait, but no timer is set and nobody is left to wake the loop."""


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop whose clock starts at 0 and jumps from timer to timer."""

    _scheduled: list[asyncio.TimerHandle]
    _clock_resolution: float

    def __init__(self, patience: float = PATIENCE) -> None:
        self._virtual_now = 0.0
        self._patience = patience
        self._jobs = 0
        super().__init__(_Selector(self._idle))
        self._clock_resolution = math.ulp(0.0)

    def time(self) -> float:
        """Virtual seconds since the loop was made."""
        return self._virtual_now

    def run_in_executor(
        self, executor: Executor | None, func: Callable[[Unpack[Args]], T], *args: *Args
    ) -> asyncio.Future[T]:
        """As in asyncio; the clock stands still until the job has ended."""
        future = super().run_in_executor(executor, func, *args)
        self._jobs += 1
        future.add_done_callback(self._job_ended)
        return future

    async def shutdown_default_executor(self, timeout: float | None = None) -> None:
        """As in asyncio, but `timeout` is not used: in virtual time it would run out before any thread could end."""
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
            # Exactly the timer's own time, and a resolution of the last bit there: a sum that falls short by rounding
            # would leave the timer undone, or wake a task before its time, and either can spin for ever.
            self._virtual_now = self._scheduled[0].when()
            self._clock_resolution = math.ulp(self._virtual_now)
            return []
        if self._jobs or threading.active_count() > 1:
            events = wait(self._patience)
            if events:
                return events
        raise Deadlock(self._complaint())

    def _complaint(self) -> str:
        waiting = sorted(getattr(task.get_coro(), "__qualname__", "?") for task in asyncio.all_tasks(self))
        cause = f"{self._jobs} executor job(s) did not end" if self._jobs else "no timer is set and nothing is ready"
        return f"deadlock at virtual second {self._virtual_now:g}: {cause}; waiting: {', '.join(waiting) or 'no task'}"


class _Selector(selectors.DefaultSelector):
    """Asks `idle` what to do where the plain selector would wait."""

    def __init__(self, idle: Callable[[float | None, Callable[[float], Events]], Events]) -> None:
        super().__init__()
        self._idle = idle

    def select(self, timeout: float | None = None) -> Events:
        events = super().select(0)
        if events or (timeout is not None and timeout <= 0):
            return events
        return self._idle(timeout, super().select)


def run_virtual(main: Coroutine[Any, Any, T], patience: float = PATIENCE) -> T:
    """Run `main` in virtual time and return its result. Tasks left over are cancelled and the loop is closed."""
    with asyncio.Runner(loop_factory=lambda: VirtualLoop(patience)) as runner:
        return runner.run(main)
