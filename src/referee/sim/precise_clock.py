"""Sleeping to a few microseconds. Event loops count in milliseconds: where time runs 50 times as fast, that is a
provider which answers twenty times a second, whoever is ready all at once.

Linux only: one timer of the kernel's (timerfd) that the loop watches like a socket.
"""

from __future__ import annotations

import asyncio
import ctypes
import heapq
import itertools
import os

from referee import clock

_MONOTONIC, _ABSOLUTE = 1, 1
"""From the kernel's headers: which clock, and that a time on it is meant."""


class _Spec(ctypes.Structure):
    """struct itimerspec: how often after the first time (never), and when."""

    _fields_ = (
        ("every_s", ctypes.c_long),
        ("every_ns", ctypes.c_long),
        ("at_s", ctypes.c_long),
        ("at_ns", ctypes.c_long),
    )


class PreciseClock:
    """`sleep` for one event loop, made inside it."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._timer = self._libc.timerfd_create(_MONOTONIC, os.O_NONBLOCK | os.O_CLOEXEC)
        if self._timer < 0:
            raise OSError(ctypes.get_errno(), "no timer")
        self._spec = _Spec()
        self._where = ctypes.byref(self._spec)
        self._due: list[tuple[float, int, asyncio.Future[None]]] = []
        self._numbers = itertools.count()
        self._loop.add_reader(self._timer, self._ring)

    async def sleep(self, seconds: float) -> None:
        """Let others run for so long."""
        when, future = clock.monotonic() + seconds, self._loop.create_future()
        heapq.heappush(self._due, (when, next(self._numbers), future))
        if self._due[0][2] is future:
            self._set(when)
        await future

    def close(self) -> None:
        """Give the timer back. Whoever still sleeps is not woken."""
        self._loop.remove_reader(self._timer)
        os.close(self._timer)

    def _set(self, when: float) -> None:
        """Ring then, and not before: a ring that nobody has heard yet is taken back. 0: not at all."""
        self._spec.at_s, self._spec.at_ns = int(when), int(when % 1 * 1e9)
        self._libc.timerfd_settime(self._timer, _ABSOLUTE, self._where, None)

    def _ring(self) -> None:
        now = clock.monotonic()
        while self._due and self._due[0][0] <= now:
            future = heapq.heappop(self._due)[2]
            if not future.done():
                future.set_result(None)
        self._set(self._due[0][0] if self._due else 0.0)
