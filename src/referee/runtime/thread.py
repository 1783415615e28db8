"""The default: a Scorer on a background event loop of this process."""

from __future__ import annotations

from referee.config import Config
from referee.engine.accounts import Accounts
from referee.runtime.background import Background
from referee.scoring.build import build_worker
from referee.scoring.local import BuildWorker, Scorer


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
        self._accounts: Accounts | None = None

    def open_accounts(self) -> Accounts | None:
        """The teams' accounts; what they have spent is looked up from now on. None: there are no teams."""
        self._start()
        if self._accounts is not None:
            self._on_loop(self._accounts.open)
        return self._accounts

    async def _begin(self) -> None:
        self._tracker = scorer = Scorer(self._config, self._build)
        self._accounts = scorer.accounts

    async def _end(self, seconds: float) -> None:
        assert isinstance(self._tracker, Scorer)
        await self._tracker.aclose()
