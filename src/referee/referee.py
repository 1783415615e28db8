"""Referee: samples in, rewards out. `submit` returns at once; collect when advantages are due."""

from __future__ import annotations

import asyncio
import functools
import itertools
import logging
import os
import weakref
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from referee import clock
from referee.audit.auditor import Auditor
from referee.audit.clients import without_share
from referee.config import Config, anchored, chosen_judges, counts, load, price_words, runs_here, team_of
from referee.engine import Endpoint, find_key
from referee.engine.accounts import Accounts
from referee.errors import InputError, RefereeError, WrongContext
from referee.ledger import BatchLine, NoteLine, Tally, TotalLine, common_step, reward_line
from referee.ledger.histograms import Buckets
from referee.records import Reason, Reward, Sample, Unscored, Verdict
from referee.runtime import Runtime, open_runtime
from referee.runtime.inline import loop_is_running
from referee.runtime.thread import ThreadRuntime
from referee.scoring.batch import Batch, listed
from referee.scoring.build import build_judges, build_worker, with_rubrics
from referee.scoring.local import BuildWorker
from referee.shaping import is_gated, weighted
from referee.ticket import Ticket

if TYPE_CHECKING:
    from referee.local.shared import SharedServer

log = logging.getLogger("referee")

MAX_QUOTED_CHARS = 300
"""Of a judge's reply, in a warning."""
WARN_EVERY_S = 600.0
"""Seconds between two warnings that nothing of a batch was judged: an outage may last for hours, or come again."""


