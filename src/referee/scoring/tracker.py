"""The client half of scoring: batches from submission to their last reward, wherever the workers are.

Every sample lands once, whatever is sent twice. Shaping, the missing policy, the watch on unscored samples and the
ledger are here, because they need the whole batch. Where the workers are, and how samples and results travel, is for
subclasses: `scoring.local` (this process) and `runtime.client` (other processes).
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Iterable, Sequence

from referee import clock
from referee.config import Config
from referee.engine.identity import Change, ModelIdentity
from referee.errors import RefereeError
from referee.records import Reason, Reward, Settled, Unscored, Verdict
from referee.scoring.batch import Batch
from referee.scoring.messages import Fault, Result, Update
from referee.scoring.recorder import Recorder, change_line
from referee.shaping import UnscoredWatch, whole

log = logging.getLogger("referee")

SAMPLE_EVERY, SAMPLE_SELDOM, HOURS = 1.0, 60.0, 3600.0
"""Seconds between two records of the load on endpoints, while there is work: seldom where a deadline beyond HOURS says
that answers take as long."""


class OpenBatch:
    """One batch that is not done."""

    __slots__ = ("batch", "deadline", "finished", "stopping", "ticket")

    def __init__(self, batch: Batch, ticket: int, deadline: float) -> None:
        self.batch = batch
        self.ticket = ticket
        self.deadline = deadline
        """On the loop's clock."""
        self.stopping: Unscored | None = None
        """Why nothing more of it is to be asked."""
        self.finished: asyncio.Future[None] | None = None
        """For a caller on this loop that waits for it."""

    @property
    def over(self) -> bool:
        """Nothing more of it is to be sent."""
        return self.stopping is not None or self.batch.done


