"""How long judging a step takes, what it costs, which limit binds and what to change: by rehearsing it."""

from __future__ import annotations

import math
from statistics import median
from typing import Any, Literal

from msgspec import Struct
from msgspec.structs import replace

from referee.plan.rehearsal import Rehearsed, rehearse
from referee.plan.workload import Workload

Binding = Literal["nothing", "answer time", "concurrency", "rpm", "tpm", "budget", "trainer"]
NEAR = 1.1
"""A limit without which a step would be less than a tenth shorter does not bind."""
MOST_RUNS = 9
CALLS_OF_RUNS = 5_000
"""Calls of all rehearsals of one workload together, so that a plan takes seconds."""


class Limit(Struct, frozen=True):
    """One limit, and how long a step takes without it."""

    name: str
    value: float
    seconds_without: float


class Plan(Struct, frozen=True, kw_only=True):
    """The answer."""

    calls: float
    """Per step."""
    judging_s: float
    """A usual step."""
    judging_slowest_s: float
    """The slowest of the rehearsals."""
    rehearsals: int
    wait_s: float
    """Of a usual step, how long the trainer is blocked. Its own work is 0 where that is not known."""
    epoch_s: float
    """Judging of one epoch, if nothing overlapped."""
    cost_step: float | None
    cost_epoch: float | None
    """US dollars; None where prices or tokens are not known."""
    in_flight: float
    """Calls in flight on average while judging."""
    attempts: float
    """Requests for each call in the rehearsal."""
    binds: Binding
    slowed_by: Binding
    """What bounds the speed; the same as `binds` unless that is the budget."""
    limits: tuple[Limit, ...]
    advice: tuple[str, ...]


