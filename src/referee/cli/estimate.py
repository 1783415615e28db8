"""What judging a file of rollouts will take: its requests are planned as judging plans them, and none is sent."""

from __future__ import annotations

import os
import secrets
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import typer
from msgspec import Struct

from referee.cache import open_cache
from referee.cli.groups import check_alone, in_words, sizes_of
from referee.cli.problems import Problems, refuse_text, warn_unread
from referee.cli.words import counted
from referee.config import Config, JudgeConfig, all_judges, endpoints_of, pool_of, provider_of
from referee.engine import Endpoint
from referee.engine.pools import Pools
from referee.errors import InputError
from referee.judging import Form, Judge, rounds_unanswered, seen_by, settles
from referee.judging.members import calls_of
from referee.plan import Workload, limits_in
from referee.records import Ask, Sample
from referee.rollouts import BadLine, first_rows, read_rollouts
from referee.scoring.build import build_judge, columns_shown, rubric_polarity, text_only
from referee.scoring.case import MAX_ROUNDS

NO_DEADLINE = 1e9
"""Seconds. `referee score` judges a file to its end, however long that takes."""
LOOK_UP = 512
"""Requests that are looked up in the cache together."""


ENOUGH_REPLIES = 20
"""Cached replies of a set of endpoints from which the length of the others is judged."""


class Load(Struct):
    """What the requests to one set of endpoints come to."""

    asked: int = 0
    tokens_in: float = 0
    """Of their prompts, estimated from the text."""
    tokens_out: float = 0
    """The most that their replies may have."""


class Seen(Struct):
    """Replies of one set of endpoints that are in the cache: what the provider counted."""

    replies: int = 0
    tokens_in: int = 0
    tokens_out: int = 0
    estimated: int = 0
    """What tokens_in was estimated at."""


class Costs(Struct, frozen=True, kw_only=True):
    """US dollars of a file, each way it can be paid; None: not there, or a price is not known."""

    own: float | None
    """At the tiers that are set, each endpoint's own."""
    standard: float | None
    flex: float | None
    batch: float | None
    least: float | None
    """At those tiers, if every cascade ended with its first member; None: there is no cascade."""


class Estimate(Struct, frozen=True, kw_only=True):
    """Counts of a file."""

    samples: int
    questions: int
    """All there are. Of a judge that asks in several rounds, as many as it asks if it gets no answer."""
    asked: int
    """Requests that have to be sent: each equal one once, those in the cache not at all."""
    repeated: int
    """Questions whose request is equal to an earlier one's."""
    cached: int
    """Requests whose verdict is in the cache."""
    settled: int
    """Samples that a gate settles, or that a judge cannot be asked about."""
    loads: dict[str, Load]
    """By the endpoints that may answer (`pool_of` a judge)."""
    first: dict[str, Load]
    """Of these, what is asked if every cascade ends with its first member; empty without a cascade."""
    measured: int
    """Cached replies by which tokens were corrected; 0: they are estimated, and replies as long as they may be."""
    groups: dict[int, int]
    """Where a judge compares responses: of each size, how many groups have it."""
    equal: int
    """Responses of those groups that are equal to an earlier sibling."""
    judges: tuple[str, ...]
    """Of each judge of groups: its name and what it asks about a group."""

    def workload(self, config: Config) -> Workload:
        """The file as one step, a sample for each question of each judge. Replies are taken as long as they may be."""
        tokens_in = float(sum(load.tokens_in for load in self.loads.values()))
        tokens_out = float(sum(load.tokens_out for load in self.loads.values()))
        return Workload(
            **{
                **limits_in(config.public()),
                "samples": float(self.questions),
                "asked": self.asked / self.questions,
                "tokens_in": tokens_in / max(1, self.asked),
                "tokens_out": tokens_out / self.asked if self.asked else float(config.judge[0].max_tokens),
                "steps": 1.0,
                "deadline": NO_DEADLINE,
                "price_in": None,
                "price_out": None,
            }
        )

    def costs(self, config: Config, tokens_out: float | None = None) -> Costs:
        """What it costs, every request at the prices of its own endpoints. `tokens_out`: of a reply, where that is
        known better than by judge.max_tokens."""
        return Costs(
            own=_dollars(config, self.loads, "own", tokens_out),
            standard=_dollars(config, self.loads, "", tokens_out),
            flex=_dollars(config, self.loads, "flex", tokens_out),
            batch=_dollars(config, self.loads, "batch", tokens_out),
            least=_dollars(config, self.first, "own", tokens_out) if self.first else None,
        )

    def words(self) -> str:
        """What becomes of the samples, and of groups where they are judged."""
        lines = [
            f"{counted(self.samples, 'rollout')}: {counted(self.asked, 'request')}, {self.repeated} equal to another, "
            f"{self.cached} in the cache, {self.settled} without a call."
        ]
        if self.measured:
            lines.append(f"tokens: as the provider counted {self.measured} requests that are in the cache")
        if self.groups:
            equal = f"; {counted(self.equal, 'response')} equal to a sibling, judged once" if self.equal else ""
            lines.append(in_words(self.groups) + equal)
        return "\n".join([*lines, *self.judges])


