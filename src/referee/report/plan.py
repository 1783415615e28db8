"""How long judging a step takes, what it costs, which limit binds and what to change. Arithmetic only; pure."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from referee.report.tail import Latency, longest, with_pace, with_places

Binding = Literal["nothing", "answer time", "concurrency", "rpm", "tpm", "budget", "trainer"]
NEAR = 1.1
"""A limit that adds less than a tenth to the slowest call alone does not bind."""
TARGET = 1.5
"""Times the slowest call alone: faster than that is not worth the places it takes."""
MOST = 100_000_000
"""No limit is looked for beyond this."""


class Workload(Struct, frozen=True, kw_only=True):
    """One training step seen from the judge, and the limits it meets. None: not known, or no limit."""

    samples: float
    """Per step."""
    asked: float = 1.0
    """Share of the samples that need a call; the rest is cached, shared or settled by a gate."""
    attempts: float = 1.0
    """Calls per sample asked, retries included."""
    tokens_in: float | None = None
    tokens_out: float | None = None
    """Per call."""
    latency: float = 2.0
    """Seconds, median."""
    sigma: float = 0.5
    """Spread of the lognormal answer times."""
    concurrency: float | None = None
    rpm: float | None = None
    tpm: float | None = None
    """Limits of all endpoints together."""
    budget_usd: float | None = None
    price_in: float | None = None
    price_out: float | None = None
    """US dollars per million tokens."""
    cost_per_call: float | None = None
    """US dollars, as measured; prices come first where both are given."""
    work_s: float | None = None
    """Seconds of the step in which the trainer has other work between submitting and collecting."""
    steps: float = 100.0
    """Steps of an epoch."""
    deadline: float = 300.0
    attempt_timeout: float = 60.0


class Limit(Struct, frozen=True):
    """One limit by itself: what it lets through, and how long a step would take if there were no other."""

    name: str
    value: float
    per_second: float
    seconds: float


class Plan(Struct, frozen=True, kw_only=True):
    """The answer."""

    calls: float
    """Per step."""
    judging_s: float
    """A usual step."""
    judging_p95_s: float
    """One step in twenty takes longer."""
    wait_s: float
    """Of a usual step, how long the trainer is blocked. Its own work is 0 where that is not known."""
    epoch_s: float
    """Judging of one epoch, if nothing overlapped."""
    cost_step: float | None
    cost_epoch: float | None
    """US dollars; None where prices or tokens are not known."""
    in_flight: float
    """Calls in flight on average while judging, by Little's law."""
    binds: Binding
    slowed_by: Binding
    """What bounds the speed; the same as `binds` unless that is the budget."""
    limits: tuple[Limit, ...]
    late_share: float
    """Share of the calls that pass limits.attempt_timeout."""
    advice: tuple[str, ...]


def make_plan(load: Workload) -> Plan:
    """Work it out."""
    latency = Latency(load.latency, load.sigma)
    calls = load.samples * load.asked * load.attempts
    found = limits_of(load)
    floor = longest(calls, latency)
    slowest = max(found, key=lambda limit: limit.seconds, default=None)
    judging = max(floor, slowest.seconds if slowest else 0.0)
    worst = max((_seconds(limit.name, calls, limit.value, load, 0.95) for limit in found), default=0.0)
    cost = _cost_step(load)
    epoch = None if cost is None else cost * load.steps
    slowed_by = _slowed_by(load, calls, floor, judging, slowest)
    broke = load.budget_usd is not None and epoch is not None and epoch > load.budget_usd
    plan = Plan(
        calls=calls,
        judging_s=judging,
        judging_p95_s=max(worst, longest(calls, latency, 0.95)),
        wait_s=max(0.0, judging - (load.work_s or 0.0)),
        epoch_s=judging * load.steps,
        cost_step=cost,
        cost_epoch=epoch,
        in_flight=calls * latency.mean / judging if judging else 0.0,
        binds="budget" if broke else slowed_by,
        slowed_by=slowed_by,
        limits=found,
        late_share=latency.beyond(load.attempt_timeout),
        advice=(),
    )
    return replace(plan, advice=tuple(_advice(load, plan, floor)))


def limits_of(load: Workload) -> tuple[Limit, ...]:
    """Every limit that is known, by itself."""
    calls = load.samples * load.asked * load.attempts
    found = []
    for name in ("concurrency", "rpm", "tpm"):
        value = getattr(load, name)
        if value is not None:
            rate = _rate(name, value, load)
            if math.isfinite(rate):
                found.append(Limit(name, value, rate, _seconds(name, calls, value, load)))
    return tuple(found)


def places_for(load: Workload, seconds: float) -> int | None:
    """The fewest calls in flight with which a usual step is judged in this time; None: no number does it."""
    calls, latency = load.samples * load.asked * load.attempts, Latency(load.latency, load.sigma)
    return _least(lambda places: with_places(calls, places, latency) <= seconds)


def starts_for(load: Workload, seconds: float) -> int | None:
    """The fewest starts per minute with which a usual step is judged in this time; None: no number does it."""
    calls, latency = load.samples * load.asked * load.attempts, Latency(load.latency, load.sigma)
    return _least(lambda starts: with_pace(calls, starts / 60.0, latency) <= seconds)