def make_plan(load: Workload, cost: float | None = None) -> Plan:
    """Rehearse it. `cost`: of a step, where it is known better than by mean prices."""
    calls = load.calls
    count = max(1, min(MOST_RUNS, int(CALLS_OF_RUNS / max(calls, 1.0))))
    runs = sorted((rehearse(load, seed) for seed in range(count)), key=lambda run: run.seconds)
    usual = runs[len(runs) // 2]
    judging = median(run.seconds for run in runs)
    limits = tuple(_limits(load, usual))
    cost = cost_of(load) if cost is None else cost
    epoch = None if cost is None else cost * load.steps
    slowed_by = _slowed_by(load, calls, judging, limits)
    broke = load.budget_usd is not None and epoch is not None and epoch > load.budget_usd
    plan = Plan(
        calls=calls,
        judging_s=judging,
        judging_slowest_s=runs[-1].seconds,
        rehearsals=count,
        wait_s=max(0.0, judging - (load.work_s or 0.0)),
        epoch_s=judging * load.steps,
        cost_step=cost,
        cost_epoch=epoch,
        in_flight=usual.in_flight,
        attempts=usual.attempts,
        binds="budget" if broke else slowed_by,
        slowed_by=slowed_by,
        limits=limits,
        advice=(),
    )
    return replace(plan, advice=tuple(_advice(load, plan)))


def cost_of(load: Workload) -> float | None:
    """US dollars of a step by mean prices, or by what a call has cost before."""
    if load.price_in is not None and load.price_out is not None:
        if load.tokens_in is None or load.tokens_out is None:
            return None  # nothing times a price is not what a run costs
        return load.calls * (load.tokens_in * load.price_in + load.tokens_out * load.price_out) / 1e6
    return None if load.cost_per_call is None else load.calls * load.cost_per_call


def _limits(load: Workload, usual: Rehearsed) -> list[Limit]:
    """Every limit that is known. One that a step never comes near is not rehearsed without."""
    found = []
    for name, value in (("concurrency", load.capacity or load.concurrency), ("rpm", load.rpm), ("tpm", load.tpm)):
        if value is None or (name == "tpm" and not (load.tokens_in or load.tokens_out)):
            continue
        met = name != "concurrency" or load.calls > value
        found.append(Limit(name, value, rehearse(_without(load, name)).seconds if met else usual.seconds))
    return found


def _without(load: Workload, name: str) -> Workload:
    changed: dict[str, Any] = {name: None}
    if name == "concurrency":
        changed |= {"capacity": None, "adaptive": False}
    return replace(load, **changed)


def _slowed_by(load: Workload, calls: float, judging: float, limits: tuple[Limit, ...]) -> Binding:
    if not calls:
        return "nothing"
    if load.work_s is not None and judging <= load.work_s:
        return "trainer"
    most = min(limits, key=lambda limit: limit.seconds_without, default=None)
    if most is None or judging <= NEAR * most.seconds_without:
        return "answer time"
    return most.name  # type: ignore[return-value]


def _advice(load: Workload, plan: Plan) -> list[str]:
    """What to change, the most pressing first. Each names the setting."""
    said = []
    if plan.binds == "budget":
        assert load.budget_usd is not None
        assert plan.cost_step
        enough = load.budget_usd / plan.cost_step
        until = f"{int(enough)} of {load.steps:g} steps" if load.steps > 1 else f"{enough:.0%} of it"
        said.append(
            f"limits.budget_usd = {load.budget_usd:g} is spent after about {until}; the rest is unscored "
            f"(budget). Set it to {_round_up(plan.cost_epoch or 0.0):g}, or "
            "ask less: a cheaper model, fewer samples, a shorter judge.max_tokens."
        )
    said += _about_speed(load, plan)
    if plan.judging_slowest_s > load.deadline:
        said.append(
            f"a step may take longer than limits.deadline = {load.deadline:g} s: what is not judged then is "
            f"unscored. Set it to {_round_up(1.5 * plan.judging_slowest_s):g}, or make judging faster as above."
        )
    late = load.latency * math.exp(3.1 * load.sigma)  # one call in a thousand takes longer
    if late > load.attempt_timeout:
        said.append(
            f"some calls take longer than limits.attempt_timeout = {load.attempt_timeout:g} s and are asked again. "
            f"Set it to {_round_up(late):g}."
        )
    if plan.cost_step is None and (load.price_in is None or load.price_out is None):
        said.append("the cost is not known: set endpoint.price_in and price_out, or give --price-in and --price-out.")
    elif plan.cost_step is None:
        said.append("the cost is not known: give --tokens-in and --tokens-out, or a ledger to learn them from.")
    return said


def _about_speed(load: Workload, plan: Plan) -> list[str]:
    if load.work_s is not None and plan.judging_s <= load.work_s:
        return [
            f"judging ({plan.judging_s:.3g} s) hides behind the trainer's own {load.work_s:.3g} s: a faster judge "
            "would not make training faster."
        ]
    if not plan.calls:
        return ["nothing is asked: every sample is cached, shared or settled by a gate."]
    if plan.slowed_by == "answer time":
        return [
            f"no limit binds: the slowest of {plan.calls:.0f} calls takes {plan.judging_s:.3g} s. Only a judge with a "
            "shorter tail, or more work between submit and collect, helps."
        ]
    if plan.slowed_by not in ("concurrency", "rpm", "tpm"):
        return []
    value = next(limit.value for limit in plan.limits if limit.name == plan.slowed_by)
    twice = replace(load, **dict.fromkeys(_settings(load, plan.slowed_by), 2 * value))
    then = f"With {2 * value:,.10g} a step takes about {rehearse(twice).seconds:.3g} s"
    if plan.slowed_by == "concurrency":
        return [
            f"{value:g} calls in flight bind. {then} (limits.concurrency, limits.max_concurrency); a provider that "
            "answers 429 does not bear as many: add an endpoint."
        ]
    if plan.slowed_by == "rpm":
        return [
            f"{value:g} requests per minute bind. {then}: ask the provider for more (limits.rpm), or add an endpoint."
        ]
    tokens = (load.tokens_in or 0.0) + (load.tokens_out or 0.0)
    return [
        f"{value:,.10g} tokens per minute bind, at {tokens:.0f} a call. {then}: ask for more (limits.tpm), add an "
        "endpoint, or send less (judge.view, judge.criteria)."
    ]


def _settings(load: Workload, name: str) -> list[str]:
    """What of a workload is that limit."""
    return ["concurrency", *(["capacity"] if load.capacity else [])] if name == "concurrency" else [name]


def _round_up(value: float) -> float:
    """A number for a settings file: two digits, not below the value."""
    if value <= 0:
        return 0.0
    unit = 10.0 ** (math.floor(math.log10(value)) - 1)
    return round(math.ceil(value / unit) * unit, 6)