def _dollars(config: Config, loads: dict[str, Load], way: str, tokens_out: float | None) -> float | None:
    """What loads cost: at the standard price, at the price of a tier or of the batch API, or ("own") as it is set."""
    judges = {pool_of(judge): judge for judge in all_judges(config.judge)}
    total = 0.0
    for pool, load in loads.items():
        endpoint = config.endpoint[endpoints_of(judges[pool], config.endpoint)[0]]
        tier = endpoint.tier if way == "own" else way
        share = getattr(provider_of(endpoint), tier, None) if tier else 1.0
        if endpoint.price_in is None or endpoint.price_out is None or share is None:
            return None
        replies = load.tokens_out if tokens_out is None else tokens_out * load.asked
        total += share * (load.tokens_in * endpoint.price_in + replies * endpoint.price_out) / 1e6
    return total


def estimate(name: str, path: Path, config: Config, looked_at: bool = False) -> Estimate:
    """Read all of it and plan every request. None is sent. `looked_at`: the caller has said what its columns are."""
    secret = secrets.token_bytes(32)
    judges = [Planned(judge, build_judge(judge, secret)) for judge in config.judge]
    comparing = [judge for judge in judges if judge.compares]
    plans = Plans(config)
    samples, names = 0, Counter[str]()
    bad = Problems()
    shown = columns_shown(config)
    if not looked_at:
        warn_unread(name, first_rows(path), shown, rubric_polarity(config))
    for _, sample in read_rollouts(path, shown, text_only(config), rubric_polarity(config)):
        if isinstance(sample, BadLine):
            bad.add(sample)
            continue
        samples += 1
        if comparing and sample.group:
            names[sample.group] += 1
    if not samples:
        refuse_text(name, path)
        advice = f"It is neither a ledger nor a file of rollouts. {bad.instead(first_rows(path))}"
        raise InputError(bad.complaint(name, advice))
    if bad.count:
        typer.echo(f"warning: {name}: {counted(bad.count, 'line')} cannot be used and not counted", err=True)
    sizes = sizes_of(names, samples) if comparing else Counter[int]()
    for warning in check_alone(name, config, sizes):
        typer.echo(warning, err=True)
    for _, sample in read_rollouts(path, shown, text_only(config), rubric_polarity(config)):
        if not isinstance(sample, BadLine):
            for judge in judges:
                judge.take(sample, names[sample.group], plans)
    return plans.estimate(
        samples,
        groups=dict(sizes),
        equal=comparing[0].equal if comparing else 0,
        judges=tuple(judge.words(alone=1 in sizes) for judge in comparing),
    )


