"""Both halves of scoring on one event loop: what a thread, or a caller that waits inline, runs."""

from __future__ import annotations

import logging
from collections.abc import Callable

from referee.config import Config
from referee.records import Reason, Unscored
from referee.scoring.job import Job
from referee.scoring.lines import LineMaker, Wanted
from referee.scoring.messages import Fault, Result, Update, Work
from referee.scoring.recorder import Recorder
from referee.scoring.tracker import BatchTracker, OpenBatch, time_left
from referee.scoring.worker import Emit, JudgeWorker

log = logging.getLogger("referee")

BuildWorker = Callable[[Config, LineMaker, Emit], JudgeWorker]


class Scorer(BatchTracker):
    """A tracker whose one worker is in the same process: results travel by function call."""

    def __init__(self, config: Config, build_worker: BuildWorker) -> None:
        super().__init__(config, Recorder(config))
        self._wanted = Wanted(config.ledger.content, self.recorder.next_seq) if self.recorder.kept else None
        self._worker = build_worker(config, LineMaker(config.judge, lambda _: self._wanted), self._emit)
        self.engine = self._worker.engine
        self.accounts = self._worker.accounts
        self._jobs: dict[int, Job] = {}
        self._changes_told = 0

    async def aclose(self) -> None:
        """Stop everything, write everything out."""
        try:
            await self._worker.close()
        finally:
            self.end_all(Unscored(reason=Reason.CANCELLED, detail="the Referee was closed"))
            self.close()

    def state(self) -> Update:
        """The load on each endpoint now."""
        return self._worker.state()

    def metrics(self) -> dict[str, float]:
        """Counts so far, with requests by team."""
        return {**super().metrics(), **({} if self.accounts is None else self.accounts.sent())}

    def _begin(self, opened: OpenBatch) -> None:
        batch = opened.batch
        indexes = tuple(range(len(batch.samples)))
        left, who = time_left(opened), (batch.caller, batch.team, batch.asked)
        work = Work(opened.ticket, batch.id, left, batch.seconds, indexes, batch.samples, *who)
        self._jobs[opened.ticket] = self._worker.take(work)

    def _recall(self, opened: OpenBatch, why: Unscored) -> None:
        self._worker.stop(self._jobs[opened.ticket], why)

    def _forget(self, opened: OpenBatch) -> None:
        self._jobs.pop(opened.ticket, None)

    def _emit(self, job: Job, results: list[Result], fault: Fault | None) -> None:
        if self._wanted is not None and self._wanted.texts:
            self.recorder.texts(self._wanted.take_texts())
        changes = self.engine.calls.changes
        if len(changes) > self._changes_told:
            self.changed(changes[self._changes_told :], job.work.ticket, results)
            self._changes_told = len(changes)
        try:
            self.landed(job.work.ticket, results, fault)
        except Exception:
            log.exception("results could not be landed")
        opened = self.find(job.work.ticket) if job.done else None
        if opened is not None:  # a result was lost by a bug of ours: an end all the same, and never a hang
            why = Unscored(reason=Reason.CONFIG, detail="internal error: its result was lost; see the log")
            self.land_unscored(opened, opened.batch.pending(), why)
