"""What a worker begins next, and when. Counted in questions, because one case may ask hundreds.

A further round of a case goes before first rounds of new cases, otherwise half-done cases would pile up. Jobs of
several callers take turns; of one caller's, the job that is due first goes first. Each team has a room of its own: what
one has begun and may not send now takes no room from another. So have jobs that ask different judges.
"""

from __future__ import annotations

import asyncio
import functools
from collections import deque
from collections.abc import Callable, Sequence

from referee.config import JudgeConfig, pool_of, quorum_of
from referee.limits import FairQueue
from referee.records import Ask
from referee.scoring.case import Case
from referee.scoring.job import Job

PLAN_AHEAD = 64
"""Questions begun beyond the limit. Bounds memory however many samples are submitted at once."""
WORTH_WAKING = 32
"""Questions there must be room for before a job that waits is woken: waking it costs as much as planning."""


def room_of(judge: JudgeConfig, pool: Callable[[str], int]) -> Callable[[], int]:
    """How many more questions of a judge its endpoints could take now. Of a cascade, those of its first member: few
    samples go on. Of a jury, those that a quorum needs: a member that is down must not hold back the others."""
    if judge.kind == "cascade":
        return room_of(judge.uses[0], pool)
    if judge.kind == "jury":
        members, quorum = [room_of(member, pool) for member in judge.uses], quorum_of(judge)
        return lambda: sorted([room() for room in members])[-quorum]
    return functools.partial(pool, pool_of(judge))


def pools_of(judge: JudgeConfig) -> list[str]:
    """The pools of endpoints that room_of looks at."""
    if judge.kind == "cascade":
        return pools_of(judge.uses[0])
    if judge.kind == "jury":
        return [pool for member in judge.uses for pool in pools_of(member)]
    return [pool_of(judge)]


class Room:
    """How many more questions may be begun, and what waits for that."""

    def __init__(self, begin: Callable[[Job, Case, Sequence[Ask]], None]) -> None:
        """`begin`: asks a round that had to wait."""
        self._begin = begin
        self._loop = asyncio.get_running_loop()
        self._jobs: FairQueue[Job] = FairQueue()
        """Jobs with more samples than there is room for now."""
        self._rounds: deque[tuple[Job, Case, Sequence[Ask]]] = deque()
        """Further rounds of cases, beyond the room there was."""
        self._beginning = False

    def spare(self, job: Job) -> int:
        """How many more questions new cases of a job may ask."""
        return 0 if self._rounds else _left(job)

    def contested(self, job: Job) -> bool:
        """True if a job must wait: there is no room, or others were there before it."""
        return bool(self._jobs) or self.spare(job) <= 0

    def used(self, job: Job) -> None:
        """A question of this job was sent to the engine."""
        self._jobs.charge(job.work.caller)

    def next_round(self, job: Job, case: Case, asks: Sequence[Ask]) -> None:
        """Begin a further round of a case: now, or before anything new when there is room."""
        if self.spare(job) > 0:
            self._begin(job, case, asks)
        else:
            self._rounds.append((job, case, asks))

    async def wait(self, job: Job) -> None:
        """Wait until another question may be begun, or the job is done. Also when there is room and others wait for it:
        otherwise the last to come would pass all of them, one freed place after another."""
        while not job.done:
            job.room.clear()
            self._jobs.push(job.work.caller, job)
            self.changed()
            await job.room.wait()
            if self.spare(job) > 0:
                return

    def changed(self) -> bool:
        """There may be more room. Wakes one job only, as thousands may wait; after its turn it wakes the next. Whether
        anything is begun now."""
        if self._rounds:
            if not self._beginning:  # in a turn of its own: the engine is in the middle of ending a request
                self._beginning = True
                self._loop.call_soon(self._begin_rounds)
            return True
        while self._jobs and _left(self._jobs.head()) >= WORTH_WAKING:
            job = self._jobs.pop()
            if not job.done:
                job.room.set()
                return True
        return False

    def _begin_rounds(self) -> None:
        self._beginning = False
        while self._rounds and _left(self._rounds[0][0]) > 0:
            job, case, asks = self._rounds.popleft()
            if case.verdicts is None:
                self._begin(job, case, asks)
        if not self._rounds:
            self.changed()


def _left(job: Job) -> int:
    return PLAN_AHEAD + min([room() for room in job.rooms])
