"""The worker half of scoring: samples in, results out. Lives on one event loop; knows no batches, rewards or threads.

For every sample and judge it drives a case (`scoring.case`): the judge says what to ask, the engine brings the answers.
Jobs of several callers take turns; of one caller's, the one that is due first is served first.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import math
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from referee import clock
from referee.config import Config, pool_of
from referee.engine import Endpoint, Engine
from referee.engine.quota_client import Exchange
from referee.judging import Form, Judge
from referee.limits import FairQueue
from referee.records import Ask, Reason, Settled, Unscored
from referee.scoring.case import NOTHING, Case, with_costs
from referee.scoring.forms import LearnedForm
from referee.scoring.job import Job, Judged, Open, result_of
from referee.scoring.lines import LineMaker
from referee.scoring.messages import Fault, Gauge, Result, Update, Work
from referee.scoring.tracing import Tracer, open_tracer

log = logging.getLogger("referee")

PLAN_AHEAD = 64
"""Questions begun beyond the limit. Bounds memory however many samples are submitted at once."""
PLAN_STEP = 32
"""Samples planned between two turns of the loop, so that replies are not kept waiting. Beside a thread that holds the
GIL each turn takes 5 ms: with steps of 8, a quarter fewer samples were judged."""
FIRST, FIRST_STEP = 64, 8
"""The first samples of an idle worker are planned in smaller steps, each sent before the next is planned."""
TURNS_TO_WIRE = 3
"""FairQueue of the loop from a question to the wire: begin, connect, write."""
GIL_HELD = 0.005
"""If those turns take longer than this, another thread holds the GIL, and larger steps are better."""
END_COST, END_EARLY = 80e-6, 0.04
"""Seconds it takes to end one question, about. A job begins to end so much before its deadline that its results are
there by then, but not before the last twenty-fifth of its time."""
SAME_DEADLINE = 0.02
"""Seconds between two deadlines that are taken for one."""

Emit = Callable[[Job, list[Result], Fault | None], None]


class OpenedEngine(NamedTuple):
    """An engine and what belongs to it."""

    engine: Engine
    paced: Callable[[Exchange], Exchange] | None = None
    """Applied to the exchange with a broker of shared limits: rates may come from Redis."""
    closing: Sequence[Callable[[], Awaitable[None]]] = ()
    """What ends after it, in order."""


OpenEngine = Callable[[Callable[[], None], Callable[[], bool]], OpenedEngine]
"""Makes the engine, of its `on_room` and `more_to_come`."""


class JudgeWorker:
    """Judges samples with every judge of a configuration."""

    def __init__(
        self,
        config: Config,
        judges: Sequence[Judge],
        open_engine: OpenEngine,
        lines: LineMaker,
        emit: Emit,
    ) -> None:
        """`emit(job, results, fault)` is called as results become final."""
        self._judges = judges
        self._lone = len(judges) == 1
        self._loop = asyncio.get_running_loop()
        self._forms = [LearnedForm(judge) for judge in config.judge]
        self._pools = [pool_of(judge) for judge in config.judge]
        self._in_text = [False] * len(judges)
        """Judges that are asked in text by now, also with questions that were planned before."""
        self._optional = [judge.optional or judge.weight == 0 for judge in config.judge]
        if all(self._optional):
            self._optional = [False] * len(judges)
        needed = [pool for pool, optional in zip(self._pools, self._optional, strict=True) if not optional]
        self._paced_by = list(dict.fromkeys(needed))
        """Pools that must have room before more is begun. Those of optional judges are not waited for: an endpoint that
        is down would hold back the judges that count."""
        self._planning = 0
        opened = open_engine(self._next_in_line, lambda: self._planning > 0)
        self.engine, self.paced, self._closing = opened
        self._lines = lines
        self._tracer = open_tracer(config)
        self._emit = emit
        self._jobs: dict[Job, None] = {}
        self._taken = 0
        self._line: FairQueue[Job] = FairQueue()
        """Jobs with more samples than there is room for now."""

    def take(self, work: Work, client: str = "") -> Job:
        """Begin to judge these samples."""
        loop = asyncio.get_running_loop()
        self._taken += 1
        job = Job(client, work, self._taken, loop.time() + work.seconds)
        self._jobs[job] = None
        job.task = loop.create_task(self._run(job))
        job.task.add_done_callback(functools.partial(self._finished, job))
        if math.isfinite(job.due):
            job.timer = clock.at(loop, job.due - END_EARLY * work.seconds, lambda: self._expire(job))
        return job

    def stop(self, job: Job, why: Unscored) -> None:
        """Give every sample of a job that has no result one, at once. A judge may still decide with what it has."""
        results, job.held = job.held or [], None
        for case in list(job.cases):
            for slot, opened in enumerate(case.slots):
                if not isinstance(opened, Open):
                    continue
                end, detail = NOTHING, why.detail
                if opened.flight is not None:
                    detail = f"{why.detail}: {opened.flight.trouble()}"
                    end = self.engine.leave(opened.flight, opened) or NOTHING
                end = replace(end, verdict=Unscored(reason=why.reason, detail=detail))
                case.answered(slot, opened.request, with_costs(end, opened.before))
            del job.cases[case]
            case.end(why)
            self._close_case(job, case, results)
        for place in sorted(job.missing):
            have = job.settled.pop(place, [None] * len(self._judges))
            never = Settled(verdict=why)
            every = [one or self._judged(job, place, number, never, None) for number, one in enumerate(have)]
            results.append(result_of(job, place, every))
        job.missing.clear()
        self._hand_over(job, results)  # together: waking a caller for each of thousands would delay the rest

    async def close(self) -> None:
        """Stop everything, write everything out."""
        jobs = list(self._jobs)
        for job in jobs:
            self.stop(job, Unscored(reason=Reason.CANCELLED, detail="the Referee was closed"))
        await self.engine.close()
        for close in self._closing:
            with contextlib.suppress(Exception):
                await close()
        await asyncio.gather(*(job.task for job in jobs if job.task is not None), return_exceptions=True)

    def state(self, whole_limit: Callable[[Endpoint], int] = lambda endpoint: endpoint.limiter.limit) -> Update:
        """How hard each endpoint is pressed from here. `whole_limit`: what all that share its limit have together."""
        engine = self.engine
        gauges = tuple(
            Gauge(e.label, 0 if e.breaker.closed else whole_limit(e), e.in_flight, e.sent, e.throttled)
            for e in engine.endpoints
        )
        queued, spent = engine.admission.queued, engine.admission.budget.spent
        return Update(gauges=gauges, queued=queued, spent_usd=spent, hedged=engine.calls.stragglers.hedged)

    async def _run(self, job: Job) -> None:
        """Begin every case of a job, as far ahead of the answers as there is room."""
        self._planning += 1
        try:
            start, idle = 0, not self.engine.flying
            count = len(job.work.samples)
            while start < count and not job.done:
                if self._spare() <= 0 or self._line:
                    await self._room_for(job)
                few = idle and start < FIRST and self._planning == 1  # beside another job it would fall behind
                step = FIRST_STEP if few else PLAN_STEP
                await self._begin_some(job, range(start, min(start + step, count)))
                start += step
                if few:
                    idle = await self._sent()
                else:
                    await clock.breathe()
        finally:
            self._planning -= 1
            self.engine.settle()
            self._next_in_line()

    async def _begin_some(self, job: Job, places: range) -> None:
        """Begin the cases of these samples. The cache looks their first questions up together."""
        forms = self._learn_forms()
        begun: list[tuple[Case, Sequence[Ask]]] = []
        asks: list[Ask] = []
        results = job.held = job.held or []
        for place in places:
            sample = job.work.samples[place]
            for number, judge in enumerate(self._judges):
                case = Case(number, (place,))
                first = case.begin(judge, (sample,), forms[number])
                if case.verdicts is None:
                    begun.append((case, first))
                    asks += first
                else:
                    self._close_case(job, case, results)
        keys = iter(self.engine.expect(asks))
        for case, first in begun:
            if self._spare() <= 0:
                self._hand_over_held(job)
                await self._room_for(job)
                job.held = job.held or []
            if job.done:
                break
            self._begin(job, case, first, keys)
        self._hand_over_held(job)

    def _learn_forms(self) -> list[Form]:
        """In which form each judge is asked from now on."""
        takes = self.engine.takes_schema
        forms = [form.now(takes(pool)) for form, pool in zip(self._forms, self._pools, strict=True)]
        self._in_text = [form == "text" for form in forms]
        return forms

    def _hand_over_held(self, job: Job) -> None:
        held, job.held = job.held, None
        self._hand_over(job, held or [])

    def _begin(self, job: Job, case: Case, asks: Sequence[Ask], keys: Iterator[str]) -> None:
        """Ask a case's questions. Known answers may complete its round at once, and the next ones too."""
        job.cases[case] = None
        for slot, request in enumerate(asks):
            self._ask(job, case, slot, request, next(keys), NOTHING)

    def _ask(self, job: Job, case: Case, slot: int, request: Ask, key: str, before: Settled) -> None:
        if request.in_text is not None and self._in_text[case.judge]:
            self._ask_in_text(job, case, slot, request, before)
            return
        known = self.engine.known(request, key)
        if known is not None:
            self._take_answer(job, case, slot, request, with_costs(known, before))
            return
        opened = case.slots[slot] = Open(self._answered, job, case, slot, request, before)
        opened.flight = self.engine.ask(request, key, job.due, opened)
        self._line.charge(job.work.caller)

    def _ask_in_text(self, job: Job, case: Case, slot: int, request: Ask, before: Settled) -> None:
        assert request.in_text is not None
        try:
            other = request.in_text()
        except Exception as error:
            log.exception("a question could not be asked in text")
            other = Unscored(reason=Reason.CONFIG, detail=f"internal error: {type(error).__name__}")
        if isinstance(other, Ask):
            self._ask(job, case, slot, other, self.engine.key(other), before)
        else:
            self._take_answer(job, case, slot, request, replace(before, verdict=other))

    def _answered(self, opened: Open, settled: Settled) -> None:
        """A flight is over, for one of those that wait for it."""
        job, case = opened.job, opened.case
        if case not in job.cases or case.slots[opened.slot] is not opened:
            return
        request, end = opened.request, with_costs(settled, opened.before)
        if request.sampling.schema is not None or request.in_text is not None:
            wants_text = self._forms[case.judge].wants_text(settled, self.engine.takes_schema(request.pool))
            if wants_text and request.in_text is not None:
                self._learn_forms()
                self._ask_in_text(job, case, opened.slot, request, end)
                return
        self._take_answer(job, case, opened.slot, request, end)

    def _take_answer(self, job: Job, case: Case, slot: int, request: Ask, settled: Settled) -> None:
        if not case.answered(slot, request, settled):
            return
        asks = case.next_round()
        if case.verdicts is None:
            # A round of a case that has begun goes before first rounds of new ones, or half-done cases would pile up.
            self._begin(job, case, asks, iter(self.engine.expect(asks)))
            return
        del job.cases[case]
        results: list[Result] = []
        self._close_case(job, case, results)
        if job.held is None:
            job.held = []
            self._loop.call_soon(self._hand_over_held, job)  # verdicts are stored together, and so they land together
        job.held += results

    def _close_case(self, job: Job, case: Case, results: list[Result]) -> None:
        """A judge is done with its samples: those that miss nothing any more have their result."""
        request = case.asked[-1][0] if case.asked else None
        for which, place in enumerate(case.places):
            if place not in job.missing:
                continue
            judged = self._judged(job, place, case.judge, case.settled(which), request)
            if self._lone:
                job.missing.discard(place)
                results.append(Result(job.work.indexes[place], (judged[0],), judged[1]))
                continue
            have = job.settled.setdefault(place, [None] * len(self._judges))
            have[case.judge] = judged
            if None not in have:
                job.missing.discard(place)
                results.append(result_of(job, place, job.settled.pop(place)))
        if self._tracer is not None:
            self._trace(self._tracer, job, case)

    def _trace(self, tracer: Tracer, job: Job, case: Case) -> None:
        try:
            for request, settled in case.asked:
                tracer.settled(job.work.samples[case.places[0]], request, settled, clock.wall())
        except Exception:  # a tracer of the user's must not withhold results
            log.exception("the spans of a sample could not be made")

    def _judged(self, job: Job, place: int, judge: int, settled: Settled, request: Ask | None) -> Judged:
        work = job.work
        try:
            index, sample = work.indexes[place], work.samples[place]
            return settled, self._lines.of(job.client, work.batch, index, sample, judge, settled, request)
        except Exception:  # the verdict is there; a record that cannot be kept must not withhold it
            log.exception("the record of a sample could not be made")
            return settled, ()

    def _hand_over(self, job: Job, results: list[Result]) -> None:
        if results:
            self._emit(job, results, self._fault(results))
        if job.done:
            job.room.set()
            if job.timer is not None:
                job.timer.cancel()
            self._jobs.pop(job, None)

    def _fault(self, results: Sequence[Result]) -> Fault | None:
        """Why the batch must not be used: a judge that must not be missing is, and none of its endpoints can answer any
        more."""
        for result in results:
            for number, settled in enumerate(result.settled):
                verdict = settled.verdict
                if isinstance(verdict, Unscored) and verdict.reason is not Reason.CANCELLED:
                    closed = None if self._optional[number] else self.engine.pools.closed(self._pools[number])
                    if closed is not None:
                        return Fault("EndpointClosed", str(closed), closed.reason)
        return None

    def _finished(self, job: Job, task: asyncio.Task[None]) -> None:
        """All cases of a job are begun, or beginning them has failed."""
        error = None if task.cancelled() else task.exception()
        if error is None and not task.cancelled():
            return
        self._hand_over_held(job)
        if job.done:
            return
        if error is None:
            self.stop(job, Unscored(reason=Reason.CANCELLED, detail="the batch was abandoned"))
            return
        log.error("judging failed unexpectedly", exc_info=error)
        name = type(error).__name__
        message = f"judging this batch failed unexpectedly ({name}); see the log. What was judged before is kept."
        self._emit(job, [], Fault("RefereeError", message))
        self.stop(job, Unscored(reason=Reason.CONFIG, detail=f"internal error: {name}"))

    async def _room_for(self, job: Job) -> None:
        """Wait until another question may be begun, or the job is done. Also when there is room and others wait for it:
        the last to come would pass all of them, one freed place after another."""
        while not job.done:
            job.room.clear()
            self._line.push(job.work.caller, job)
            self._next_in_line()
            await job.room.wait()
            if self._spare() > 0:
                return

    def _next_in_line(self) -> None:
        """Wake one job that waits for room: thousands of small ones may. After its turn it wakes the next.

        Not for the room of one question: waking costs as much as planning.
        """
        while self._line and self._spare() >= PLAN_STEP:
            job = self._line.pop()
            if not job.done:
                job.room.set()
                return

    def _spare(self) -> int:
        """How many more questions may be begun."""
        return PLAN_AHEAD + min([self.engine.room(pool) for pool in self._paced_by])

    async def _sent(self) -> bool:
        """Let what was begun get onto the wire. False if that took long: larger steps are better then."""
        before = clock.now()
        for _ in range(TURNS_TO_WIRE):
            await clock.breathe()
        return clock.now() - before < GIL_HELD

    def _expire(self, job: Job) -> None:
        """End a job in time to be done with it at its deadline; look again if that is not yet. Jobs due at about the
        same time end with it: in the room it leaves, they would ask what they give up a moment later."""
        loop = asyncio.get_running_loop()
        early = END_COST * self.engine.flying
        if loop.time() < job.due - early:
            job.timer = clock.at(loop, job.due - early, lambda: self._expire(job))
            return
        for other in list(self._jobs):
            seconds = other.work.seconds
            if other is job or loop.time() >= other.due - min(early + SAME_DEADLINE, END_EARLY * seconds):
                self.stop(other, Unscored(reason=Reason.DEADLINE, detail=f"not judged within {other.work.total:g} s"))
