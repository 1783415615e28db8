"""What a worker has taken and not finished: jobs, and the questions that wait for an answer. State only."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from referee.engine import Flight
from referee.records import Ask, Settled
from referee.scoring.case import Case
from referee.scoring.messages import Result, Work

Judged = tuple[Settled, tuple[Any, ...]]
"""What one judge said of one sample, and its ledger lines."""


class Job:
    """Samples of one batch that this worker has taken: what is open, and when it is due."""

    __slots__ = ("cases", "client", "due", "held", "missing", "number", "room", "settled", "task", "timer", "work")

    def __init__(self, client: str, work: Work, number: int, due: float) -> None:
        self.client = client
        self.work = work
        self.number = number
        self.due = due
        self.missing = set(range(len(work.samples)))
        """Places of samples without a result."""
        self.cases: dict[Case, None] = {}
        """Open cases. Questions that wait for an answer stand in their slots."""
        self.held: list[Result] | None = None
        """Results that are handed over together, in the next turn of the loop or after a step of planning."""
        self.settled: dict[int, list[Judged | None]] = {}
        """With several judges: what is there of samples that still miss something."""
        self.timer: asyncio.TimerHandle | None = None
        self.room = asyncio.Event()
        self.task: asyncio.Task[None] | None = None

    def __lt__(self, other: Job) -> bool:
        return (self.due, self.number) < (other.due, other.number)

    @property
    def done(self) -> bool:
        """True when every sample has its result."""
        return not self.missing


class Open:
    """One question that waits for its answer. Called once, with how that came about. `before`: what it has cost in
    another form."""

    __slots__ = ("_answered", "before", "case", "flight", "job", "request", "slot")

    def __init__(
        self,
        answered: Callable[[Open, Settled], None],
        job: Job,
        case: Case,
        slot: int,
        request: Ask,
        before: Settled,
    ) -> None:
        self._answered = answered
        self.job = job
        self.case = case
        self.slot = slot
        self.request = request
        self.before = before
        self.flight: Flight | None = None

    def __call__(self, settled: Settled) -> None:
        self._answered(self, settled)


def result_of(job: Job, place: int, judged: Sequence[Judged | None]) -> Result:
    """One sample's result, of what every judge said of it."""
    found = [one for one in judged if one is not None]
    lines = tuple([line for _, lines in found for line in lines])
    return Result(job.work.indexes[place], tuple([settled for settled, _ in found]), lines)
