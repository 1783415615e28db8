"""A claim on the rewards of one submitted batch: wait for it, await it, iterate it, or cancel it."""

from __future__ import annotations

import asyncio
import functools
import logging
import os
import threading
from collections.abc import AsyncIterator, Callable, Generator, Iterator, Sequence
from typing import Any

from referee import clock
from referee.errors import RefereeError, RewardHacked, TicketCancelled, TicketTimeout, UnscoredError, WrongContext
from referee.html import progress_html
from referee.records import Reward

log = logging.getLogger("referee")

LOG_EVERY_S = 10.0
"""Interval of progress lines in the log (INFO) while a caller waits."""
LIVENESS_POLL_S = 1.0
"""Interval of checks that the worker is still alive. Rewards wake waiters at once."""


class Ticket:
    """Future rewards. Thread-safe; results can be read more than once."""

    def __init__(self, count: int, trouble: Callable[[bool], str], cancel: Callable[[], None]) -> None:
        """`trouble(blocking)` says why the work cannot finish, or ""; it raises where blocking would deadlock."""
        self._pid = os.getpid()
        self._count = count
        self._trouble = trouble
        self._cancel = cancel
        self._changed = threading.Condition()
        self._rewards: list[Reward | None] = [None] * count
        self._landed: list[Reward] = []
        self._error: RefereeError | None = None
        self._done = count == 0
        self._wakers: list[Callable[[], None]] = []
        self._last_wakers: list[Callable[[], None]] = []
        self._iterating = 0
        """Threads that wait for any reward. Those that wait for all are notified once, with the last: waking costs.
        Likewise for event loops: `_wakers` are called with the next rewards, `_last_wakers` with the last."""
        self.waited_s = 0.0
        """Seconds callers have blocked in `result` or iteration so far."""
        self.finished = 0.0
        """Wall time at which the last reward became final."""
        self.count_settled: Callable[[], int] | None = None
        self.on_collect: Callable[[Ticket, list[Reward]], None] | None = None
        self.on_rewards: Callable[[Sequence[Reward]], None] | None = None
        self.on_done: Callable[[list[Reward]], None] | None = None
        """Called once with all rewards, from the runtime's thread, before waiters are woken. Must return at once."""
        self.hacked: Callable[[], RewardHacked | None] | None = None
        """The error to raise instead of handing rewards out, if the audit says so."""
        self.weight = 1.0
        """The audit's factor on the judges' part of these rewards, for callers that compute their own."""

    def __len__(self) -> int:
        return self._count

    def done(self) -> bool:
        """True when every reward is there (or the batch has failed)."""
        return self._done

    def landed(self) -> int:
        """How many rewards are final."""
        return len(self._landed)

    def settled(self) -> int:
        """How many samples are judged, or known to get no verdict. Rewards become final by whole groups, later."""
        count = self.count_settled
        return len(self._landed) if count is None else count()

    def cancel(self) -> None:
        """Stop judging. What is already judged stays cached; the rest becomes unscored (cancelled)."""
        if not self._done:
            self._cancel()

    def result(self, timeout: float | None = None) -> list[Reward]:
        """The rewards in the order of submission. Blocks for at most `timeout` seconds, then raises TicketTimeout.

        Without a timeout it blocks until the batch's own deadline, by which every sample is scored or unscored.
        """
        until = None if timeout is None else clock.monotonic() + timeout
        self._wait(None, until, timeout)
        return self._collect()

    def __await__(self) -> Generator[Any, None, list[Reward]]:
        return self._wait_async().__await__()

    def __iter__(self) -> Iterator[Reward]:
        """Rewards as they become final, in landing order. Raises what `result` would, at the end."""
        seen = 0
        while True:
            self._wait(seen)
            while seen < len(self._landed):
                yield self._landed[seen]
                seen += 1
            if self._done and seen == len(self._landed):
                self._collect()
                return

    async def __aiter__(self) -> AsyncIterator[Reward]:
        """Rewards as they become final, without blocking the caller's loop."""
        seen = 0
        while True:
            await self._changes(seen)
            while seen < len(self._landed):
                yield self._landed[seen]
                seen += 1
            if self._done and seen == len(self._landed):
                self._collect()
                return

    def rewarded(self, rewards: Sequence[Reward]) -> None:
        """Record the rewards the trainer was given for samples submitted with shaped=False."""
        if self.on_rewards is not None:
            self.on_rewards(rewards)

    def deliver(self, rewards: list[Reward], error: RefereeError | None, done: bool) -> None:
        """Called from the runtime's thread as rewards become final."""
        with self._changed:
            for reward in rewards:
                self._rewards[reward.index] = reward
            self._landed += rewards
            if done:
                self._hand_on()
                self._error, self._done, self.finished = error, True, clock.wall()
                self._cancel, self.count_settled = _nothing, None  # break the reference cycle with the batch
            if done or self._iterating:
                self._changed.notify_all()
            wakers, self._wakers = self._wakers, []
            if done:
                wakers += self._last_wakers
                self._last_wakers = []
        for wake in wakers:
            wake()

    def _hand_on(self) -> None:
        """All rewards to the one that watches, before a caller has them: what it finds may be about these."""
        call, self.on_done = self.on_done, None
        if call is not None:
            try:
                call([reward for reward in self._rewards if reward is not None])
            except Exception:  # rewards must not be withheld
                log.exception("a batch could not be handed to the audit")

    async def _wait_async(self) -> list[Reward]:
        await self._changes(None)
        return self._collect()

    def _ready(self, seen: int | None) -> bool:
        """Done, or more rewards than the `seen` ones are final."""
        return self._done or (seen is not None and len(self._landed) > seen)

    async def _changes(self, seen: int | None) -> None:
        loop = asyncio.get_running_loop()
        self._check(blocking=False)
        started = logged = clock.monotonic()
        while not self._ready(seen):
            woken: asyncio.Future[None] = loop.create_future()
            wake = functools.partial(_wake, loop, woken)
            with self._changed:
                if self._ready(seen):
                    break
                (self._last_wakers if seen is None else self._wakers).append(wake)
            try:
                await clock.within(woken, LIVENESS_POLL_S)
            except TimeoutError:
                self._check(blocking=False)
            finally:
                with self._changed:
                    for waiting in (self._wakers, self._last_wakers):
                        if wake in waiting:
                            waiting.remove(wake)
            logged = self._log_progress(logged)
        self.waited_s += clock.monotonic() - started

    def _wait(self, seen: int | None, until: float | None = None, timeout: float | None = None) -> None:
        if self._done:
            return
        self._check(blocking=True)  # before the lock, which a forked child may inherit locked
        started = logged = clock.monotonic()
        try:
            while not self._ready(seen):
                self._check(blocking=True)
                left = LIVENESS_POLL_S if until is None else min(LIVENESS_POLL_S, until - clock.monotonic())
                if left <= 0:
                    raise TicketTimeout(
                        f"{len(self._landed)} of {self._count} rewards are final after {timeout:g} s; the rest is "
                        "still being judged. Ask again, raise the timeout, or cancel()."
                    )
                with self._changed:
                    if not self._ready(seen):
                        self._iterating += seen is not None
                        try:
                            self._changed.wait(left)
                        finally:
                            self._iterating -= seen is not None
                logged = self._log_progress(logged)  # outside the lock: a slow log must not delay rewards
        finally:
            self.waited_s += clock.monotonic() - started

    def _log_progress(self, logged: float) -> float:
        """Log progress if due. Returns the time of the latest line."""
        now = clock.monotonic()
        if now - logged < LOG_EVERY_S or self._done:
            return logged
        landed = len(self._landed)
        log.info("%d %% complete: %d of %d rewards are final", 100 * landed // self._count, landed, self._count)
        return now

    def _check(self, blocking: bool) -> None:
        """Raise if the work cannot finish."""
        if self._done:
            return
        if os.getpid() != self._pid:
            trouble = "This process was forked after the batch was submitted; submit it again here."
        else:
            trouble = self._trouble(blocking)
        if trouble and not self._done:  # the last reward may have landed meanwhile
            raise TicketCancelled(f"{trouble} {len(self._landed)} of {self._count} rewards were final.")

    def _collect(self) -> list[Reward]:
        rewards = [reward for reward in self._rewards if reward is not None]
        if self.on_collect is not None:
            collect, self.on_collect = self.on_collect, None
            collect(self, rewards)
        if self._error is not None:
            if isinstance(self._error, UnscoredError) or hasattr(self._error, "rewards"):
                self._error.rewards = list(self._rewards)
            raise self._error
        hacked = self.hacked() if self.hacked is not None else None
        if hacked is not None:
            hacked.rewards = rewards
            raise hacked
        return rewards

    def __reduce__(self) -> Any:
        raise WrongContext("a Ticket belongs to the process that submitted it and does not pickle; send its rewards.")

    def __repr__(self) -> str:
        return f"Ticket({len(self._landed)}/{self._count} final{', done' if self._done else ''})"

    def _repr_html_(self) -> str:
        """In notebooks: how far it is."""
        return progress_html(self.settled(), self._count, repr(self))


def _nothing() -> None:
    return None


def _wake(loop: asyncio.AbstractEventLoop, future: asyncio.Future[None]) -> None:
    def settle() -> None:
        if not future.done():
            future.set_result(None)

    # The waiting loop may be closed by now, and its waiters gone with it.
    if not loop.is_closed():
        try:
            loop.call_soon_threadsafe(settle)
        except RuntimeError:
            return
