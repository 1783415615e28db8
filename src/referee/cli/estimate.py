"""What judging a file of rollouts will take: its requests are planned as judging plans them, and none is sent."""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import typer
from msgspec import Struct

from referee.cli.groups import Sizes, check_alone, in_words
from referee.cli.problems import Problems, refuse_binary, refuse_text, text_only, warn_unread
from referee.cli.words import counted
from referee.config import Config, JudgeConfig, all_judges, endpoints_of, pool_of
from referee.errors import InputError
from referee.judging import Form, Judge, rounds_unanswered, seen_by
from referee.judging.members import calls_of
from referee.records import Ask, Sample
from referee.report.plan import Workload
from referee.report.workload import limits_in
from referee.rollouts import BadLine, first_rows, read_rollouts
from referee.scoring.build import build_judge, columns_shown, rubric_polarity
from referee.scoring.case import MAX_ROUNDS

NO_DEADLINE = 1e9
"""Seconds. `referee score` judges a file to its end, however long that takes."""


class Load(Struct):
    """What the requests to one set of endpoints come to."""

    asked: int = 0
    tokens_in: int = 0
    """Of their prompts, estimated from the text."""
    tokens_out: int = 0
    """The most that their replies may have."""


class Estimate(Struct, frozen=True, kw_only=True):
    """Counts of a file."""

    samples: int
    questions: int
    """All there are. Of a judge that asks in several rounds, as many as it asks if it gets no answer."""
    asked: int
    """Requests that have to be sent: each equal one once."""
    repeated: int
    """Questions whose request is equal to an earlier one's."""
    settled: int
    """Samples that a gate settles, or that a judge cannot be asked about."""
    loads: dict[str, Load]
    """By the endpoints that may answer (`pool_of` a judge)."""
    groups: dict[int, int]
    """Where a judge compares responses: of each size, how many groups have it."""
    equal: int
    """Responses of those groups that are equal to an earlier sibling."""
    judges: tuple[str, ...]
    """Of each judge of groups: its name and what it asks about a group."""

    def workload(self, config: Config) -> Workload:
        """The file as one step, a sample for each question of each judge. Replies are taken as long as they may be, and
        every request at the prices of its own endpoints."""
        tokens_in = float(sum(load.tokens_in for load in self.loads.values()))
        tokens_out = float(sum(load.tokens_out for load in self.loads.values()))
        return Workload(
            **{
                **limits_in(config.public()),
                **self._prices(config, tokens_in, tokens_out),
                "samples": float(self.questions),
                "asked": self.asked / self.questions,
                "tokens_in": tokens_in / max(1, self.asked),
                "tokens_out": tokens_out / self.asked if self.asked else float(config.judge[0].max_tokens),
                "steps": 1.0,
                "deadline": NO_DEADLINE,
            }
        )

    def _prices(self, config: Config, tokens_in: float, tokens_out: float) -> dict[str, float]:
        """The mean prices of a token, by what each judge uses. None where all judges ask all endpoints."""
        judges = {pool_of(judge): judge for judge in all_judges(config.judge)}
        if not any(judges):
            return {}
        paid_in = paid_out = 0.0
        for pool, load in self.loads.items():
            endpoint = config.endpoint[endpoints_of(judges[pool], config.endpoint)[0]]
            if endpoint.price_in is None or endpoint.price_out is None:
                return {}
            paid_in += load.tokens_in * endpoint.price_in
            paid_out += load.tokens_out * endpoint.price_out
        return {"price_in": paid_in / max(1.0, tokens_in), "price_out": paid_out / max(1.0, tokens_out)}

    def words(self) -> str:
        """What becomes of the samples, and of groups where they are judged."""
        lines = [
            f"{counted(self.samples, 'rollout')}: {counted(self.asked, 'request')}, {self.repeated} equal to another, "
            f"{self.settled} without a call. What the cache holds already is not looked up."
        ]
        if self.groups:
            equal = f"; {counted(self.equal, 'response')} equal to a sibling, judged once" if self.equal else ""
            lines.append(in_words(self.groups) + equal)
        return "\n".join([*lines, *self.judges])


