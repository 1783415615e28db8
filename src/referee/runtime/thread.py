"""The default place: a Scorer on a background event loop of this process."""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Callable
from typing import Any

from referee import clock
from referee.batch import Batch
from referee.build import build_scorer
from referee.config import Config
from referee.errors import TicketCancelled
from referee.records import Reason, Unscored
from referee.runtime.background import Background, new_loop
from referee.scorer import Scorer

__all__ = ["ThreadRuntime", "new_loop"]

log = logging.getLogger("referee.runtime")


class ThreadRuntime(Background):
    """A Scorer on a background event loop."""

    _who = "the judging thread"
    _name = "referee"

    def __init__(self, config: Config, build: Callable[[Config], Scorer] = build_scorer) -> None:
        self._config = config
        self._build = build
        super().__init__()

    def _reset(self) -> None:
        super()._reset()
        self._scorer: Scorer | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    def submit(self, batch: Batch) -> None:
        """Start judging in the background."""
        self._start().call_soon_threadsafe(self._run, batch, clock.monotonic())

    def cancel(self, batch: Batch) -> None:
        """Stop judging a batch."""
        scorer = self._scorer
        if scorer is not None:
            why = Unscored(reason=Reason.CANCELLED, detail="cancelled by the caller")
            self._on_loop(scorer.stop, batch, why)

    def record(self, line: Any) -> None:
        """Add a line to the ledger, from any thread."""
        scorer = self._scorer
        if scorer is not None:
            self._on_loop(scorer.recorder.write, line)

    def metrics(self) -> dict[str, float]:
        """Counts so far; zeros before the first batch."""
        scorer = self._scorer
        return {} if scorer is None else scorer.metrics()

    async def _begin(self) -> None:
        self._scorer = self._build(self._config)

    async def _end(self, seconds: float) -> None:
        assert self._scorer is not None
        await self._scorer.close()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _run(self, batch: Batch, submitted: float) -> None:
        assert self._scorer is not None
        batch.late = clock.monotonic() - submitted
        task = asyncio.get_running_loop().create_task(self._scorer.run(batch))
        self._tasks.add(task)
        task.add_done_callback(functools.partial(self._finished, batch))

    def _finished(self, batch: Batch, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            log.error("judging a batch failed unexpectedly", exc_info=task.exception())
        batch.fail(TicketCancelled("Judging this batch failed unexpectedly; see the log."))