class Referee:
    """An LLM judge as a reward. Thread-safe; survives fork; use as a context manager or call `close`."""

    def __init__(self, config: Config, build: BuildWorker = build_worker) -> None:
        """Checks what can be checked without a call: keys are there, the prompt template is sound."""
        config = with_rubrics(anchored(load(config)))
        for endpoint in config.endpoint:
            Endpoint(endpoint, config.limits, find_key(endpoint))
            log.info("%s: %s", endpoint.label, price_words(endpoint))
        build_judges(config, b"")
        self.config = config
        self._servers = _start_servers(config) if build is build_worker else ()
        self._runtime: Runtime = open_runtime(without_share(config), build)
        # Without `close`, the background thread would run on after the Referee is collected.
        weakref.finalize(self, self._runtime.close, 0.0).atexit = False
        self._auditor: Auditor | None = None
        if config.audit.enable:
            self._auditor = Auditor(config, self._runtime.record, functools.partial(Referee, build=build))
            weakref.finalize(self, self._auditor.close, 0.0).atexit = False
        self._numbers = itertools.count(1)
        self._waited_s = 0.0
        self._warned_of_loop = False
        self._warn_after = 0.0
        self._total, self._told = TotalLine(), TotalLine()
        self._begun, self._early = False, list[NoteLine]()
        """Whether there was a batch, and so a ledger; what was announced before."""

    @classmethod
    def from_config(cls, source: str | Path | Mapping[str, Any] | Config) -> Referee:
        """From a TOML file or a mapping, whose keys REFEREE_* environment variables override, or from a Config as is.

        Variables do not apply to a Config: it may have been changed on purpose after it was read (one worker's share of
        a rate, say). `referee.config.load(source, os.environ)` applies them.
        """
        return cls(load(source, os.environ))

    def submit(
        self,
        samples: Iterable[Sample],
        deadline: float | None = None,
        *,
        shaped: bool = True,
        caller: str = "",
        judges: Iterable[str] = (),
        team: str = "",
        started: Callable[[Ticket], None] | None = None,
    ) -> Ticket:
        """Start judging and return at once. `deadline`: seconds for the batch, instead of limits.deadline. `caller`:
        callers share capacity fairly; batches of one caller are judged by deadline.

        `judges`: names of those that judge this batch and make its rewards, with their weights; none: all, or those of
        the team. `team`: a [[team]] of the configuration, whose budget and rate the batch uses.

        `shaped=False`: the caller computes its own rewards from the verdicts and passes them to `Ticket.rewarded`; the
        ledger records those instead of the ticket's. `started`: called with the ticket before anything is judged; with
        runtime = "inline" this call returns when all is done.
        """
        samples = listed(samples)
        seconds = self.config.limits.deadline if deadline is None else deadline
        if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not seconds > 0:
            raise InputError(f"deadline must be a positive number of seconds, not {deadline!r}.", field="deadline")
        if not isinstance(caller, str):
            raise InputError(f"caller must be a name, not {type(caller).__name__}.", field="caller")
        config, asked = self._narrowed(judges, team)
        name = f"{os.getpid()}-{next(self._numbers)}"
        batch: Batch
        runtime = self._runtime  # not self: a ticket must not keep the Referee alive
        ticket = Ticket(len(samples), runtime.trouble, lambda: runtime.cancel(batch))
        # A batch of some of the judges is not on the scale of the others: the audit leaves it out.
        auditor = self._auditor if not asked else None
        ticket.weight = 1.0 if auditor is None else auditor.weight_for(samples)
        batch = Batch(name, samples, weighted(config, ticket.weight), seconds, ticket.deliver)
        if auditor is not None:
            ticket.on_done = functools.partial(auditor.put, name, batch.samples)
            ticket.hacked = auditor.hacked
        batch.caller, batch.team, batch.asked = caller, team, asked
        submitted = clock.wall()
        ticket.count_settled = lambda: batch.settled
        ticket.on_collect = functools.partial(self._collected, batch, submitted)
        if not shaped:
            batch.shaped = False
            ticket.on_rewards = functools.partial(self._rewarded, batch)
        if started is not None:
            started(ticket)
        if samples:
            self._runtime.submit(batch)
            self._begun = True
            early, self._early = self._early, []
            for note in early:
                self._runtime.record(note)
            if self._total != self._told:
                self._told = self._total
                self._runtime.record(replace(self._total, wall=clock.wall()))
        return ticket

    def expect(self, samples: int = 0, steps: int = 0, *, resumed: bool = False) -> None:
        """Say how much there will be to judge, by all processes together: `referee watch` then shows what is done of it
        and how long the rest takes. 0: not known. `resumed`: what earlier starts have judged, in the same ledger, is
        part of it. It is in the ledger with the next batch."""
        self._total = TotalLine(samples=samples, steps=steps, resumed=resumed)

    def score(self, samples: Iterable[Sample], timeout: float | None = None) -> list[Reward]:
        """Judge and wait. Inside a running event loop this blocks that loop: use `ascore` there."""
        if not self._warned_of_loop and loop_is_running():
            self._warned_of_loop = True
            log.warning("score() blocks the event loop it is called from; use `await referee.ascore(...)`")
        ticket = self.submit(samples)
        try:
            return ticket.result(timeout)
        except BaseException as error:
            if not isinstance(error, RefereeError) or isinstance(error, TimeoutError):
                ticket.cancel()
            raise

    async def ascore(self, samples: Iterable[Sample]) -> list[Reward]:
        """Judge and wait without blocking the caller's event loop. Cancelling it stops the judging."""
        submitting = asyncio.ensure_future(asyncio.to_thread(self.submit, listed(samples)))
        try:
            ticket = await asyncio.shield(submitting)
        except asyncio.CancelledError:
            submitting.add_done_callback(_cancel_ticket)  # the thread cannot be stopped and submits anyway
            raise
        try:
            return await ticket
        except asyncio.CancelledError:
            ticket.cancel()
            raise

    def open_accounts(self) -> Accounts | None:
        """What teams have spent and may spend, looked up from now on; None without teams. For looking only."""
        return self._runtime.open_accounts() if isinstance(self._runtime, ThreadRuntime) else None

    def metrics(self) -> dict[str, float]:
        """Counts and gauges so far, by the stable names of `referee docs metrics`."""
        audit = {} if self._auditor is None else self._auditor.metrics()
        return {**self._runtime.metrics(), "wait_s": self._waited_s, **audit}

    @property
    def auditor(self) -> Auditor | None:
        """The audit of this run, if `[audit]` is enabled: its open alarms, and what it found so far."""
        return self._auditor

    def announce(self, why: str) -> None:
        """Something was changed on purpose (the judge, the data, a setting): the audit learns anew what is usual, and
        the ledger says so."""
        note = NoteLine(wall=clock.wall(), what="announced", text=why)
        if not self._begun:
            self._early.append(note)
        elif self._auditor is not None:
            self._auditor.announce(why)
        else:
            self._runtime.record(note)

    def histograms(self) -> dict[str, Buckets]:
        """Durations and verdicts by size so far, by name (`referee docs metrics`). Differences of two give a window."""
        names = [judge.name for judge in self.config.judge]
        return (self._runtime.tally() or Tally(names if len(names) > 1 else ())).histograms()

    def start(self) -> None:
        """Bring up the judging thread or processes now rather than with the first batch, and raise what that would."""
        self._runtime.start()

    def close(self, seconds: float = 10.0) -> None:
        """Cancel what is in flight and flush all records. Safe to call twice."""
        until = clock.monotonic() + seconds
        if self._auditor is not None:
            self._auditor.close(seconds / 2)
        self._runtime.close(max(0.0, until - clock.monotonic()))
        for server in self._servers:
            server.close()

    def __enter__(self) -> Referee:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __reduce__(self) -> Any:
        raise WrongContext(
            "a Referee does not pickle: it holds connections and a key. Send its configuration (path or mapping) and "
            "make one where it is needed."
        )

    def __repr__(self) -> str:
        judges = ", ".join(f"{endpoint.model} at {endpoint.label}" for endpoint in self.config.endpoint)
        kinds = ", ".join(judge.kind for judge in self.config.judge)
        return f"Referee({kinds} by {judges}, runtime={self.config.runtime})"

    def _narrowed(self, names: Iterable[str], team: str) -> tuple[Config, tuple[int, ...]]:
        """The configuration of a batch that only some of the judges judge, and their numbers; none for all."""
        names = (names,) if isinstance(names, str) else tuple(names)
        allowed = team_of(self.config, team).judges if team else ()
        for name in names if allowed else ():
            if name not in allowed:
                raise InputError(
                    f"judges: team {team!r} may not use {name!r}. It has: {', '.join(allowed)}.", field="judges"
                )
        judges = chosen_judges(self.config.judge, names or allowed)
        if len(judges) == len(self.config.judge):
            return self.config, ()
        if not counts(judges, self.config.judge):
            raise InputError(
                f"judges: {', '.join(names)} have weight 0, so nothing would be rewarded. Name one that counts, too.",
                field="judges",
            )
        return replace(self.config, judge=judges), tuple(map(self.config.judge.index, judges))

    def _rewarded(self, batch: Batch, rewards: Sequence[Reward]) -> None:
        wall = clock.wall()
        for reward in rewards:
            step = batch.samples[reward.index].step
            self._runtime.record(reward_line(reward, wall=wall, batch=batch.id, step=step, team=batch.team))

    def _collected(self, batch: Batch, submitted: float, ticket: Ticket, rewards: list[Reward]) -> None:
        self._waited_s += ticket.waited_s
        if clock.monotonic() >= self._warn_after and (_warn_of_unscored(rewards) or _warn_of_gates(rewards)):
            self._warn_after = clock.monotonic() + WARN_EVERY_S
        self._runtime.record(
            BatchLine(
                wall=clock.wall(),
                batch=batch.id,
                samples=len(batch.samples),
                step=common_step(batch.samples),
                submitted=submitted,
                finished=ticket.finished,
                waited_s=ticket.waited_s,
            )
        )