def estimate(path: Path, config: Config) -> Estimate:
    """Read all of it and plan every request."""
    refuse_binary(str(path), path)
    secret = secrets.token_bytes(32)
    judges = [Planned(judge, build_judge(judge, secret)) for judge in config.judge]
    plans = Plans()
    samples = 0
    bad = Problems()
    shown = columns_shown(config)
    warn_unread(str(path), first_rows(path), shown, rubric_polarity(config))
    for _, sample in read_rollouts(path, shown, text_only(config), rubric_polarity(config)):
        if isinstance(sample, BadLine):
            bad.add(sample)
            continue
        samples += 1
        for judge in judges:
            judge.take(sample, plans)
    if not samples:
        refuse_text(str(path), path)
        raise InputError(bad.complaint(str(path), "It is neither a ledger nor a file of rollouts."))
    if bad.count:
        typer.echo(f"warning: {path}: {counted(bad.count, 'line')} cannot be used and not counted", err=True)
    comparing = [judge for judge in judges if judge.compares]
    sizes = comparing[0].sizes() if comparing else {}
    for warning in check_alone(str(path), config, sizes):
        typer.echo(warning, err=True)
    for judge in judges:
        judge.finish(plans)
    asked = sum(load.asked for load in plans.loads.values())
    return Estimate(
        samples=samples,
        questions=plans.planned + plans.settled,
        asked=asked,
        repeated=plans.planned - asked,
        settled=plans.settled,
        loads=plans.loads,
        groups=dict(sizes),
        equal=comparing[0].equal if comparing else 0,
        judges=tuple(judge.words() for judge in comparing),
    )


class Plans:
    """All requests so far, each equal one once."""

    def __init__(self) -> None:
        self.planned = self.settled = 0
        self.loads: dict[str, Load] = {}
        self._known: set[int] = set()

    def add(self, asks: Sequence[Ask], samples: int, later: int = 0) -> None:
        """What a judge asks about some samples. `later`: requests of rounds whose questions depend on answers; they are
        taken to be like the first."""
        self.planned += len(asks) + later
        self.settled += 0 if asks else samples
        for ask in asks:
            name = hash((ask.facets, ask.pool))
            if name not in self._known:
                self._known.add(name)
                load = self.loads.setdefault(ask.pool, Load())
                load.asked += 1
                load.tokens_in += ask.prompt_tokens
                load.tokens_out += ask.sampling.max_tokens
        if later:
            load = self.loads[asks[0].pool]
            load.asked += later
            load.tokens_in += later * sum(ask.prompt_tokens for ask in asks) // len(asks)
            load.tokens_out += later * asks[0].sampling.max_tokens


class Planned:
    """What one judge would ask about the samples of a file."""

    def __init__(self, config: JudgeConfig, judge: Judge) -> None:
        self._config = config
        self._judge = judge
        self._form: Form = "text" if config.reply == "text" else "schema"
        self._groups: dict[str | int, list[Sample]] = {}
        self._calls: Counter[int] = Counter()
        self.compares = judge.unit == "group"
        self.equal = 0

    def take(self, sample: Sample, plans: Plans) -> None:
        """One more sample."""
        if self.compares:
            self._groups.setdefault(sample.group or len(self._groups), []).append(sample)
        else:
            plans.add(rounds_unanswered(self._judge, [sample], self._form, MAX_ROUNDS), 1)

    def sizes(self) -> Sizes:
        """Of its groups."""
        return Counter(len(samples) for samples in self._groups.values())

    def finish(self, plans: Plans) -> None:
        """There are no more samples: groups are whole."""
        seen = seen_by([self._config])
        whole = self._config.view == "full"
        for samples in self._groups.values():
            asks = rounds_unanswered(self._judge, samples, self._form, MAX_ROUNDS)
            different = len({s.response if whole else seen(s.response) for s in samples})
            later = max(0, calls_of(self._judge, different) - len(asks)) if asks and len(samples) > 1 else 0
            plans.add(asks, len(samples), later)
            self.equal += len(samples) - different
            if len(samples) > 1:
                self._calls[len(asks) + later] += 1

    def words(self) -> str:
        """How many requests a group takes."""
        least, most = min(self._calls, default=0), max(self._calls, default=0)
        several = f"{least} to {most} requests" if least != most else counted(most, "request")
        alone = f'; a response without siblings: judge.alone = "{self._config.alone}"' if 1 in self.sizes() else ""
        return f'judge {self._config.name} (kind = "{self._config.kind}"): {several} a group{alone}'
