"""The async core: a batch of samples in, its rewards landed one by one. Lives on one event loop; knows no threads.

Judging says what to ask and how to read, the engine carries requests, the batch shapes rewards; this module ties them
together and watches that not too much goes unscored.
"""

from __future__ import annotations

import asyncio
import logging
import math

from msgspec.structs import replace

from referee import clock
from referee.batch import Batch
from referee.config import Config
from referee.engine import Engine, Flight
from referee.errors import RefereeError
from referee.judging import Form, Judge
from referee.limits import Turns
from referee.recorder import Recorder, RecorderPort
from referee.records import JudgeRequest, Reason, Reward, Sample, Settled, Unscored, Verdict
from referee.shaping import UnscoredWatch

log = logging.getLogger("referee")

AHEAD = 64
"""Requests planned beyond the limit. Bounds memory however many samples are submitted at once, and what is
planned long before it is sent has left the processor's caches."""
TURN = 32
"""Samples planned between two turns of the loop, so that replies are not kept waiting. Not fewer: beside a trainer that
holds the interpreter's lock each turn takes 5 ms, and with steps of 8 a quarter fewer samples were judged."""
FEW = 8
"""Those of the first samples where nothing is under way: they are sent before the next are planned, for until then the
provider is idle."""
FIRST = 64
"""How many those first samples are."""
WIRE = 3
"""Turns of the loop from a plan to the wire: begin, connect, write."""
LOCKED = 0.005
"""Seconds for those turns that tell of somebody who holds the interpreter's lock: so long it takes to get it."""
ENDING, EARLIEST = 80e-6, 0.04
"""Seconds it takes to end one request, about. So much before its deadline a batch begins to end, that its callers are
back by then; but not before the last twenty-fifth of its time."""
SAME = 0.02
"""Seconds between two deadlines that are taken for one."""
SCHEMA_TRIES = 8
"""Schema replies that may all be unreadable before the judge is asked for text instead."""
UNREADABLE = frozenset({Reason.SCHEMA, Reason.NO_VERDICT, Reason.EMPTY})
Plan = JudgeRequest | Verdict | Unscored
NOTHING = Settled(verdict=Unscored(reason=Reason.CANCELLED))


class _Progress:
    """One batch under way: who waits for which flight, when it is due, and the signal that it is done."""

    __slots__ = ("done", "due", "number", "room", "timer", "waiting")

    def __init__(self, number: int, due: float) -> None:
        self.number = number
        self.due = due
        self.waiting: dict[int, _Waiting] = {}
        self.timer: asyncio.TimerHandle | None = None
        self.room = asyncio.Event()
        self.done = asyncio.Event()

    def __lt__(self, other: _Progress) -> bool:
        return (self.due, self.number) < (other.due, other.number)


class _Waiting:
    """One sample that waits for a flight. Called once, with how that ended. `before`: what another form has cost."""

    __slots__ = ("batch", "before", "flight", "form", "index", "request", "scorer")

    def __init__(
        self,
        scorer: Scorer,
        batch: Batch,
        index: int,
        form: Form,
        request: JudgeRequest,
        before: Settled,
    ) -> None:
        self.scorer = scorer
        self.batch = batch
        self.index = index
        self.form = form
        self.request = request
        self.before = before
        self.flight: Flight | None = None

    def __call__(self, settled: Settled) -> None:
        self.scorer._landed(self, settled)


