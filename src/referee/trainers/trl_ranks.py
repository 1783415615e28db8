"""Groups of a TRL batch that are spread over ranks: gathered, judged on the rank of their first row, and given back.

Two collective calls that every rank makes: the rows, and their rewards. A rank that fails sends its error instead, and
all of them raise: none is left waiting for the others.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from typing import Any

from msgspec.structs import replace

from referee import clock
from referee.records import Reward, Sample
from referee.scoring.messages import Fault
from referee.trainers.shared import Judged


def gather_object(rows: list[Any]) -> list[Any]:
    """The rows of all ranks, in their order. A collective call, as TRL itself makes after its reward functions."""
    found: list[Any] = importlib.import_module("accelerate.utils").gather_object(rows)
    return found


class SpreadBatch:
    """The rows of one rank, rewarded with their siblings on other ranks. In place of a Pending, for one thread."""

    def __init__(self, judged: Judged, read: Callable[[], Sequence[Sample]], rank: int, size: int) -> None:
        """`read` makes this rank's samples, `size` rows are a group. Collective."""
        self._judged = judged
        self.waited_s = 0.0
        ranks = _shared(read)
        self._begin = sum(map(len, ranks[:rank]))
        self._end = self._begin + len(ranks[rank])
        rows = [sample for own in ranks for sample in own]
        # Ranks name the parts of a group differently: the name is that of its first row, which is on the rank that
        # judges it.
        self._own = [
            replace(rows[row], id=str(row), group=rows[row // size * size].group)
            for row in range(len(rows))
            if self._begin <= row // size * size < self._end
        ]

    def result(self) -> list[Reward]:
        """The rewards of this rank's rows. Collective."""
        began = clock.monotonic()
        # Each rank judges the groups that begin on it, so that one rank after the other they are the whole batch.
        found = _shared(lambda: self._judged.score(self._own) if self._own else [])
        self.waited_s += clock.monotonic() - began
        return [reward for own in found for reward in own][self._begin : self._end]


def _shared(work: Callable[[], Any]) -> list[Any]:
    """What `work` gives on each rank; the first error of any of them is raised on all."""
    try:
        mine = work()
    except Exception as error:
        gather_object([Fault(type(error).__name__, str(error), getattr(error, "reason", ""))])
        raise
    found = gather_object([mine])
    fault = next((one for one in found if isinstance(one, Fault)), None)
    if fault is not None:
        raise fault.error()
    return found
