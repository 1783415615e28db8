"""The judge behind a manager: opened on first use where the settings say, plainly synchronous where that fails."""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Sequence

from referee import clock
from referee.config import Config, load
from referee.errors import ConfigError, RefereeError, TooManyUnscored
from referee.records import Reward, Sample, Settled, Verdict
from referee.shaping import shape_group
from referee.ticket import Ticket
from referee.trainers.shared import MISTAKES, Judged
from referee.trainers.verl.config import LengthPenaltyConfig, Mode

log = logging.getLogger("referee.trainers")

PROGRESS = 10.0
"""Seconds between two lines about how far a batch is, while somebody waits for it."""
OFF = Settled(verdict=Verdict(score=0.0, value=0.0, how="gate", reason="the judge is off"), origin="none")


class Backend:
    """One manager's judge, or none. Managers with equal settings share it within a process."""

    def __init__(self, config: LengthPenaltyConfig) -> None:
        self.config = config
        self._lock = threading.Lock()
        self._judged: Judged | None = None
        self._mode: Mode = config.mode
        self._plain = load({"shaping": config.shaping(), "missing": {"policy": "group_mean"}})

    @property
    def mode(self) -> Mode:
        """Where judging runs; `inline` once the asynchronous way has failed."""
        return self._mode

    def start(self) -> None:
        """Open the judge. Safe to call twice; does nothing without a judge."""
        if self.config.judges:
            self._open()
        else:
            log.warning("no judge: no key is given, or it is off; the reward is rule and length penalty alone")

    def close(self) -> None:
        """Let the judge go; it is closed when nobody in this process holds it. Safe to call twice."""
        with self._lock:
            judged, self._judged = self._judged, None
        if judged is None:
            return
        with _lock:
            _users[judged] -= 1
            last = _users[judged] <= 0
        if last:
            judged.close()

    def submit(self, samples: Sequence[Sample]) -> Ticket:
        """Start judging and return at once; in the synchronous mode, when it is done."""
        if not self.config.judges:
            return _settled(samples, self._plain)
        while True:
            judged = self._open()
            try:
                ticket = judged.referee.submit(samples, self._deadline(judged.config, len(samples)))
            except MISTAKES:
                raise
            except (RefereeError, OSError, RuntimeError) as error:
                if self._mode == "inline":
                    raise
                self._fall_back(error)
                continue
            return ticket

    def collect(self, ticket: Ticket) -> list[Reward]:
        """Wait for the rewards, saying now and then how far they are. An outage leaves samples unscored."""
        config = self._judged.config if self._judged is not None else self._plain
        started = clock.monotonic()
        while True:
            try:
                return ticket.result(PROGRESS)
            except TimeoutError:
                waited = clock.monotonic() - started
                log.info("judging: %d of %d rewards after %.0f s", ticket.landed(), len(ticket), waited)
            except RefereeError as error:
                rewards = [reward for reward in getattr(error, "rewards", None) or () if reward is not None]
                usable = len(rewards) == len(ticket) and any(reward.scored for reward in rewards)
                if not usable or config.missing.policy == "raise" or isinstance(error, (TooManyUnscored, *MISTAKES)):
                    raise
                log.error("%s What was judged before is used; the rest is filled", error)
                return rewards

    def _open(self) -> Judged:
        with self._lock:
            if self._judged is None:
                judged = self._made()
                with _lock:
                    _users[judged] += 1
                self._judged = judged
            return self._judged

    def _made(self) -> Judged:
        try:
            return Judged(self.config.settings(self._mode))
        except ConfigError as error:
            if self._mode == "inline":
                raise
            # The same settings, run plainly: if that fails too, the mode was not the trouble.
            judged = Judged(self.config.settings("inline"))
            self._mode = "inline"
            _warn(self.config.mode, error)
            return judged

    def _fall_back(self, error: Exception) -> None:
        self.close()
        self._mode = "inline"
        _warn(self.config.mode, error)

    def _deadline(self, config: Config, count: int) -> float | None:
        """One call after another needs more than a batch's usual time; it still has an end."""
        if self._mode != "inline":
            return None
        return max(config.limits.deadline, config.limits.attempt_timeout * count)


def _warn(mode: Mode, error: Exception) -> None:
    log.warning(
        "judging could not start asynchronously (%s: %s: %s); it runs synchronously instead, one call after another. "
        "Rewards are the same, but slow",
        mode,
        type(error).__name__,
        error,
    )


def _settled(samples: Sequence[Sample], config: Config) -> Ticket:
    """A ticket that is done: the length penalty alone."""
    ticket = Ticket(len(samples), lambda _: "", lambda: None)
    groups: dict[str | int, list[tuple[int, Sample, Settled]]] = {}
    for index, sample in enumerate(samples):
        groups.setdefault(sample.group or index, []).append((index, sample, OFF))
    rewards = [reward for members in groups.values() for reward in shape_group(members, config)]
    if samples:
        ticket.deliver(rewards, None, True)
    return ticket


_users: Counter[Judged] = Counter()
_lock = threading.Lock()
