"""What a worker has taken and not finished: jobs, and the questions that wait for an answer. State only."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from referee.engine import Flight
from referee.judging import Judge
from referee.records import Ask, Sample, Settled
from referee.scoring.batch import groups_of
from referee.scoring.case import Case
from referee.scoring.messages import Result, Work

Judged = tuple[Settled, tuple[Any, ...]]
"""What one judge said of one sample, and its ledger lines."""


class Job:
    """Samples of one batch that this worker has taken: what is open, and when it is due."""

    __slots__ = (
        "client",
        "competes_for",
        "due",
        "held",
        "judged",
        "judges",
        "missing",
        "number",
        "open",
        "room",
        "rooms",
        "task",
        "timer",
        "unplanned",
        "work",
    )

    def __init__(
        self,
        client: str,
        work: Work,
        number: int,
        due: float,
        judges: Sequence[int] = (0,),
        rooms: Sequence[Callable[[], int]] = (),
        pools: frozenset[str] = frozenset(),
    ) -> None:
        self.client = client
        self.work = work
        self.number = number
        self.due = due
        self.judges = judges
        """Numbers of the judges that are asked, in order."""
        self.rooms = rooms
        """How many more questions the endpoints of each judge that must have room could take now."""
        self.competes_for = work.team, pools
        """Its team and the pools of those endpoints: jobs for which they are equal wait in one queue."""
        self.unplanned = len(work.samples)
        """How many samples were not given to all judges yet."""
        self.missing = set(range(len(work.samples)))
        """Places of samples without a result."""
        self.open: dict[Case, None] = {}
        """Cases with a round that is not answered. Questions that wait for an answer are in their slots."""
        self.held: list[Result] | None = None
        """Results that are handed over together, in the next turn of the loop or after a step of planning."""
        self.judged: dict[int, list[Judged | None]] = {}
        """With several judges: what is there of samples that still miss something, by place."""
        self.timer: asyncio.TimerHandle | None = None
        self.room = asyncio.Event()
        self.task: asyncio.Task[None] | None = None

    def __lt__(self, other: Job) -> bool:
        return (self.due, self.number) < (other.due, other.number)

    @property
    def done(self) -> bool:
        """True when every sample has its result."""
        return not self.missing

    def cases(self, judges: Sequence[Judge]) -> Iterator[tuple[Case, Judge, Sequence[Sample]]]:
        """Every case there is to begin, with its judge and its samples: group by group if a judge is given groups,
        otherwise sample by sample. `judges`: all there are."""
        samples, numbered = self.work.samples, [(number, judges[number]) for number in self.judges]
        units: Iterable[Sequence[int]] = zip(range(len(samples)), strict=True)
        if any(judge.unit == "group" for _, judge in numbered):
            units = groups_of(samples).values()
        for places in units:
            for number, judge in numbered:
                if len(places) == 1:
                    yield Case(number, places), judge, (samples[places[0]],)
                elif judge.unit == "group":
                    yield Case(number, places), judge, [samples[place] for place in places]
                else:
                    for place in places:
                        yield Case(number, (place,)), judge, (samples[place],)


class OpenAsk:
    """One question that waits for its answer. Called once, with how that came about. `before`: what it has cost in
    another form."""

    __slots__ = ("_answered", "before", "case", "flight", "job", "request", "slot")

    def __init__(
        self,
        answered: Callable[[OpenAsk, Settled], None],
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
