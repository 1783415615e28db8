"""Pairs of answers through a Referee: each pair is a group of two."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping, Sequence

import typer
from msgspec import Struct
from msgspec.structs import replace

from referee.cli.estimate import Planned, Plans
from referee.cli.plan import money
from referee.cli.stream import Item, stream
from referee.cli.words import counted
from referee.config import Config, JudgeConfig, ShapingConfig, all_judges, endpoints_of
from referee.errors import ConfigError
from referee.progress import Meter
from referee.records import Reward, Sample
from referee.referee import Referee
from referee.report.versus import About
from referee.report.versus_pair import Comparison, compared
from referee.rollouts.pairs import AnswerPair
from referee.scoring.build import build_judge

PAIRWISE = "pairwise"


class Task(Struct, frozen=True, kw_only=True):
    """What is to be compared."""

    pairs: list[AnswerPair]
    names: tuple[str, str]
    config: Config
    """With one judge."""
    shown: frozenset[str]
    """Columns that the judge sees."""
    by: Sequence[str]

    @property
    def judge(self) -> JudgeConfig:
        """The one that is asked."""
        judge: JudgeConfig = self.config.judge[0]
        return judge


class Done(Struct, frozen=True, kw_only=True):
    """What came of it."""

    comparisons: list[Comparison]
    metrics: dict[str, float]
    models: tuple[str, ...]
    from_cache: int
    unit: str


def to_compare(config: Config, name: str = "") -> Config:
    """The same configuration with the judge that compares, and without what only makes a reward of its verdicts."""
    judge = _chosen(config, name)
    judge = replace(judge, weight=1.0, optional=False, ask_above=None)
    if judge.kind == PAIRWISE:
        # One comparison, counted as it is: the schedule and the strengths are about larger groups.
        judge = replace(
            judge, schedule="all", rounds=0, strength="win_rate", min_comparisons=1, alone="unscored", uses=()
        )
    missing = replace(config.missing, policy="abstain", value=None)
    return replace(config, judge=(judge,), shaping=ShapingConfig(), missing=missing, team=())


def _chosen(config: Config, name: str) -> JudgeConfig:
    """The judge of that name; without one the only judge, or the only one that compares."""
    judges: Sequence[JudgeConfig] = config.judge
    every = {judge.name: judge for judge in all_judges(judges)}
    there = ", ".join(f"{judge.name} ({judge.kind})" for judge in every.values())
    if name:
        if name not in every:
            raise ConfigError(f"--judge {name}: no judge has this name. There are: {there}.", setting="judge.name")
        return every[name]
    pairwise = [judge for judge in judges if judge.kind == PAIRWISE]
    for found in (judges, pairwise):
        if len(found) == 1:
            return found[0]
    raise ConfigError(f"which judge is to compare? Name one with --judge: {there}.", setting="judge.name")


def plan_line(task: Task) -> str:
    """How many requests it takes, and what they cost at most; nothing is sent."""
    judge, plans = task.judge, Plans(task.config)
    planned = Planned(judge, build_judge(judge, secrets.token_bytes(32)))
    for sample in _samples(task):
        planned.take(sample, 2, plans)
    found = plans.estimate(2 * len(task.pairs), {}, 0, ())
    cost = found.costs(task.config).standard
    price = "cost unknown (no price_in, price_out)" if cost is None else f"at most {money(cost)}"
    requests = f"{counted(found.asked, 'request')}, {found.cached} more in the cache"
    return f"{counted(len(task.pairs), 'pair')}, {_how(judge)}: {requests}, {price}."


def _how(judge: JudgeConfig) -> str:
    if judge.kind == PAIRWISE:
        return f"compared by {judge.name}, {'each in both orders' if judge.both_orders else 'each in one order'}"
    return f"scored by {judge.name} ({judge.kind}), the higher score wins"


def compare_pairs(task: Task, quiet: bool) -> Done:
    """Judge all pairs. Interrupted, it says what is kept, and raises."""
    config = task.config
    priced = any(endpoint.price_in is not None for endpoint in config.endpoint)
    stated = all(row.sample.length is not None for pair in task.pairs for row in (pair.a, pair.b))
    found, models, from_cache = list[Comparison](), dict[str, None](), 0
    items: Iterator[Item[int, None]] = (Item(place, sample, None) for place, sample in enumerate(_samples(task)))
    sizes = {_group(number): 2 for number in range(len(task.pairs))}
    with Referee(config) as referee:
        try:
            with Meter(len(task.pairs), lambda: _in_pairs(referee.metrics()), quiet, priced) as meter:
                first: Reward | None = None
                for item, reward in stream(referee, items, sizes):
                    assert reward is not None
                    if reward.settled.model:
                        models[reward.settled.model] = None
                    if item.tag % 2 == 0:
                        first = reward
                        continue
                    if first is None or first.group != reward.group:
                        continue  # interrupted: what is held may have gaps
                    pair = task.pairs[item.tag // 2]
                    from_cache += first.settled.origin == reward.settled.origin == "cache"
                    found.append(compared(pair, (first, reward), task.names, _columns(pair, task.by), stated))
                    meter.advance(1)
                metrics = referee.metrics()
        except BaseException:
            typer.echo(_stopped(len(found), len(task.pairs), config), err=True)
            raise
    return Done(
        comparisons=found,
        metrics=metrics,
        models=tuple(models),
        from_cache=from_cache,
        unit="tokens" if stated else "words",
    )


def about(task: Task, done: Done, unmatched: tuple[int, int]) -> About:
    """What was compared, by which judge, at what price."""
    judge, endpoints = task.judge, task.config.endpoint
    priced = all(endpoints[number].price_in is not None for number in endpoints_of(judge, endpoints))
    return About(
        names=task.names,
        judge=judge.name,
        kind=judge.kind,
        by="comparison" if judge.kind == PAIRWISE else "score",
        both_orders=judge.kind == PAIRWISE and judge.both_orders,
        models=done.models,
        requests=int(done.metrics.get("requests", 0)),
        from_cache=done.from_cache,
        tokens_in=int(done.metrics.get("tokens_in", 0)),
        tokens_out=int(done.metrics.get("tokens_out", 0)),
        cost_usd=done.metrics.get("cost_usd", 0.0) if priced else None,
        unmatched=unmatched,
    )


def _samples(task: Task) -> Iterator[Sample]:
    """The answers of each pair, one after the other, as one group. What is shown once for both is the same in both: the
    prompt is a's, what only one row has is the other's too."""
    for number, pair in enumerate(task.pairs):
        a, b = pair.a.sample, pair.b.sample
        own = [{name: text for name, text in sample.columns.items() if name in task.shown} for sample in (a, b)]
        for name, sample, other, columns in (
            (task.names[0], a, b, {**own[1], **own[0]}),
            (task.names[1], b, a, {**own[0], **own[1]}),
        ):
            yield replace(
                sample,
                prompt=a.prompt,
                id=f"{name}: {sample.id}",
                group=_group(number),
                reference=other.reference if sample.reference is None else sample.reference,
                rubric=sample.rubric or other.rubric,
                tools=sample.tools or other.tools,
                columns=columns,
                rule_score=0.0,
            )


def _group(number: int) -> str:
    return f"pair {number + 1}"


def _columns(pair: AnswerPair, by: Sequence[str]) -> dict[str, str]:
    """What it is broken down by: a's columns, or b's where a has none."""
    both: Mapping[str, str] = {**pair.b.sample.columns, **pair.a.sample.columns}
    return {name: both[name] for name in by if name in both}


def _in_pairs(metrics: dict[str, float]) -> dict[str, float]:
    return {**metrics, **{name: metrics.get(name, 0.0) / 2 for name in ("samples", "unscored", "cache_hits", "shared")}}


def _stopped(compared_: int, total: int, config: Config) -> str:
    """What an interrupted run leaves, and how to go on."""
    kept = config.cache.enabled and (config.cache.path or (config.redis.url and config.redis.cache))
    cached = " What was judged is in the cache: the same command goes on from there." if kept else ""
    return f"stopped: {compared_} of {counted(total, 'pair')} compared.{cached}"
