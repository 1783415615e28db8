"""What every trainer's adapter stands on: one judge per process and configuration, opened when it is first used.

`Judged` is small and picklable; connections, loops and keys stay in the process that opened them. An outage of the
judge never stops a trainer: what could not be scored comes back as `[missing] policy` says. Only these are raised:
policy = "raise", more unscored samples than `[missing] abort_above` allows, an alarm with `[audit] on_alarm = "stop"`,
and mistakes in the set-up. A judge that is closed before it has given a single verdict is such a mistake: a wrong key,
an empty account, a wrong address.
No framework is imported here.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from referee.config import Config, load
from referee.errors import (
    ConfigError,
    EndpointClosed,
    InputError,
    RefereeError,
    RewardHacked,
    TicketTimeout,
    TooManyUnscored,
    UnscoredError,
    WrongContext,
)
from referee.records import Reason, Reward, Sample
from referee.referee import Referee
from referee.scoring.batch import listed
from referee.shaping import UnscoredWatch
from referee.ticket import Ticket
from referee.trainers.outcome import unscored
from referee.trainers.plain_config import identity, plain
from referee.trainers.record import announce, with_record, without_record
from referee.trainers.row_check import RowCheck
from referee.trainers.rows import NAMES, REFERENCES, has_reference, row_columns, to_sample, to_samples
from referee.trainers.siblings import refuse_siblings

log = logging.getLogger("referee.trainers")

Source = str | Path | Mapping[str, Any] | Config
"""A path of a referee.toml, a mapping with the same keys, or a Config."""

Collect = Callable[[Ticket, float], list[Reward]]
"""Rewards of a ticket, waiting for them this many seconds: then TicketTimeout."""

CONFIG_VARIABLE = "REFEREE_CONFIG"
DATASET = f"the dataset a column with the known answer, named {', '.join(REFERENCES[:-1])} or {REFERENCES[-1]}"
MISTAKES = (ConfigError, InputError, WrongContext)
"""Errors in the set-up. Nothing can be judged before they are fixed, so they are always raised."""
STOPS = (TooManyUnscored, RewardHacked)
"""The user's own conditions for ending a run: always raised, too."""
OUTAGES = (RefereeError, OSError, RuntimeError)
"""Errors of the world: endpoints, threads, processes, files. They end as samples without a score."""


