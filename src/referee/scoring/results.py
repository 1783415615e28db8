"""What judges said of a job's samples, gathered into one result for each sample."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

from referee import clock
from referee.config import Config
from referee.records import Settled, Unscored
from referee.scoring.case import Case
from referee.scoring.job import Job, Judged
from referee.scoring.lines import LineMaker
from referee.scoring.messages import Result
from referee.scoring.tracing import Tracer, open_tracer

log = logging.getLogger("referee")


class ResultMaker:
    """Makes a sample's result once every judge is done with it, with its ledger lines."""

    def __init__(self, config: Config, lines: LineMaker) -> None:
        self._lines = lines
        self._tracer = open_tracer(config)

    def add(self, job: Job, case: Case, results: list[Result]) -> None:
        """A judge is done with its samples: those that miss nothing any more have their result."""
        for which, place in enumerate(case.places):
            if place not in job.missing:
                continue
            settled = case.settled(which)
            lines = self._lines_of(job, place, case.judge, settled, case)
            if len(job.judges) == 1:
                job.missing.discard(place)
                results.append(Result(job.work.indexes[place], (settled,), lines))
                continue
            have = job.judged.setdefault(place, [None] * len(job.judges))
            have[job.judges.index(case.judge)] = settled, lines
            if None not in have:
                job.missing.discard(place)
                results.append(_result(job, place, job.judged.pop(place)))
        if self._tracer is not None:
            _trace(self._tracer, job, case)

    def add_missing(self, job: Job, why: Unscored, results: list[Result]) -> None:
        """Nothing more is asked: every sample without a result gets one, with `why` where a judge said nothing."""
        never = Settled(verdict=why)
        for place in sorted(job.missing):
            have = job.judged.pop(place, [None] * len(job.judges))
            for which, judge in enumerate(job.judges):
                have[which] = have[which] or (never, self._lines_of(job, place, judge, never, None))
            results.append(_result(job, place, have))
        job.missing.clear()

    def _lines_of(self, job: Job, place: int, judge: int, settled: Settled, case: Case | None) -> tuple[Any, ...]:
        try:
            return self._lines.of(job.client, job.work, place, judge, settled, case)
        except Exception:  # the verdict is there; a record that cannot be kept must not withhold it
            log.exception("the record of a sample could not be made")
            return ()


def _result(job: Job, place: int, judged: Sequence[Judged | None]) -> Result:
    found = [one for one in judged if one is not None]
    lines = tuple([line for _, lines in found for line in lines])
    return Result(job.work.indexes[place], tuple([settled for settled, _ in found]), lines)


def _trace(tracer: Tracer, job: Job, case: Case) -> None:
    try:
        for request, settled in case.asked:
            tracer.settled(case.judge, job.work.samples[case.places[0]], request, settled, clock.wall())
    except Exception:  # a tracer of the user's must not withhold results
        log.exception("the spans of a sample could not be made")
