"""The only module that reads a clock or sleeps; other code takes `now` as an argument or calls this.

Waits use the clock of the running event loop, so that `referee.sim.virtual` can replace it. Wall time is for records,
never for waiting.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

T = TypeVar("T")


def now() -> float:
    """Seconds on the running event loop's clock."""
    return asyncio.get_running_loop().time()


def running() -> Callable[[], float]:
    """`now` bound to the running loop, for hot paths: finding the loop takes a system call."""
    return asyncio.get_running_loop().time


def monotonic() -> float:
    """Seconds on the monotonic clock, for code outside a loop."""
    return time.monotonic()


def wall() -> float:
    """Seconds since the epoch, for records and HTTP dates."""
    return time.time()


def cpu() -> float:
    """CPU seconds of this process."""
    return time.process_time()


async def sleep(seconds: float) -> None:
    """`asyncio.sleep`; negative counts as 0."""
    await asyncio.sleep(max(0.0, seconds))


async def within(waited: Awaitable[T], seconds: float | None) -> T:
    """What is waited for, or TimeoutError. `asyncio.wait_for` of Python 3.11 loses a cancellation that comes in the
    same turn of the loop as the result, and the task then runs on."""
    async with asyncio.timeout(seconds):
        return await waited


async def breathe() -> None:
    """Yield to the loop once, so that a long computation does not starve replies that have arrived."""
    await asyncio.sleep(0)


def pause(seconds: float) -> None:
    """Block this thread. For our own threads and the command line, never on a loop."""
    time.sleep(seconds)


def at(loop: asyncio.AbstractEventLoop, when: float, call: Callable[[], object]) -> asyncio.TimerHandle:
    """Run `call` when the loop's clock reaches `when`."""
    return loop.call_at(when, call)
