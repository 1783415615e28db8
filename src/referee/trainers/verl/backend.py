"""The judge behind a manager: opened on first use where the settings say, plainly synchronous where that fails."""

from __future__ import annotations

import contextlib
import logging
import threading
import weakref
from collections import Counter
from collections.abc import Sequence

from referee import clock
from referee.config import Config, load
from referee.errors import RefereeError, TicketCancelled, TicketTimeout
from referee.records import Reason, Reward, Sample, Settled, Unscored, Verdict
from referee.ticket import Ticket
from referee.trainers.outcome import alike
from referee.trainers.shared import MISTAKES, Collect, Judged
from referee.trainers.verl.config import LengthPenaltyConfig, Mode, in_own_keys

log = logging.getLogger("referee.trainers")
documented = logging.getLogger("verl.workers.reward_manager")
"""Where the documents tell their users to look, and for which lines."""

PROGRESS = 10.0
"""Seconds between two lines about how far a batch is, while it is waited for."""
POLL = 1.0
"""Seconds of one wait for a batch; shorter than those after which the ticket itself would tell its progress."""
OFF = Settled(verdict=Verdict(score=0.0, value=0.0, how="gate", reason="the judge is off"), origin="none")


class Backend:
    """One manager's judge, or none. Managers with equal settings share it within a process."""

    def __init__(self, config: LengthPenaltyConfig) -> None:
        self.config = config
        self._lock = threading.Lock()
        self._judged: Judged | None = None
        self._mode: Mode = config.mode
        self._tickets: weakref.WeakKeyDictionary[Ticket, Collect] = weakref.WeakKeyDictionary()
        self._said_off = False
        with in_own_keys():
            self._plain = load({"shaping": config.shaping(), "missing": {"policy": "group_mean"}})
        self._policy = self._plain.missing.policy

    @property
    def mode(self) -> Mode:
        """Where judging runs; `inline` once the asynchronous way has failed."""
        return self._mode

    @property
    def judged(self) -> Judged | None:
        """The judge, opened if need be; None where it is off."""
        return self._open() if self.config.judges else None

    def start(self) -> None:
        """Open the judge. Safe to call twice; does nothing without a judge."""
        if self.config.judges:
            self._open()
        elif not self._said_off:
            self._said_off = True
            log.warning("no judge: no key is given, or it is off; the reward is rule and length penalty alone")

    def close(self) -> None:
        """Release the judge; it is closed when no manager of this process holds it. Safe to call twice."""
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
                with in_own_keys():
                    ticket, collect = self._submit(judged, samples)
            except MISTAKES:
                raise
            except (RefereeError, OSError, RuntimeError) as error:
                if self._mode == "inline":
                    raise
                self._fall_back(error)
                continue
            with self._lock:
                self._tickets[ticket] = collect
            return ticket

    def _submit(self, judged: Judged, samples: Sequence[Sample]) -> tuple[Ticket, Collect]:
        if self._mode != "inline":
            submitted = judged.ticket(samples)
            documented.info("Using TRUE ASYNC I/O for batch with %d responses (zero GPU wait)", len(samples))
            return submitted
        documented.info(
            "Using synchronous method for batch with %d responses (set use_async_io=True for async)", len(samples)
        )
        # One call after another needs more than a batch's usual time; it still has an end.
        limits, over = judged.config.limits, threading.Event()
        deadline = max(limits.deadline, limits.attempt_timeout * len(samples))

        def follow(ticket: Ticket) -> None:
            def say() -> None:
                while not over.wait(PROGRESS):
                    _say_progress(ticket)

            with contextlib.suppress(RuntimeError):  # no thread to be had: that may be why this mode runs at all
                threading.Thread(target=say, name="referee-progress", daemon=True).start()

        try:
            return judged.ticket(samples, deadline, started=follow)
        finally:
            over.set()

    def collect(self, ticket: Ticket) -> list[Reward]:
        """Wait for the rewards, saying now and then how far they are. An outage leaves samples unscored."""
        said = clock.monotonic()
        collect = self._tickets.get(ticket, Ticket.result)
        while True:
            try:
                with in_own_keys():
                    rewards = collect(ticket, min(POLL, PROGRESS))
            except TicketTimeout:
                if clock.monotonic() - said >= PROGRESS:
                    said = clock.monotonic()
                    _say_progress(ticket)
            else:
                return self._unless_stopped(rewards)

    def _unless_stopped(self, rewards: list[Reward]) -> list[Reward]:
        """The rewards, with a warning if some are missing because judging was stopped; an error if all are."""
        stopped = sum(isinstance(r.verdict, Unscored) and r.verdict.reason is Reason.CANCELLED for r in rewards)
        if not stopped:
            return rewards
        if not any(r.scored and r.settled.origin in ("call", "cache", "shared") for r in rewards):
            raise TicketCancelled(
                f"judging was stopped before any of these {len(rewards)} responses had a verdict: shutdown_workers() "
                "or cancel() was called between submit() and collect(). There are no rewards; submit the batch again."
            )
        log.warning(
            "judging was stopped, by shutdown_workers() or cancel(), when %d of %d responses had no verdict: they get "
            "what [missing] policy = %r gives",
            stopped,
            len(rewards),
            self._policy,
        )
        return rewards

    def _open(self) -> Judged:
        with self._lock:
            if self._judged is None:
                with in_own_keys():
                    judged = Judged(self.config.settings(self._mode))
                with _lock:
                    _users[judged] += 1
                self._judged, self._policy = judged, judged.config.missing.policy
            return self._judged

    def _fall_back(self, error: Exception) -> None:
        self.close()
        log.warning(
            "judging could not start asynchronously (%s: %s: %s); it runs synchronously instead, one call after "
            "another. Rewards are the same, but slow",
            self._mode,
            type(error).__name__,
            error,
        )
        self._mode = "inline"


def _say_progress(ticket: Ticket) -> None:
    documented.info("Waiting for OpenAI results... %.1f%% complete", 100 * ticket.settled() / len(ticket))


def _settled(samples: Sequence[Sample], config: Config) -> Ticket:
    """A ticket that is done: the length penalty alone."""
    ticket = Ticket(len(samples), lambda _: "", lambda: None)
    if samples:
        ticket.deliver(alike(samples, config, OFF), None, True)
    return ticket


_users: Counter[Judged] = Counter()
_lock = threading.Lock()