class Scorer:
    """Everything between a sample and its settled verdict."""

    def __init__(self, config: Config, judge: Judge, engine: Engine) -> None:
        self._config = config
        self._judge = judge
        self.engine = engine
        self.recorder: RecorderPort = Recorder(config, engine)
        self._form: Form = "text" if config.judge.reply == "text" else "schema"
        self._schema_read = self._schema_unread = 0
        self._watch = UnscoredWatch(config.missing.abort_above)
        self._active: dict[Batch, _Progress] = {}
        self._batches = 0
        self._line: Turns[_Progress] = Turns()
        """Batches with more samples than there is room for now: callers in turn, of each the batch due first."""
        engine.on_room = self._next_in_line

    async def run(self, batch: Batch) -> None:
        """Bring every sample of a batch to its end, by its deadline at the latest."""
        loop = asyncio.get_running_loop()
        self._batches += 1
        deadline = loop.time() + batch.seconds - batch.late
        progress = self._active[batch] = _Progress(self._batches, deadline)
        try:
            if math.isfinite(deadline):
                progress.timer = clock.at(loop, deadline - EARLIEST * batch.seconds, lambda: self._expire(batch))
            self.recorder.watch_limits()
            self.engine.planning += 1
            try:
                await self._begin_all(batch, progress)
            finally:
                self.engine.planning -= 1
                self.engine.settle()
                self._next_in_line()
            if not batch.done:
                await progress.done.wait()
        except Exception as error:  # a bug of ours: the caller hears of it, and nobody takes it for his own cancelling
            batch.error = batch.error or RefereeError(
                f"judging this batch failed unexpectedly ({type(error).__name__}); see the log. What was judged before "
                "is kept in the cache."
            )
            self.stop(batch, Unscored(reason=Reason.CONFIG, detail=f"internal error: {type(error).__name__}"))
            raise
        finally:
            if progress.timer is not None:
                progress.timer.cancel()
            self.stop(batch, Unscored(reason=Reason.CANCELLED, detail="the batch was abandoned"))
            del self._active[batch]

    async def _begin_all(self, batch: Batch, progress: _Progress) -> None:
        """Ask for every sample, as far ahead of the answers as there is room."""
        start, idle = 0, not self.engine.flying
        while start < len(batch.samples):
            if self._spare() <= 0 or self._line:
                await self._room_for(batch, progress)
            few = idle and start < FIRST and self.engine.planning == 1  # beside another batch it would fall behind
            step = FEW if few else TURN
            for index, plan, form, key in self._plan_some(batch, start, step):
                if self._spare() <= 0:
                    await self._room_for(batch, progress)
                if batch.done:
                    return
                if form == self._form_now():
                    self._begin(batch, index, form, plan, key)
                else:
                    self._begin(batch, index, self._form, self._plan(batch.samples[index], self._form))
            if batch.done:
                return
            start += step
            if few:
                idle = await self._sent()
            else:
                await clock.breathe()

    async def _sent(self) -> bool:
        """Let what was begun get onto the wire. False if that took long: larger steps are better then."""
        before = clock.now()
        for _ in range(WIRE):
            await clock.breathe()
        return clock.now() - before < LOCKED

    async def _room_for(self, batch: Batch, progress: _Progress) -> None:
        """Stand in line until another request may be planned, or the batch is over. Also when there is room and others
        wait for it: whoever comes last would walk past them, one freed place after another."""
        while not batch.done:
            progress.room.clear()
            self._line.push(batch.caller, progress)
            self._next_in_line()
            await progress.room.wait()
            if self._spare() > 0:
                return

    def _next_in_line(self) -> None:
        """Wake one: thousands of small batches may wait. Who has had his turn wakes the next.

        Not for the room of one request: waking costs as much as planning.
        """
        while self._line and self._spare() >= TURN:
            progress = self._line.pop()
            if not progress.done.is_set():
                progress.room.set()
                return

    def stop(self, batch: Batch, why: Unscored) -> None:
        """End every sample of a batch that has no end yet, at once."""
        waiting = self._active[batch].waiting if batch in self._active else {}
        rewards: list[Reward] = []
        pending = batch.pending()
        if not pending:
            return
        for index in pending:
            end, detail = NOTHING, why.detail
            waits = waiting.pop(index, None)
            if waits is not None and waits.flight is not None:
                detail = f"{why.detail}: {waits.flight.trouble()}"
                end = self.engine.leave(waits.flight, waits) or NOTHING
            verdict = Unscored(reason=why.reason, detail=detail)
            rewards += self._ended(batch, index, None, replace(end, verdict=verdict))[0]
        self._hand_over(batch, rewards)  # together: a caller woken for each of thousands would delay the rest

    async def close(self) -> None:
        """Stop everything, write everything out."""
        for batch in list(self._active):
            self.stop(batch, Unscored(reason=Reason.CANCELLED, detail="the Referee was closed"))
        await self.engine.close()
        self.recorder.close()

    def metrics(self) -> dict[str, float]:
        """Counts so far, and how hard the endpoints are pressed now."""
        endpoints = self.engine.endpoints
        return {
            **self.recorder.tally.metrics(),
            "in_flight": sum(e.in_flight for e in endpoints),
            "limit": sum(e.limiter.limit for e in endpoints if e.breaker.closed is None),
            "queued": self.engine.admission.queued,
            "requests": sum(e.sent for e in endpoints),
            "throttled": sum(e.throttled for e in endpoints),
            "hedged": self.engine.calls.stragglers.hedged,
            "budget_spent_usd": self.engine.admission.budget.spent,
        }

    def _spare(self) -> int:
        """How many more requests may be planned."""
        limit = 0
        for endpoint in self.engine.endpoints:
            limit += endpoint.limiter.limit
        return limit + AHEAD - self.engine.pressing

    def _plan_some(self, batch: Batch, start: int, count: int) -> list[tuple[int, Plan, Form, str | None]]:
        """The plans of the next samples, and their keys, which the cache looks up together."""
        form = self._form_now()
        plans = [self._plan(sample, form) for sample in batch.samples[start : start + count]]
        keys = iter(self.engine.expect([plan for plan in plans if isinstance(plan, JudgeRequest)]))
        return [
            (start + at, plan, form, next(keys) if isinstance(plan, JudgeRequest) else None)
            for at, plan in enumerate(plans)
        ]

    def _begin(
        self, batch: Batch, index: int, form: Form, plan: Plan, key: str | None = None, before: Settled = NOTHING
    ) -> None:
        """Ask as planned, unless that settled it already. `before`: what a first form of asking has cost."""
        if not isinstance(plan, JudgeRequest):
            origin = "gate" if isinstance(plan, Verdict) else "none"
            self._land(batch, index, None, Settled(verdict=plan, origin=origin))  # type: ignore[arg-type]
            return
        key = key or self.engine.key(plan)
        known = self.engine.known(plan, key)
        if known is not None:
            self._land(batch, index, plan, _with_costs(known, before))
            return
        progress = self._active[batch]
        waits = progress.waiting[index] = _Waiting(self, batch, index, form, plan, before)
        waits.flight = self.engine.ask(plan, key, progress.due, waits)
        self._line.had(batch.caller)

    def _landed(self, waits: _Waiting, settled: Settled) -> None:
        """A flight is over, for one of those who wait for it."""
        batch, index = waits.batch, waits.index
        progress = self._active.get(batch)
        if progress is None or batch.landed(index):
            return
        progress.waiting.pop(index, None)
        end = _with_costs(settled, waits.before)
        if waits.form == "schema" and self._wants_text(settled):
            self._begin(batch, index, "text", self._plan(batch.samples[index], "text"), before=end)
        else:
            self._land(batch, index, waits.request, end)

    def _plan(self, sample: Sample, form: Form) -> Plan:
        try:
            return self._judge.plan(sample, form)
        except Exception as error:  # one sample's trouble must not become its batch's
            log.exception("a sample could not be planned")
            return Unscored(reason=Reason.CONFIG, detail=f"internal error: {type(error).__name__}")

    def _form_now(self) -> Form:
        """Schema until it is known to be useless here."""
        if self._form == "schema" and self._config.judge.reply == "auto":
            useless = self._schema_unread >= SCHEMA_TRIES and not self._schema_read
            if useless:
                log.warning("the judge's first %d schema replies were unreadable; asking for text", SCHEMA_TRIES)
            if useless or self.engine.schema_refused:
                self._form = "text"
        return self._form

    def _wants_text(self, settled: Settled) -> bool:
        """Whether a request in schema form ended in a way that the text form may mend."""
        verdict = settled.verdict
        if isinstance(verdict, Verdict):
            self._schema_read += 1
            return False
        unread = verdict.reason in UNREADABLE and settled.origin in ("call", "shared")
        self._schema_unread += unread and settled.origin == "call"
        refused = verdict.reason is Reason.CONFIG and self.engine.schema_refused
        return self._config.judge.reply == "auto" and (unread or refused)

    def _land(self, batch: Batch, index: int, request: JudgeRequest | None, settled: Settled) -> None:
        """The end of one sample: record it, shape what it completes, hand it over."""
        if batch.landed(index):
            return
        rewards, tripped = self._ended(batch, index, request, settled)
        self._hand_over(batch, rewards)
        if tripped:
            self.stop(batch, Unscored(reason=Reason.CANCELLED, detail="too many samples were unscored"))

    def _ended(
        self, batch: Batch, index: int, request: JudgeRequest | None, settled: Settled
    ) -> tuple[list[Reward], bool]:
        """Record a sample's end. Returns the rewards final with it, and whether it was one unscored too many."""
        if isinstance(settled.verdict, Unscored) and settled.verdict.reason is not Reason.CANCELLED:
            batch.error = batch.error or self.engine.closed()
        rewards = batch.land(index, settled)
        try:
            self.recorder.settled(batch, index, request, settled)
            self.recorder.rewarded(batch, rewards)
        except Exception:  # the reward is there; a record that cannot be kept must not withhold it
            log.exception("the record of a sample could not be kept")
        tripped = batch.error is None and self._watch.observe(settled.verdict)
        if tripped:
            batch.error = self._watch.error()
            self._watch = UnscoredWatch(self._config.missing.abort_above)
        return rewards, tripped

    def _hand_over(self, batch: Batch, rewards: list[Reward]) -> None:
        batch.hand_over(rewards)
        if batch.done and batch in self._active:
            self._active[batch].done.set()
            self._active[batch].room.set()

    def _expire(self, batch: Batch) -> None:
        """End a batch in time to be done with it at its deadline; look again if that is not yet. Those due at about the
        same time end with it: in the room it leaves, they would ask what they give up a moment later."""
        loop = asyncio.get_running_loop()
        early = ENDING * self.engine.flying
        start = self._active[batch].due - early
        if loop.time() < start:
            self._active[batch].timer = clock.at(loop, start, lambda: self._expire(batch))
            return
        for other, progress in list(self._active.items()):
            if other is batch or loop.time() >= progress.due - min(early + SAME, EARLIEST * other.seconds):
                self.stop(other, Unscored(reason=Reason.DEADLINE, detail=f"not judged within {other.seconds:g} s"))


def _with_costs(settled: Settled, before: Settled) -> Settled:
    """An end that took two forms of asking took the attempts and the money of both."""
    if before is NOTHING:
        return settled
    return replace(settled, attempts=settled.attempts + before.attempts, cost=settled.cost + before.cost)
