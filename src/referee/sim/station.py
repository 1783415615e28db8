"""A service station: slots whose number changes over time, and a FIFO queue. No requests, no replies."""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections import deque

from referee import clock
from referee.sim.spec import ProviderSpec


class Station:
    """Times are in provider seconds; `origin` is the loop time of second 0."""

    def __init__(self, spec: ProviderSpec) -> None:
        self._initial = spec.capacity
        self._starts = [at for at, _ in spec.schedule]
        self._limits = [limit for _, limit in spec.schedule]
        self._scale = spec.time_scale
        self._queue: deque[asyncio.Future[None]] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self.origin = 0.0
        self.busy = 0
        self.max_busy = 0
        self.max_queued = 0

    @property
    def queued(self) -> int:
        """Requests waiting for a slot."""
        return len(self._queue)

    def capacity(self, at: float) -> int | None:
        """Slots at `at`; None without limit."""
        index = bisect_right(self._starts, at)
        return self._limits[index - 1] if index else self._initial

    def free(self, at: float) -> bool:
        """True if a slot is free and the queue is empty."""
        limit = self.capacity(at)
        return limit is None or (self.busy < limit and not self._queue)

    def enter(self) -> None:
        """Take a slot, even above capacity."""
        self.busy += 1
        if self.busy > self.max_busy:
            self.max_busy = self.busy

    async def wait(self, at: float) -> None:
        """Take a slot once one is free, in FIFO order."""
        if self.free(at):
            self.enter()
            return
        slot: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._queue.append(slot)
        self.max_queued = max(self.max_queued, len(self._queue))
        self._schedule(at)
        try:
            await slot
        except asyncio.CancelledError:
            if not slot.cancelled():  # granted in the same iteration of the loop
                self.leave()
            elif slot in self._queue:
                self._queue.remove(slot)
            raise

    def leave(self) -> None:
        """Release a slot."""
        self.busy -= 1
        if self._queue:
            self._advance((clock.now() - self.origin) * self._scale)

    def _advance(self, at: float) -> None:
        """Admit as many from the queue as fit at `at`."""
        limit = self.capacity(at)
        while self._queue and (limit is None or self.busy < limit):
            slot = self._queue.popleft()
            if not slot.cancelled():
                self.enter()
                slot.set_result(None)
        self._schedule(at)

    def _schedule(self, at: float) -> None:
        """With a queue, set a timer for the next change of capacity."""
        index = bisect_right(self._starts, at)
        if self._timer is None and self._queue and index < len(self._starts):
            due = self._starts[index]
            when = self.origin + due / self._scale
            self._timer = clock.at(asyncio.get_running_loop(), when, lambda: self._on_change(due))

    def _on_change(self, due: float) -> None:
        self._timer = None
        # Not read from the clock: rounding could put it just before the change, and the timer would fire for ever.
        self._advance(due)

    def __repr__(self) -> str:
        return f"Station({self.busy} busy, {len(self._queue)} queued)"
