"""The worker half of scoring: samples in, results out. Lives on one event loop; knows no batches, rewards or threads.

The way of a sample: `take` -> `_run` -> `_plan` (its judges say what to ask) -> `_ask` (the engine brings answers)
-> `_answered` (they ask more, or have a verdict) -> `_hand_over`.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import math
from collections.abc import Awaitable, Callable, Iterator, Sequence
from itertools import chain, islice
from typing import NamedTuple

from referee import clock
from referee.config import MADE_OF_OTHERS, Config, JudgeConfig, pool_of, quorum_of
from referee.engine import Endpoint, Engine
from referee.engine.accounts import Accounts
from referee.engine.quota_client import Exchange
from referee.errors import EndpointClosed
from referee.judging import Judge
from referee.records import Ask, Reason, Sample, Unscored, Verdict
from referee.scoring.asking import Asker
from referee.scoring.case import Case
from referee.scoring.job import Job
from referee.scoring.lines import LineMaker
from referee.scoring.messages import Fault, Gauge, Result, Update, Work
from referee.scoring.results import ResultMaker
from referee.scoring.room import Room, pools_of, room_of

log = logging.getLogger("referee")

PLAN_STEP = 32
"""Cases planned between two turns of the loop, so that replies are not kept waiting. Beside a thread that holds the
GIL each turn takes 5 ms: with steps of 8, a quarter fewer samples were judged."""
PLAN_ASKS = 256
"""Questions after which a step ends early: what is planned is in memory, whether there is room for it or not."""
PLAN_SECONDS = 0.1
"""Seconds after which it ends early, too: a judge's own checks may be slow."""
END_COST, END_EARLY = 80e-6, 0.04
"""Seconds it takes to end one question, about. A job begins to end so much before its deadline that its results are
there by then, but not before the last twenty-fifth of its time."""
SAME_DEADLINE = 0.02
"""Seconds between two deadlines that are taken for one."""

Planned = list[tuple[Case, Sequence[Ask]]]
Cases = Iterator[tuple[Case, Judge, Sequence[Sample]]]
Emit = Callable[[Job, list[Result], Fault | None], None]