class BatchTracker:
    """Keeps account of batches. All of it runs on one loop. Subclasses say where judging happens."""

    def __init__(self, config: Config, recorder: Recorder) -> None:
        self.recorder = recorder
        self._config = config
        self._open: dict[int, OpenBatch] = {}
        self._tickets: dict[Batch, int] = {}
        self._next = 0
        self._watches: dict[str, UnscoredWatch] = {}
        """By team: what one cannot have scored must not end batches of another."""
        self._sampler: asyncio.TimerHandle | None = None
        self._began = clock.wall()
        self._changes: set[tuple[str, ModelIdentity, ModelIdentity]] = set()

    def _begin(self, opened: OpenBatch) -> None:
        """Have workers judge a batch's samples, by its deadline. Results come back through `landed`."""
        raise NotImplementedError

    def _recall(self, opened: OpenBatch, why: Unscored) -> None:
        """Have workers ask nothing more of a batch: its samples land as unscored, soon."""
        raise NotImplementedError

    def _forget(self, opened: OpenBatch) -> None:
        """A batch is done."""
        raise NotImplementedError

    def state(self) -> Update:
        """The load on each endpoint now, by all workers together."""
        raise NotImplementedError

    @property
    def outstanding(self) -> int:
        """Batches that are not done."""
        return len(self._open)

    def find(self, ticket: int) -> OpenBatch | None:
        """The batch of this ticket, while it is open."""
        return self._open.get(ticket)

    def submit(self, batch: Batch) -> OpenBatch:
        """Have a batch judged."""
        self._next += 1
        deadline = asyncio.get_running_loop().time() + batch.seconds - batch.late
        opened = self._open[self._next] = OpenBatch(batch, self._next, deadline)
        self._tickets[batch] = opened.ticket
        self._watch_limits()
        self._begin(opened)
        return opened

    async def run(self, batch: Batch) -> None:
        """Have a batch judged and wait until it is done. Cancelled, it stops the batch."""
        opened = self.submit(batch)
        if batch.done:
            return
        opened.finished = asyncio.get_running_loop().create_future()
        try:
            await opened.finished
        finally:
            self.cancel(batch, Unscored(reason=Reason.CANCELLED, detail="the batch was abandoned"))

    def cancel(self, batch: Batch, why: Unscored) -> None:
        """Stop a batch."""
        opened = self._open.get(self._tickets.get(batch, 0))
        if opened is not None and opened.stopping is None:
            self._stop(opened, why)

    def landed(self, ticket: int, results: Sequence[Result], fault: Fault | None = None) -> None:
        """Results of a batch's samples, from a worker. `fault`: why the batch must not be used."""
        opened = self._open.get(ticket)
        if opened is None:
            return
        batch, rewards, tripped = opened.batch, list[Reward](), False
        if fault is not None and batch.error is None:
            batch.error = fault.error()
        for result in results:
            if batch.landed(result.index):
                continue
            rewards += batch.land(result.index, result.settled)
            ended = whole(result.settled, batch.judges)
            try:
                self.recorder.settled(batch, result, ended)
            except Exception:  # the reward is there; a record that cannot be kept must not withhold it
                log.exception("the record of a sample could not be kept")
            tripped |= self._observe(batch, ended.verdict)
        try:
            self.recorder.rewarded(batch, rewards)
        except Exception:  # the rewards are there; a record that cannot be kept must not withhold them
            log.exception("the record of some rewards could not be kept")
        try:
            batch.hand_over(rewards)
        except Exception:  # a broken receiver must not fail other batches that share its requests
            log.exception("the receiver of a batch's rewards failed")
        if batch.done:
            self._finish(opened)
        elif tripped:
            self._stop(opened, Unscored(reason=Reason.CANCELLED, detail="too many samples were unscored"))

    def changed(self, changes: Sequence[Change], ticket: int, results: Sequence[Result]) -> None:
        """Another model, provider or fingerprint answered than before, by the time these results landed. Workers tell
        all they have seen; each pair is recorded once, and none from before this client was there."""
        opened = self._open.get(ticket)
        step = opened.batch.samples[results[0].index].step if opened is not None and results else None
        for change in changes:
            pair = (change.endpoint, min(change.before, change.after), max(change.before, change.after))
            if pair in self._changes or change.wall < self._began:
                continue
            self._changes.add(pair)
            log.warning(
                "%s: the judge changed%s, from %s to %s. Verdicts before and after may not be on one scale; pin the "
                "model by its dated name, and a router's provider (see `referee docs providers`)",
                change.endpoint,
                "" if step is None else f" at step {step}",
                change.before,
                change.after,
            )
            self.recorder.write(change_line(change, step))

    def land_unscored(self, opened: OpenBatch, indexes: Iterable[int], why: Unscored) -> None:
        """Give these samples an end without asking anything."""
        settled = (Settled(verdict=why),) * len(opened.batch.judges)
        results = [Result(index, settled) for index in indexes if not opened.batch.landed(index)]
        if results:
            self.landed(opened.ticket, results)

    def end_all(self, why: Unscored) -> None:
        """Give everything an end, now."""
        for opened in list(self._open.values()):
            opened.stopping = opened.stopping or why
            self.land_unscored(opened, opened.batch.pending(), why)

    def fail(self, error: RefereeError) -> None:
        """Nothing can be judged any more: all waiters get this error."""
        for opened in list(self._open.values()):
            opened.batch.fail(error)
            self._finish(opened)

    def close(self) -> None:
        """Write the record out, with the totals of work that ended since limits were last recorded. Nothing may land
        afterwards."""
        if self._sampler is not None:
            self._sampler.cancel()
            self._write_limits()
        self.recorder.close()

    def metrics(self) -> dict[str, float]:
        """Counts so far, and the load on the endpoints."""
        state = self.state()
        return {
            **self.recorder.tally.metrics(),
            "in_flight": float(sum(gauge.in_flight for gauge in state.gauges)),
            "limit": float(sum(gauge.limit for gauge in state.gauges)),
            "queued": float(state.queued),
            "requests": float(sum(gauge.sent for gauge in state.gauges)),
            "throttled": float(sum(gauge.throttled for gauge in state.gauges)),
            "hedged": float(state.hedged),
            "budget_spent_usd": state.spent_usd,
            "ledger_lost_lines": float(self.recorder.lost),
            "cache_lost_verdicts": float(state.cache_lost),
        }

    def _observe(self, batch: Batch, verdict: Verdict | Unscored) -> bool:
        """True if too much is unscored now."""
        if batch.error is not None or (batch.team and _over_budget(verdict)):
            return False
        watch = self._watches.get(batch.team)
        if watch is None:
            watch = self._watches[batch.team] = UnscoredWatch(self._config.missing.abort_above)
        if not watch.observe(verdict):
            return False
        batch.error = self._watches.pop(batch.team).error()
        return True

    def _stop(self, opened: OpenBatch, why: Unscored) -> None:
        opened.stopping = why
        self._recall(opened, why)

    def _finish(self, opened: OpenBatch) -> None:
        self._open.pop(opened.ticket, None)
        self._tickets.pop(opened.batch, None)
        self._forget(opened)
        if opened.finished is not None and not opened.finished.done():
            opened.finished.set_result(None)

    def _watch_limits(self) -> None:
        """Record the load on each endpoint once a second, as long as there is work."""
        if self._sampler is None and self.recorder.kept:
            loop = asyncio.get_running_loop()
            every = SAMPLE_EVERY if self._config.limits.deadline <= HOURS else SAMPLE_SELDOM
            self._sampler = clock.at(loop, loop.time() + every, self._sample_limits)

    def _sample_limits(self) -> None:
        self._sampler = None
        self._write_limits()
        if self._open:
            self._watch_limits()

    def _write_limits(self) -> None:
        state = self.state()
        if state.gauges:
            self.recorder.limits(state.gauges, state.queued)


def _over_budget(verdict: Verdict | Unscored) -> bool:
    """A team's own budget is spent: nothing is broken."""
    return isinstance(verdict, Unscored) and verdict.reason is Reason.BUDGET


def time_left(opened: OpenBatch, margin: float = 0.0) -> float:
    """Seconds until its deadline, less a margin; never 0, which is no time to be judged in."""
    left = opened.deadline - margin - clock.now()
    return left if math.isinf(left) else max(0.001, left)
