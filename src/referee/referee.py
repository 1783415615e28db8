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

from referee import clock
from referee.config import Config, anchored, load, price_words, runs_here
from referee.engine import Endpoint, find_key
from referee.errors import InputError, RefereeError, WrongContext
from referee.ledger import BatchLine, common_step, reward_line
from referee.records import Reason, Reward, Sample, Unscored
from referee.runtime import Runtime, open_runtime
from referee.runtime.inline import loop_is_running
from referee.scoring.batch import Batch, listed
from referee.scoring.build import build_judges, build_worker, with_rubrics
from referee.scoring.local import BuildWorker
from referee.ticket import Ticket

if TYPE_CHECKING:
    from referee.local.shared import SharedServer

log = logging.getLogger("referee")

MAX_QUOTED_CHARS = 300
"""Of a judge's reply, in a warning."""


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
        self._runtime: Runtime = open_runtime(config, build)
        # Without `close`, the background thread would run on after the Referee is collected.
        weakref.finalize(self, self._runtime.close, 0.0).atexit = False
        self._numbers = itertools.count(1)
        self._waited_s = 0.0
        self._warned = False

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
        started: Callable[[Ticket], None] | None = None,
    ) -> Ticket:
        """Start judging and return at once. `deadline`: seconds for the batch, instead of limits.deadline. `caller`:
        callers share capacity fairly; batches of one caller are judged by deadline.

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
        name = f"{os.getpid()}-{next(self._numbers)}"
        batch: Batch
        runtime = self._runtime  # not self: a ticket must not keep the Referee alive
        ticket = Ticket(len(samples), runtime.trouble, lambda: runtime.cancel(batch))
        batch = Batch(name, samples, self.config, seconds, ticket.deliver)
        batch.caller = caller
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
        return ticket

    def score(self, samples: Iterable[Sample], timeout: float | None = None) -> list[Reward]:
        """Judge and wait. Inside a running event loop this blocks that loop: use `ascore` there."""
        if loop_is_running():
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

    def metrics(self) -> dict[str, float]:
        """Counts and gauges so far, by the stable names of docs/metrics.md."""
        return {**self._runtime.metrics(), "wait_s": self._waited_s}

    def close(self, seconds: float = 10.0) -> None:
        """Cancel what is in flight and flush all records. Safe to call twice."""
        self._runtime.close(seconds)
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

    def _rewarded(self, batch: Batch, rewards: Sequence[Reward]) -> None:
        wall = clock.wall()
        for reward in rewards:
            step = batch.samples[reward.index].step
            self._runtime.record(reward_line(reward, wall=wall, batch=batch.id, step=step))

    def _collected(self, batch: Batch, submitted: float, ticket: Ticket, rewards: list[Reward]) -> None:
        self._waited_s += ticket.waited_s
        if rewards and not self._warned and not any(reward.scored for reward in rewards):
            self._warned = _warn_of_unscored(rewards)
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


def _cancel_ticket(submitted: asyncio.Future[Ticket]) -> None:
    if not submitted.cancelled() and submitted.exception() is None:
        submitted.result().cancel()