class OpenedEngine(NamedTuple):
    """An engine and what belongs to it."""

    engine: Engine
    paced: Callable[[Exchange], Exchange] | None = None
    """Applied to the exchange with a broker of shared limits: rates may come from Redis."""
    closing: Sequence[Callable[[], Awaitable[None]]] = ()
    """What ends after it, in order."""
    accounts: Accounts | None = None
    """Of teams, where there are any."""


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
        self._judging = config.judge
        self._optional = {n for n, judge in enumerate(config.judge) if judge.optional or judge.weight == 0}
        self.whole_groups = any(judge.unit == "group" for judge in judges)
        """Whether a judge is given whole groups: then each must be in one Work."""
        self._loop = asyncio.get_running_loop()
        self._rooms: dict[tuple[str, frozenset[str]], Room] = {}
        """By team and pools: a job must not wait behind one for other endpoints, which may be down."""
        self._planning = 0
        opened = open_engine(self._changed, lambda: self._planning > 0)
        self.engine, self.paced, self._closing, self.accounts = opened
        self._asker = Asker(config, self.engine, lambda job: self._room(job).used(job), self._answered)
        self._results = ResultMaker(config, lines)
        self._emit = emit
        self._jobs: dict[Job, None] = {}
        self._taken = 0

    def take(self, work: Work, client: str = "") -> Job:
        """Begin to judge these samples."""
        self._taken += 1
        judges = work.judges or range(len(self._judges))
        pool = functools.partial(self.engine.room, team=work.team)
        needed = [self._judging[number] for number in self._needed(judges)]
        rooms = [room_of(judge, pool) for judge in needed]
        pools = frozenset(chain.from_iterable(map(pools_of, needed)))
        job = Job(client, work, self._taken, self._loop.time() + work.seconds, judges, rooms, pools)
        self._jobs[job] = None
        job.task = self._loop.create_task(self._run(job))
        job.task.add_done_callback(functools.partial(self._finished, job))
        if math.isfinite(job.due):
            job.timer = clock.at(self._loop, job.due - END_EARLY * work.seconds, lambda: self._expire(job))
        return job

    def stop(self, job: Job, why: Unscored) -> None:
        """Give every sample of a job that has no result one, at once. A judge may still decide with what it has."""
        results, job.held = job.held or [], None
        for case in list(job.open):
            del job.open[case]
            try:
                self._asker.give_up(case, why)
                case.end(why)
                self._results.add(job, case, results)
            except Exception:  # the other cases must end nevertheless; this one's samples get theirs below
                log.exception("a case could not be ended")
        self._results.add_missing(job, why, results)
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
        """The load on each endpoint from here. `whole_limit`: what all that share its limit have together."""
        engine = self.engine
        gauges = tuple(
            Gauge(e.label, 0 if e.breaker.closed else whole_limit(e), e.in_flight, e.sent, e.throttled)
            for e in engine.endpoints
        )
        queued, spent = engine.admission.queued, engine.admission.budget.spent
        calls = engine.calls
        changes = tuple(calls.changes)
        hedged, lost = calls.stragglers.hedged, engine.cache.lost
        return Update(gauges=gauges, queued=queued, spent_usd=spent, hedged=hedged, changes=changes, cache_lost=lost)

    async def _run(self, job: Job) -> None:
        """Begin every case of a job, as far ahead of the answers as there is room."""
        self._planning += 1
        try:
            cases = job.cases(self._judges)
            while job.unplanned and not job.done:
                if self._room(job).contested(job):
                    await self._room(job).wait(job)
                await self._begin_some(job, cases)
                await clock.breathe()
        finally:
            self._planning -= 1
            self.engine.settle()
            self._changed()

    async def _begin_some(self, job: Job, cases: Cases) -> None:
        """Begin the next cases. The cache looks their first questions up together."""
        job.held = job.held or []
        planned = self._plan(job, cases, job.held)
        planned, keys = self._keys(job, planned)
        spare = 0
        for case, asks in planned:
            if spare <= 0:
                spare = self._room(job).spare(job)
            if spare <= 0:
                self._hand_over_held(job)
                await self._room(job).wait(job)
                job.held = job.held or []
            if not job.missing:
                break
            self._asker.ask(job, case, asks, keys)
            spare -= len(asks)
            if case.asked and case.verdicts is None:
                spare = 0  # it may have gone on to another round, which took room as well
        self._hand_over_held(job)

    def _keys(self, job: Job, planned: Planned) -> tuple[Planned, Iterator[str]]:
        """The keys of these questions, and the cases without those that ask what cannot be asked, which fail alone."""
        try:
            return planned, iter(self.engine.expect([request for _, asks in planned for request in asks]))
        except Exception:
            sound = [one for one in planned if self._can_ask(job, *one)]
            if len(sound) == len(planned):
                raise
        return self._keys(job, sound)

    def _can_ask(self, job: Job, case: Case, asks: Sequence[Ask]) -> bool:
        try:
            for request in asks:
                self.engine.key(request)
        except Exception as error:
            case.failed(error)
            self._decided(job, case)
            return False
        return True

    def _plan(self, job: Job, cases: Cases, results: list[Result]) -> Planned:
        """Have judges say what to ask in their next cases. What they decide without asking is added to `results`."""
        forms, last = self._asker.forms(), job.judges[-1]
        planned: Planned = []
        asked, until = 0, self._loop.time() + PLAN_SECONDS
        for case, judge, samples in islice(cases, PLAN_STEP):
            asks = case.begin(judge, samples, forms[case.judge])
            if case.judge == last:
                job.unplanned -= len(samples)
            if case.verdicts is not None:
                self._results.add(job, case, results)
            else:
                planned.append((case, asks))
                asked += len(asks)
            if asked >= PLAN_ASKS or self._loop.time() > until:
                break
        return planned

    def _ask(self, job: Job, case: Case, asks: Sequence[Ask]) -> None:
        """Ask a further round of a case."""
        planned, keys = self._keys(job, [(case, asks)])
        if planned:
            self._asker.ask(job, case, asks, keys)

    def _answered(self, job: Job, case: Case) -> None:
        """A round of a case has all its answers."""
        asks = case.next_round()
        if case.verdicts is None:
            self._room(job).next_round(job, case, asks)
            return
        self._decided(job, case)

    def _decided(self, job: Job, case: Case) -> None:
        """A case has its verdicts."""
        job.open.pop(case, None)
        if job.held is None:
            job.held = []
            self._loop.call_soon(self._hand_over_held, job)  # verdicts are stored together, and so they land together
        self._results.add(job, case, job.held)

    def _hand_over_held(self, job: Job) -> None:
        held, job.held = job.held, None
        self._hand_over(job, held or [])

    def _hand_over(self, job: Job, results: list[Result]) -> None:
        if results:
            self._emit(job, results, self._fault(job, results))
        if job.done:
            job.room.set()
            if job.timer is not None:
                job.timer.cancel()
            self._jobs.pop(job, None)

    def _needed(self, judges: Sequence[int]) -> Sequence[int]:
        """Of these judges, by number, those that must not be missing. The endpoints of the others are not waited for:
        one that is down would hold back the judges that count."""
        return [number for number in judges if number not in self._optional] or judges

    def _room(self, job: Job) -> Room:
        room = self._rooms.get(job.competes_for)
        if room is None:
            room = self._rooms[job.competes_for] = Room(self._ask)
        return room

    def _changed(self) -> None:
        """There may be more room. Rooms that share endpoints take turns in being first to use it."""
        for name, room in list(self._rooms.items()):
            if room.changed():
                self._rooms[name] = self._rooms.pop(name)

    def _fault(self, job: Job, results: Sequence[Result]) -> Fault | None:
        """Why the batch must not be used: a judge that must not be missing is, and none of its endpoints can answer any
        more."""
        for number in self._needed(job.judges):
            error, place = closed_of(self._judging[number], self.engine.pools.closed), job.judges.index(number)
            if error is not None and any(_failed(result.settled[place].verdict) for result in results):
                return Fault("EndpointClosed", str(error), error.reason)
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

    def _expire(self, job: Job) -> None:
        """End a job in time to be done with it at its deadline; look again if that is not yet. Jobs due at about the
        same time end with it: otherwise they would use the room it leaves for questions they give up at once."""
        loop, early = self._loop, END_COST * self.engine.flying
        if loop.time() < job.due - early:
            job.timer = clock.at(loop, job.due - early, lambda: self._expire(job))
            return
        for other in list(self._jobs):
            seconds = other.work.seconds
            if other is job or loop.time() >= other.due - min(early + SAME_DEADLINE, END_EARLY * seconds):
                self.stop(other, Unscored(reason=Reason.DEADLINE, detail=f"not judged within {other.work.total:g} s"))


def closed_of(judge: JudgeConfig, pool: Callable[[str], EndpointClosed | None]) -> EndpointClosed | None:
    """Why a judge cannot have all its verdicts any more, if `pool` says that no endpoint of a pool can answer: of a
    jury, too many members for its quorum; of a cascade, one of them."""
    if judge.kind not in MADE_OF_OTHERS:
        return pool(pool_of(judge))
    spare = len(judge.uses) - quorum_of(judge) if judge.kind == "jury" else 0
    closed = [error for member in judge.uses if (error := closed_of(member, pool)) is not None]
    return closed[0] if len(closed) > spare else None


def _failed(verdict: Verdict | Unscored) -> bool:
    return isinstance(verdict, Unscored) and verdict.reason is not Reason.CANCELLED
