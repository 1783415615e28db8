"""Who is being served: capacity, its changes over time, and the queue in front of it. No requests, no replies."""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections import deque

from referee import clock
from referee.sim.spec import ProviderSpec


class Station:
    """Slots of a provider. Times are in the provider's seconds; `origin` is the loop's time at second 0."""

    def __init__(self, spec: ProviderSpec) -> None:
        self._first = spec.capacity
        self._starts = [at for at, _ in spec.schedule]
        self._limits = [limit for _, limit in spec.schedule]
        self._scale = spec.time_scale
        self._queue: deque[asyncio.Future[None]] = deque()
        self._alarm: asyncio.TimerHandle | None = None
        self.origin = 0.0
        self.busy = 0
        self.max_busy = 0
        self.max_queued = 0

    @property
    def queued(self) -> int:
        """Requests waiting for a slot."""
        return len(self._queue)

    def capacity(self, at: float) -> int | None:
        """Slots at second `at`; None without limit."""
        index = bisect_right(self._starts, at)
        return self._limits[index - 1] if index else self._first

    def free(self, at: float) -> bool:
        """True if one more fits now, and nobody waits for it."""
        limit = self.capacity(at)
        return limit is None or (self.busy < limit and not self._queue)

    def enter(self) -> None:
        """Take a slot. Going above capacity is the caller's choice."""
        self.busy += 1
        if self.busy > self.max_busy:
            self.max_busy = self.busy

    async def wait(self, at: float) -> None:
        """Take a slot when one is free, first come, first served."""
        if self.free(at):
            self.enter()
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._queue.append(turn)
        self.max_queued = max(self.max_queued, len(self._queue))
        self._watch(at)
        try:
            await turn
        except asyncio.CancelledError:
            if not turn.cancelled():  # the slot was given in the same turn of the loop
                self.leave()
            elif turn in self._queue:
                self._queue.remove(turn)
            raise

    def leave(self) -> None:
        """Give a slot back."""
        self.busy -= 1
        if self._queue:
            self._advance((clock.now() - self.origin) * self._scale)

    def _advance(self, at: float) -> None:
        """Let in as many of the queue as fit at second `at`."""
        limit = self.capacity(at)
        while self._queue and (limit is None or self.busy < limit):
            turn = self._queue.popleft()
            if not turn.cancelled():
                self.enter()
                turn.set_result(None)
        self._watch(at)

    def _watch(self, at: float) -> None:
        """While somebody waits, look again at the next change of capacity."""
        index = bisect_right(self._starts, at)
        if self._alarm is None and self._queue and index < len(self._starts):
            due = self._starts[index]
            when = self.origin + due / self._scale
            self._alarm = clock.at(asyncio.get_running_loop(), when, lambda: self._ring(due))

    def _ring(self, due: float) -> None:
        self._alarm = None
        # Not computed from the clock: rounding could put it just before the change, and the alarm would ring for ever.
        self._advance(due)

    def __repr__(self) -> str:
        return f"Station({self.busy} busy, {len(self._queue)} queued)"