class Judged:
    """A judge as a trainer's hook holds it: cheap to make, safe to pickle, to fork and to call from any thread.

    Equal configurations share one Referee in a process. `score`, `ascore` and `submit` give rewards in the order of
    the samples; `Reward.value` is None where there is no reward (policy "abstain", or no sibling for a group_mean).
    """

    __slots__ = ("_identity", "config")

    def __init__(self, source: Source) -> None:
        """Reads and checks the configuration now; REFEREE_* variables override a file or a mapping, not a Config."""
        if isinstance(source, Mapping):
            source = plain(source)
        self.config = load(source, os.environ)
        self._identity = identity(self.config)

    @property
    def referee(self) -> Referee:
        """This process's Referee for the configuration, opened on first use."""
        return _open(self._identity, self.config).referee

    def submit(self, samples: Iterable[Sample], deadline: float | None = None, *, shaped: bool = True) -> Pending:
        """Start judging and return at once. `deadline`: seconds, if not the configured ones; `shaped`: see Referee."""
        samples = listed(samples)
        opened = _open(self._identity, self.config)
        try:
            return Pending(opened, samples, opened.submit(samples, deadline, shaped=shaped), None)
        except MISTAKES:
            raise
        except OUTAGES as error:
            return Pending(opened, samples, None, error)

    def ticket(self, samples: Sequence[Sample], deadline: float | None = None, **more: Any) -> tuple[Ticket, Collect]:
        """As `Referee.submit`, where an outage is an error; and what collects the ticket, where it is none."""
        opened, samples = _open(self._identity, self.config), listed(samples)

        def collect(ticket: Ticket, timeout: float) -> list[Reward]:
            return Pending(opened, samples, ticket, None).result(timeout)

        return opened.submit(samples, deadline, **more), collect

    def score(self, samples: Iterable[Sample], deadline: float | None = None) -> list[Reward]:
        """Judge and wait, in this thread."""
        return self.submit(samples, deadline).result()

    async def ascore(self, samples: Iterable[Sample], deadline: float | None = None) -> list[Reward]:
        """Judge and wait on any event loop, a new one each time if need be. Cancelling it stops the judging."""
        return await (await self.asubmit(samples, deadline))

    async def asubmit(
        self, samples: Iterable[Sample], deadline: float | None = None, *, shaped: bool = True
    ) -> Pending:
        """As `submit`, on an event loop that may not be held up."""
        if self.config.runtime == "thread" and self._identity in _opened:
            # No thread of the caller's pool, which may be full of waiters.
            return self.submit(samples, deadline, shaped=shaped)
        return await asyncio.to_thread(self.submit, listed(samples), deadline, shaped=shaped)

    def close(self) -> None:
        """Close this process's Referee for the configuration. The next use opens another."""
        with _lock:
            opened = _opened.pop(self._identity, None)
        if opened is not None:
            opened.referee.close()

    def needs(self, hook: str, *, can_abstain: bool, sees_groups: bool, instead: str = "") -> Judged:
        """Refuse settings that a hook cannot keep, before training starts. Returns itself.

        `can_abstain`: the framework has a signal for "no reward". `sees_groups`: the hook sees the answers to one
        prompt together. `instead`: the one that does, for one that does not.
        """
        policy = self.config.missing.policy
        if policy == "abstain" and not can_abstain:
            others = '"group_mean", "value" or "raise"' if sees_groups else '"value" (with the number) or "raise"'
            raise ConfigError(
                f'{hook} has no way to say "no reward": [missing] policy = "abstain" cannot be kept there, and a 0 '
                f"would count as the judge's. Set policy to {others}.",
                setting="missing.policy",
            )
        if not sees_groups:
            refuse_siblings(self.config, hook, instead)
        return self

    def sample(self, prompt: Any, response: Any, row: Mapping[str, Any], where: str, **more: Any) -> Sample:
        """One rollout of a hook that sees one at a time, after a check that its row holds what the judge needs.

        `row`: the rollout's other columns. `where`: what to add, to what, if the known answer is missing. `more`: as in
        `rows.to_sample`.
        """
        check = self._check()
        names = more.get("names", NAMES)
        check.check(row, has_reference(row), where, zip(names, (prompt, response), strict=True))
        return to_sample(prompt, response, row=row, shown=check.shown, polarity=check.polarity, **more)

    def samples(
        self,
        prompts: Sequence[Any],
        responses: Sequence[Any],
        ids: Sequence[Sequence[int] | None] | None,
        columns: Mapping[str, Any],
        step: int | None = None,
        **more: Any,
    ) -> list[Sample]:
        """A batch as samples, after the same check of its columns. `more`: as in `rows.to_samples`."""
        check = self._check()
        found = row_columns(columns, len(prompts))
        texts = [(name, rows[0]) for name, rows in (("prompts", prompts), ("completions", responses)) if len(rows)]
        check.check(found, has_reference(columns), DATASET, texts)
        return to_samples(prompts, responses, ids, found, step, shown=check.shown, polarity=check.polarity, **more)

    def unknown(self, samples: Sequence[Sample], why: str) -> list[Reward]:
        """Rewards of samples whose answer the hook cannot find: not judged, filled as the policy says."""
        return _open(self._identity, self.config).failed(UnscoredError(why), samples)

    def _check(self) -> RowCheck:
        found = _checks.get(self._identity)
        if found is None:
            found = _checks[self._identity] = RowCheck(self.config)
        return found

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Judged) and other._identity == self._identity

    def __hash__(self) -> int:
        return hash(self._identity)

    def __reduce__(self) -> tuple[Any, ...]:
        return Judged, (self.config,)

    def __repr__(self) -> str:
        judges = ", ".join(f"{endpoint.model} at {endpoint.label}" for endpoint in self.config.endpoint)
        kinds = ", ".join(judge.kind for judge in self.config.judge)
        return f"Judged({kinds} by {judges})"


class Pending:
    """Rewards on their way: `result()` in a thread, `await` on a loop. Can be asked more than once."""

    __slots__ = ("_error", "_opened", "_rewards", "_ticket", "samples")

    def __init__(
        self, opened: _OpenReferee, samples: tuple[Sample, ...], ticket: Ticket | None, error: Exception | None
    ) -> None:
        self._opened = opened
        self.samples = samples
        self._ticket = ticket
        self._error = error
        self._rewards: list[Reward] | None = None

    def cancel(self) -> None:
        """Stop judging; what has no verdict yet stays unscored."""
        if self._ticket is not None:
            self._ticket.cancel()

    def rewarded(self, rewards: Sequence[Reward]) -> None:
        """What the trainer was given for them, where they were submitted with shaped=False; for the record."""
        if self._ticket is not None:
            self._ticket.rewarded(rewards)

    @property
    def weight(self) -> float:
        """The audit's factor on the judges' part of the reward, for callers that compute their own."""
        return 1.0 if self._ticket is None else self._ticket.weight

    @property
    def waited_s(self) -> float:
        """Seconds callers have waited for it, so far."""
        return 0.0 if self._ticket is None else self._ticket.waited_s

    def result(self, timeout: float | None = None) -> list[Reward]:
        """The rewards in the order of the samples. Ends by the deadline, or by TicketTimeout after `timeout`."""
        if self._rewards is None:  # once: failures are counted when they are collected
            try:
                self._rewards = self._opened.succeeded(self._submitted().result(timeout))
            except TicketTimeout:
                raise
            except BaseException as error:
                self._rewards = self._failed(error)
        return self._rewards

    def __await__(self) -> Generator[Any, None, list[Reward]]:
        return self._wait().__await__()

    async def _wait(self) -> list[Reward]:
        try:
            await self._submitted()
        except BaseException as error:
            if self._rewards is None or not isinstance(error, OUTAGES):  # another waiter may have counted the outage
                self._rewards = self._failed(error)
        return self.result()

    def _submitted(self) -> Ticket:
        if self._ticket is None:
            assert self._error is not None
            raise self._error
        return self._ticket

    def _failed(self, error: BaseException) -> list[Reward]:
        if not isinstance(error, OUTAGES):
            self.cancel()
            raise error
        return self._opened.failed(error, self.samples)