def _least(enough: Callable[[int], bool]) -> int | None:
    low, high = 0, 1
    while not enough(high):
        low, high = high, high * 2
        if high > MOST:
            return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high


def _rate(name: str, value: float, load: Workload) -> float:
    """Calls per second this limit allows."""
    if name == "concurrency":
        return value / Latency(load.latency, load.sigma).mean
    per_call = 1.0 if name == "rpm" else (load.tokens_in or 0.0) + (load.tokens_out or 0.0)
    return value / 60.0 / per_call if per_call else math.inf


def _seconds(name: str, calls: float, value: float, load: Workload, share: float = 0.5) -> float:
    latency = Latency(load.latency, load.sigma)
    if name == "concurrency":
        return with_places(calls, value, latency, share)
    return with_pace(calls, _rate(name, value, load), latency, share)


def _cost_step(load: Workload) -> float | None:
    calls = load.samples * load.asked * load.attempts
    if load.price_in is not None and load.price_out is not None:
        if load.tokens_in is None or load.tokens_out is None:
            return None  # nothing times a price is not what a run costs
        return calls * (load.tokens_in * load.price_in + load.tokens_out * load.price_out) / 1e6
    return None if load.cost_per_call is None else calls * load.cost_per_call


def _slowed_by(load: Workload, calls: float, floor: float, judging: float, slowest: Limit | None) -> Binding:
    if not calls:
        return "nothing"
    if load.work_s is not None and judging <= load.work_s:
        return "trainer"
    if slowest is None or judging <= NEAR * floor:
        return "answer time"
    return slowest.name  # type: ignore[return-value]


def _advice(load: Workload, plan: Plan, floor: float) -> list[str]:
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
    said += _about_speed(load, plan, floor)
    if plan.judging_p95_s > load.deadline:
        said.append(
            f"one step in twenty takes longer than limits.deadline = {load.deadline:g} s: what is not judged then is "
            f"unscored. Set it to {_round_up(1.5 * plan.judging_p95_s):g}, or make judging faster as above."
        )
    if plan.late_share > 0.001:
        said.append(
            f"{plan.late_share:.1%} of the calls take longer than limits.attempt_timeout = {load.attempt_timeout:g} s "
            f"and are asked again. Set it to {_round_up(Latency(load.latency, load.sigma).quantile(0.999)):g}."
        )
    if plan.cost_step is None and (load.price_in is None or load.price_out is None):
        said.append("the cost is not known: set endpoint.price_in and price_out, or give --price-in and --price-out.")
    elif plan.cost_step is None:
        said.append("the cost is not known: give --tokens-in and --tokens-out, or a ledger to learn them from.")
    return said


def _about_speed(load: Workload, plan: Plan, floor: float) -> list[str]:
    if load.work_s is not None and plan.judging_s <= load.work_s:
        return [
            f"judging ({plan.judging_s:.3g} s) hides behind the trainer's own {load.work_s:.3g} s: a faster judge "
            "would not make training faster."
        ]
    if not plan.calls:
        return ["nothing is asked: every sample is cached, shared or settled by a gate."]
    others = [limit for limit in plan.limits if limit.name != plan.slowed_by]
    reachable = max([TARGET * floor, load.work_s or 0.0, *(limit.seconds for limit in others)])
    if plan.slowed_by in ("concurrency", "rpm", "tpm") and reachable >= plan.judging_s:
        return [f"{plan.slowed_by} binds, but only just: the slowest call alone takes {floor:.3g} s."]
    if plan.slowed_by == "concurrency":
        return [
            f"{load.concurrency:g} calls in flight bind. With {places_for(load, reachable)} (limits.concurrency, "
            f"limits.max_concurrency) a step takes about {reachable:.3g} s; a provider that answers 429 does not bear "
            "as many: add an endpoint."
        ]
    starts = starts_for(load, reachable)
    if plan.slowed_by == "rpm" and starts is not None:
        return [
            f"{load.rpm:g} requests per minute bind. {starts} would be enough for {reachable:.3g} s: ask the provider "
            "for more (limits.rpm), or add an endpoint."
        ]
    if plan.slowed_by == "tpm" and starts is not None:
        tokens = (load.tokens_in or 0.0) + (load.tokens_out or 0.0)
        return [
            f"{load.tpm:,.10g} tokens per minute bind, at {tokens:.0f} a call. {starts * tokens:,.0f} would be enough "
            f"for {reachable:.3g} s: ask for more (limits.tpm), add an endpoint, or send less (judge.view, "
            "judge.criteria)."
        ]
    if plan.slowed_by == "answer time":
        return [
            f"no limit binds: the slowest of {plan.calls:.0f} calls takes {floor:.3g} s. Only a judge with a shorter "
            "tail, or more work between submit and collect, helps."
        ]
    return []


def _round_up(value: float) -> float:
    """A number for a settings file: two digits, not below the value."""
    if value <= 0:
        return 0.0
    unit = 10.0 ** (math.floor(math.log10(value)) - 1)
    return round(math.ceil(value / unit) * unit, 6)
