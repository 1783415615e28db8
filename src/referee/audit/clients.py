"""Asks the audit's questions: by a Referee for each judge, made when it is first needed, on another thread.

Past every cache, so that each question is really asked; with the audit's share of budget and concurrency; nothing of it
is a reward.
"""

from __future__ import annotations

import functools
import logging
import os
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from msgspec.structs import replace

from referee.audit.questions import Question
from referee.config import (
    AuditConfig,
    CacheConfig,
    Config,
    JudgeConfig,
    LedgerConfig,
    LimitsConfig,
    MissingConfig,
    OtelConfig,
    RedisConfig,
    ShapingConfig,
    all_judges,
    change_judges,
    endpoints_of,
)
from referee.records import Reason, Reward, Settled, Unscored

log = logging.getLogger("referee.audit")

Ends = list[list[Settled]]
"""For each question how its cases ended."""


class Client(Protocol):
    """What is needed of a Referee, which stands higher."""

    def submit(self, samples: Any, *, started: Any = None) -> Any:
        """Start judging."""

    def close(self, seconds: float = 10.0) -> None:
        """End it."""


class JudgeClients:
    """The Referees that the audit asks by. Used from one thread, but for `close`."""

    def __init__(self, config: Config, open_client: Callable[[Config], Client]) -> None:
        judges = [judge for judge in config.known_judges if judge.weight > 0 or judge in config.audit.judge]
        self._configs = {judge.name: narrowed(config, judge, len(judges)) for judge in judges}
        self._open = open_client
        self._clients: dict[str, Client] = {}
        self._tickets: dict[str, Any] = {}

    def ask(self, judge: str, questions: Sequence[Question], on_done: Callable[[Ends], None]) -> None:
        """Ask and return at once; `on_done` is called on another thread when all of it has ended."""
        client = self._clients.get(judge)
        if client is None:
            client = self._clients[judge] = self._open(self._configs[judge])
        samples = [sample for one in questions for case in one.cases for sample in case]

        def started(ticket: Any) -> None:
            self._tickets[judge] = ticket
            ticket.on_done = functools.partial(_sorted, questions, on_done)

        client.submit(samples, started=started)

    def exhausted(self, judge: str, ends: Ends) -> bool:
        """Whether this judge, by what came back, cannot answer any more."""
        self._tickets.pop(judge, None)
        verdicts = [end.verdict for case in ends for end in case]
        missing = [one for one in verdicts if isinstance(one, Unscored)]
        why = next((one for one in missing if one.reason in _ENDED), None)
        if why is None or len(missing) < len(verdicts):
            return False
        log.warning(
            "the audit asks judge %s no more (%s: %s). Rewards go on, and so do the signals that ask nothing",
            judge,
            why.reason,
            why.detail,
        )
        return True

    def cancel(self) -> None:
        """Stop what is under way."""
        for ticket in list(self._tickets.values()):
            ticket.cancel()

    def close(self, seconds: float) -> None:
        """End all of it."""
        for client in list(self._clients.values()):
            client.close(seconds)


_ENDED = (Reason.BUDGET, Reason.AUTH, Reason.QUOTA)
"""The money set aside is spent, or no endpoint takes its questions."""


def _sorted(questions: Sequence[Question], on_done: Callable[[Ends], None], rewards: Sequence[Reward]) -> None:
    """The end of the first sample of each case, with the requests of all of its samples."""
    by_index = {reward.index: reward.settled for reward in rewards}
    lost = Settled(verdict=Unscored(reason=Reason.CANCELLED))
    ends: Ends = []
    place = 0
    for one in questions:
        ends.append([])
        for case in one.cases:
            own = [by_index.get(place + number, lost) for number in range(len(case))]
            cost, attempts = sum(end.cost for end in own), sum(end.attempts for end in own)
            ends[-1].append(replace(own[0], cost=cost, attempts=attempts))
            place += len(case)
    on_done(ends)


def narrowed(config: Config, judge: JudgeConfig, parts: int) -> Config:
    """The configuration of the Referee that asks one judge. `parts`: how many there are; they share the
    share, and so do the processes that share a budget."""
    (asked,) = change_judges((judge,), lambda one: replace(one, ask_above=None))
    used = {number for one in all_judges((judge,)) for number in endpoints_of(one, config.endpoint)}
    share = config.audit.share / (parts * (processes_of(config) if config.runtime == "ray" else 1))
    return replace(
        config,
        judge=(replace(asked, weight=1.0, optional=False),),
        endpoint=tuple([endpoint for number, endpoint in enumerate(config.endpoint) if number in used]),
        limits=_limits(config.limits, share),
        cache=CacheConfig(enabled=False, path=""),
        redis=RedisConfig(),
        shaping=ShapingConfig(),
        missing=MissingConfig(abort_above=1.0),
        audit=AuditConfig(),
        ledger=LedgerConfig(),
        otel=OtelConfig(),
        runtime="thread",
    )


def processes_of(config: Config) -> int:
    """How many processes of one run have an audit: a trainer's reward workers, or the ranks of a launcher."""
    return max(config.audit.processes, int(os.environ.get("WORLD_SIZE") or 1), 1)


def _limits(limits: LimitsConfig, share: float) -> LimitsConfig:
    def part(whole: int) -> int:
        return max(1, int(share * whole))

    return replace(
        limits,
        concurrency=limits.concurrency if limits.concurrency == "auto" else part(limits.concurrency),
        max_concurrency=part(limits.max_concurrency),
        rpm=None if limits.rpm is None else part(limits.rpm),
        tpm=None if limits.tpm is None else part(limits.tpm),
        budget_usd=None if limits.budget_usd is None else limits.budget_usd * share,
        hedge=0.0,
    )


def without_share(config: Config) -> Config:
    """The run's own configuration: what is set aside for the audit is not its to spend."""
    limits = config.limits
    if not config.audit.enable or limits.budget_usd is None:
        return config
    return replace(config, limits=replace(limits, budget_usd=limits.budget_usd * (1 - config.audit.share)))