class _OpenReferee:
    """A Referee in this process, and how long it has been failing."""

    def __init__(self, config: Config) -> None:
        self._named_in = None if config.ledger.dir is None else os.getpid()
        """The process whose mistake a folder is that cannot be written; None for one of our choice."""
        self.config, announces = with_record(config)
        self.referee = Referee(self.config)
        if announces and identity(config) not in _announced:
            _announced.add(identity(config))
            announce(self.config)
        self._watch = UnscoredWatch(config.missing.abort_above)
        """Over all batches: the engine's own does not see the rest of one that ended in an error."""
        self._served = False
        self._logged: set[str] = set()
        """What was logged and lasts: an outage, an unknown answer, the end of the run."""

    def submit(self, samples: Iterable[Sample], deadline: float | None, **more: Any) -> Ticket:
        """As the Referee's. A folder of our choice, or one that the process before a fork could write, costs the
        record and not the run."""
        referee, samples = self.referee, listed(samples)
        try:
            return referee.submit(samples, deadline, **more)
        except ConfigError as error:
            if error.setting != "ledger.dir" or self._named_in == os.getpid():
                raise
            with _lock:
                if self.referee is referee:
                    log.warning("no record of this run is kept from here on: %s", error)
                    self.config = without_record(self.config)
                    self.referee = Referee(self.config)
            return self.submit(samples, deadline, **more)

    def succeeded(self, rewards: list[Reward]) -> list[Reward]:
        """A batch came back as it should."""
        for reward in rewards:
            self._watch.observe(reward.verdict)
        if self._note(rewards):
            self._logged.discard("outage")
        return rewards

    def _note(self, rewards: Sequence[Reward]) -> bool:
        """Whether a judge has given a verdict in these. One out of the cache or from a gate says nothing about it."""
        served = any(reward.scored and reward.settled.origin in ("call", "shared") for reward in rewards)
        self._served = self._served or served
        return served

    def failed(self, error: Exception, samples: Sequence[Sample]) -> list[Reward]:
        """What a batch gives that ended in an error, by the policy; or the error, where that is the policy."""
        rewards = [reward for reward in getattr(error, "rewards", None) or () if reward is not None]
        self._note(rewards)
        if isinstance(error, STOPS) or (isinstance(error, EndpointClosed) and not self._served):
            # Some frameworks swallow what a hook raises.
            self._log_once("end", "raised to end the run, and not counted as an outage: %s", error)
            raise error
        if isinstance(error, MISTAKES) or self.config.missing.policy == "raise":
            raise error
        unknown = isinstance(error, UnscoredError)  # no outage: it may come with any sample, between judged ones
        if len(rewards) != len(samples):
            reason = Reason.CONFIG if unknown else Reason.CONNECTION
            rewards = unscored(samples, self.config, f"{type(error).__name__}: {error}", reason)
        self._log_once(
            "unknown answer" if unknown else "outage",
            "%d of %d samples are not scored (%s: %s). They get what [missing] policy = %r gives; the run goes on",
            sum(not reward.scored for reward in rewards),
            len(samples),
            type(error).__name__,
            error,
            self.config.missing.policy,
        )
        if any([self._watch.observe(reward.verdict) for reward in rewards]):
            self._watch = UnscoredWatch(self.config.missing.abort_above)
            self._logged.clear()
            raise error
        return rewards

    def _log_once(self, what: str, message: str, *values: Any) -> None:
        if what not in self._logged:
            self._logged.add(what)
            log.error(message, *values)


def from_environment() -> Judged:
    """For hooks that a framework loads by path: the configuration that REFEREE_CONFIG names, or ./referee.toml."""
    path = os.path.abspath(os.environ.get(CONFIG_VARIABLE) or "referee.toml")
    found = _read.get(path)
    if found is None:
        if not os.path.exists(path):
            raise ConfigError(
                f"{path}: no such file. Name your referee.toml in {CONFIG_VARIABLE}, for every process that computes "
                "rewards (Ray: runtime_env env_vars).",
                setting=CONFIG_VARIABLE,
            )
        found = _read[path] = Judged(path)
    return found


_read: dict[str, Judged] = {}
_checks: dict[str, RowCheck] = {}
_opened: dict[str, _OpenReferee] = {}
_announced: set[str] = set()
_lock = threading.Lock()


def _open(identity: str, config: Config) -> _OpenReferee:
    with _lock:
        if identity not in _opened:
            _opened[identity] = _OpenReferee(config)
        return _opened[identity]


def close_all() -> None:
    """Close every Referee that adapters opened in this process."""
    with _lock:
        everything = list(_opened.values())
        _opened.clear()
        _read.clear()
        _checks.clear()
    for opened in everything:
        opened.referee.close()


def _after_fork() -> None:
    """The lock may have been held at the fork. The Referees themselves know how to live on in a child."""
    global _lock
    _lock = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