class Plans:
    """All requests so far, each equal one once, without those whose verdict is in the cache."""

    def __init__(self, config: Config) -> None:
        self._pools = Pools(config, [Endpoint(each, config.limits, None) for each in config.endpoint])
        there = config.cache.enabled and config.cache.path and os.path.exists(config.cache.path)
        self._cache = open_cache(config.cache) if there else None
        self._planned = self._settled = self._cached = 0
        self._loads: dict[str, Load] = {}
        self._first: dict[str, Load] = {}
        self._cascades = any(judge.kind == "cascade" for judge in all_judges(config.judge))
        self._seen: dict[str, Seen] = {}
        self._known: set[int] = set()
        self._new: list[tuple[Ask, bool]] = []
        """Not yet looked up in the cache, each with whether it is of a first round."""

    def add(self, asks: Sequence[Ask], samples: int, first: int, later: int = 0) -> None:
        """What a judge asks about some samples; `first` of them in its first round. `later`: requests of rounds whose
        questions depend on answers; they are taken to be like the first."""
        self._planned += len(asks) + later
        self._settled += 0 if asks else samples
        for number, ask in enumerate(asks):
            name = hash((ask.facets, ask.pool))
            if name not in self._known:
                self._known.add(name)
                self._new.append((ask, number < first))
        if later:
            load = self._loads.setdefault(asks[0].pool, Load())
            load.asked += later
            load.tokens_in += later * sum(ask.prompt_tokens for ask in asks) // len(asks)
            load.tokens_out += later * asks[0].sampling.max_tokens
        if len(self._new) >= LOOK_UP:
            self._look_up()

    def _look_up(self) -> None:
        """Count what is not in the cache."""
        keys = [[self._pools.key(ask), *self._pools.other_keys(ask)] for ask, _ in self._new]
        if self._cache is not None:
            self._cache.expect([key for several in keys for key in several])
        for (ask, first), several in zip(self._new, keys, strict=True):
            found = next(filter(None, map(self._cache.get, several)), None) if self._cache is not None else None
            if found is not None:
                self._cached += 1
                if found.reply.tokens_in and found.reply.tokens_out:
                    seen = self._seen.setdefault(ask.pool, Seen())
                    seen.replies += 1
                    seen.tokens_in += found.reply.tokens_in
                    seen.tokens_out += found.reply.tokens_out
                    seen.estimated += ask.prompt_tokens
                continue
            for loads in (self._loads, *([self._first] if first and self._cascades else [])):
                load = loads.setdefault(ask.pool, Load())
                load.asked += 1
                load.tokens_in += ask.prompt_tokens
                load.tokens_out += ask.sampling.max_tokens
        self._new.clear()

    def _corrected(self, pool: str) -> int:
        """Replace estimates by what the provider has counted of equal questions; returns of how many, 0: too few."""
        seen = self._seen.get(pool, Seen())
        if seen.replies < ENOUGH_REPLIES:
            return 0
        for load in filter(None, (self._loads.get(pool), self._first.get(pool))):
            load.tokens_in *= seen.tokens_in / seen.estimated
            load.tokens_out = load.asked * seen.tokens_out / seen.replies
        return seen.replies

    def estimate(self, samples: int, groups: dict[int, int], equal: int, judges: tuple[str, ...]) -> Estimate:
        """The counts; there are no more."""
        self._look_up()
        if self._cache is not None:
            self._cache.close()
        asked = sum(load.asked for load in self._loads.values())
        measured = [self._corrected(pool) for pool in self._loads]
        return Estimate(
            samples=samples,
            questions=self._planned + self._settled,
            asked=asked,
            repeated=self._planned - asked - self._cached,
            cached=self._cached,
            settled=self._settled,
            loads=self._loads,
            first=self._first,
            measured=sum(measured) if all(measured) else 0,
            groups=groups,
            equal=equal,
            judges=judges,
        )


class Planned:
    """What one judge would ask about the samples of a file."""

    def __init__(self, config: JudgeConfig, judge: Judge) -> None:
        self._config = config
        self._judge = judge
        self._form: Form = "text" if config.reply == "text" else "schema"
        self._groups: dict[str, list[Sample]] = {}
        """Those of which not all samples have come."""
        self._calls: Counter[int] = Counter()
        self._steps = any(each.kind == "cascade" for each in all_judges([config]))
        self._seen = seen_by([config])
        self.compares = judge.unit == "group"
        self.equal = 0

    def take(self, sample: Sample, size: int, plans: Plans) -> None:
        """One more sample, of a group of `size`."""
        samples = [sample]
        if self.compares and sample.group and size > 1:
            samples = self._groups.setdefault(sample.group, [])
            samples.append(sample)
            if len(samples) < size:
                return
            del self._groups[sample.group]
        asks = rounds_unanswered(self._judge, samples, self._form, MAX_ROUNDS)
        first = len(rounds_unanswered(self._judge, samples, self._form, 1)) if self._steps else 0
        later = self._later(samples, len(asks)) if asks and len(samples) > 1 else 0
        plans.add(asks, len(samples), first, later)
        if len(samples) > 1:
            self.equal += len(samples) - self._different(samples)
            self._calls[len(asks) + later] += 1

    def _later(self, samples: Sequence[Sample], asked: int) -> int:
        """How many more questions there are in rounds that depend on answers. Responses that a gate settles are in
        none."""
        if calls_of(self._judge, self._different(samples)) <= asked:
            return 0
        shown = [sample for sample in samples if not settles(self._judge, sample, self._form)]
        return max(0, calls_of(self._judge, self._different(shown)) - asked)

    def _different(self, samples: Sequence[Sample]) -> int:
        whole = self._config.view == "full"
        return len({sample.response if whole else self._seen(sample.response) for sample in samples})

    def words(self, alone: bool) -> str:
        """How many requests a group takes. `alone`: there are responses without siblings."""
        least, most = min(self._calls, default=0), max(self._calls, default=0)
        several = f"{least} to {most} requests" if least != most else counted(most, "request")
        single = f'; a response without siblings: judge.alone = "{self._config.alone}"' if alone else ""
        return f'judge {self._config.name} (kind = "{self._config.kind}"): {several} a group{single}'
