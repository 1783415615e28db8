"""Sleeping with microsecond precision, on Linux. Event loop timers have a resolution of milliseconds: with time scaled
down 50 times, replies would come in bursts, twenty times per provider second.

One kernel timer (timerfd) that the loop watches like a socket.
"""

from __future__ import annotations

import asyncio
import ctypes
import heapq
import itertools
import os

from referee import clock

_CLOCK_MONOTONIC, _TFD_TIMER_ABSTIME = 1, 1


class _Itimerspec(ctypes.Structure):
    _fields_ = (
        ("interval_s", ctypes.c_long),
        ("interval_ns", ctypes.c_long),
        ("value_s", ctypes.c_long),
        ("value_ns", ctypes.c_long),
    )


class PreciseClock:
    """`sleep` for one event loop, on which it must be created."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._timer = self._libc.timerfd_create(_CLOCK_MONOTONIC, os.O_NONBLOCK | os.O_CLOEXEC)
        if self._timer < 0:
            raise OSError(ctypes.get_errno(), "no timer")
        self._spec = _Itimerspec()
        self._spec_pointer = ctypes.byref(self._spec)
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []
        self._numbers = itertools.count()
        self._loop.add_reader(self._timer, self._wake_due)

    async def sleep(self, seconds: float) -> None:
        """Like `asyncio.sleep`."""
        when, future = clock.monotonic() + seconds, self._loop.create_future()
        heapq.heappush(self._sleepers, (when, next(self._numbers), future))
        if self._sleepers[0][2] is future:
            self._arm(when)
        await future

    def close(self) -> None:
        """Close the timer. Pending sleeps never end."""
        self._loop.remove_reader(self._timer)
        os.close(self._timer)

    def _arm(self, when: float) -> None:
        """Set the timer, which also discards an expiration not yet read. 0 disarms it."""
        self._spec.value_s, self._spec.value_ns = int(when), int(when % 1 * 1e9)
        self._libc.timerfd_settime(self._timer, _TFD_TIMER_ABSTIME, self._spec_pointer, None)

    def _wake_due(self) -> None:
        now = clock.monotonic()
        while self._sleepers and self._sleepers[0][0] <= now:
            future = heapq.heappop(self._sleepers)[2]
            if not future.done():
                future.set_result(None)
        self._arm(self._sleepers[0][0] if self._sleepers else 0.0)
