"""Time. The only module that reads a clock or sleeps; everything else takes `now` as an argument or asks here.

Waits use the monotonic clock of the running event loop, so a virtual loop (`referee.sim.virtual`) makes an hour
pass in milliseconds. Wall time is for records, never for waiting.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable


def now() -> float:
    """Seconds on the running event loop's clock. Only inside a loop."""
    return asyncio.get_running_loop().time()


def running() -> Callable[[], float]:
    """`now` of the running loop, for what lives on one loop and asks often: finding the loop takes a system call."""
    return asyncio.get_running_loop().time


def monotonic() -> float:
    """Seconds on the process's monotonic clock, for code that runs outside a loop."""
    return time.monotonic()


def wall() -> float:
    """Seconds since the epoch, for records and for dates in server headers."""
    return time.time()


def cpu() -> float:
    """Processor seconds this process has used."""
    return time.process_time()


async def sleep(seconds: float) -> None:
    """Let others run for `seconds` of the loop's clock."""
    await asyncio.sleep(max(0.0, seconds))


async def breathe() -> None:
    """Give the loop one turn, so that a long planning loop does not starve replies that have arrived."""
    await asyncio.sleep(0)


def pause(seconds: float) -> None:
    """Block this thread. For threads of our own and the command line, never on a loop."""
    time.sleep(seconds)


def at(loop: asyncio.AbstractEventLoop, when: float, call: Callable[[], object]) -> asyncio.TimerHandle:
    """Run `call` when the loop's clock reaches `when`."""
    return loop.call_at(when, call)