def _start_servers(config: Config) -> Sequence[SharedServer]:
    """Embedded servers, so that workers find them running. On Ray they start where the engines are."""
    if config.runtime == "ray" or not any(map(runs_here, config.endpoint)):
        return ()
    from referee.local.shared import attach  # only where it is used: it is no small import

    return attach(config)[1]


def _warn_of_unscored(rewards: Sequence[Reward]) -> bool:
    """Log why no sample of a batch was scored, with one of the judge's replies if there is any."""
    if any(reward.scored and not is_gated(reward.verdict) for reward in rewards):
        return False
    missing = [(reward.verdict, reward.settled.reply) for reward in rewards if isinstance(reward.verdict, Unscored)]
    reasons = Counter(verdict.reason for verdict, _ in missing if verdict.reason is not Reason.CANCELLED)
    if not reasons:
        return False
    first = reasons.most_common(1)[0][0]
    detail, reply = next((verdict.detail, reply) for verdict, reply in missing if verdict.reason is first)
    said = f" The judge's reply, for example: {reply.text[:MAX_QUOTED_CHARS]!r}" if reply is not None else ""
    log.warning(
        "no sample of a batch of %d was scored (%s). First %s: %s.%s",
        len(rewards),
        ", ".join(f"{reason} {count}" for reason, count in reasons.most_common()),
        first,
        detail,
        said,
    )
    return True


def _warn_of_gates(rewards: Sequence[Reward]) -> bool:
    """Log that no judge was asked about a batch, because all of it met gates. One answer may, in any run."""
    ends = [end.verdict for reward in rewards for end in reward.judged]
    gates = [end.reason for end in ends if isinstance(end, Verdict) and end.how == "gate"]
    met = Counter(reason for reason in gates if reason.startswith("gate "))
    if len(rewards) < 2 or met.total() < len(ends):
        return False
    log.warning(
        "no judge was asked about a batch of %d, all of which got the lowest score: %s. [judge.gates] decides that",
        len(rewards),
        ", ".join(f"{reason} ({count})" for reason, count in met.most_common()),
    )
    return True


def _cancel_ticket(submitted: asyncio.Future[Ticket]) -> None:
    if not submitted.cancelled() and submitted.exception() is None:
        submitted.result().cancel()
