"""The default: a Scorer on a background event loop of this process."""

from __future__ import annotations

from typing import Any

from referee import clock
from referee.config import Config
from referee.engine.accounts import Accounts
from referee.ledger import Tally
from referee.records import Reason, Unscored
from referee.runtime.background import Background, new_loop
from referee.scoring.batch import Batch
from referee.scoring.build import build_worker
from referee.scoring.local import BuildWorker, Scorer

__all__ = ["ThreadRuntime", "new_loop"]


class ThreadRuntime(Background):
    """A Scorer on a background event loop."""

    _who = "the judging thread"
    _name = "referee"

    def __init__(self, config: Config, build: BuildWorker = build_worker) -> None:
        self._config = config
        self._build = build
        super().__init__()

    def _reset(self) -> None:
        super()._reset()
        self._scorer: Scorer | None = None

    def submit(self, batch: Batch) -> None:
        """Start judging in the background."""
        self._start().call_soon_threadsafe(self._run, batch, clock.monotonic())

    def cancel(self, batch: Batch) -> None:
        """Stop judging a batch."""
        scorer = self._scorer
        if scorer is not None:
            why = Unscored(reason=Reason.CANCELLED, detail="cancelled by the caller")
            self._on_loop(scorer.cancel, batch, why)

    def record(self, line: Any) -> None:
        """Add a line to the ledger, from any thread."""
        scorer = self._scorer
        if scorer is not None:
            self._on_loop(scorer.recorder.write, line)

    def metrics(self) -> dict[str, float]:
        """Counts so far; zeros before the first batch."""
        scorer = self._scorer
        return {} if scorer is None else scorer.metrics()

    def tally(self) -> Tally | None:
        """What they are counted by; None before the first batch."""
        return None if self._scorer is None else self._scorer.recorder.tally

    def open_accounts(self) -> Accounts | None:
        """The teams' accounts; what they have spent is looked up from now on. None: there are no teams."""
        self._start()
        accounts = self._scorer.accounts if self._scorer is not None else None
        if accounts is not None:
            self._on_loop(accounts.open)
        return accounts

    async def _begin(self) -> None:
        self._scorer = Scorer(self._config, self._build)

    async def _end(self, seconds: float) -> None:
        assert self._scorer is not None
        await self._scorer.aclose()

    def _run(self, batch: Batch, submitted: float) -> None:
        assert self._scorer is not None
        batch.late = clock.monotonic() - submitted
        self._scorer.submit(batch)
