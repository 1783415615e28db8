"""`referee plan`: how long judging takes, what it costs and which limit binds, from a ledger or a few numbers."""

from __future__ import annotations

import math
import os
from collections.abc import Collection
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer
from msgspec.structs import replace
from rich.console import Console
from rich.table import Table

from referee.cli.terminal import terminal
from referee.config import load
from referee.errors import InputError
from referee.ledger import read
from referee.report.plan import Plan, Workload, make_plan
from referee.report.workload import limits_in, observe

SAMPLES = 1024.0
"""Per step, where neither a ledger nor an option says."""
ASSUMED = ("samples", "latency")
"""What a plan needs and, without a ledger, takes as usual unless an option says it."""
NINETY_FIVE = 1.6449


def command(
    run: Annotated[
        Path | None, typer.Argument(help="A ledger (folder or file) to learn from. Options below override it.")
    ] = None,
    config: Annotated[Path | None, typer.Option("--config", "-c", help="Take limits and prices from here.")] = None,
    samples: Annotated[float | None, typer.Option(help="Samples per training step (without a ledger 1024).")] = None,
    steps: Annotated[float | None, typer.Option(help="Steps of an epoch (default 100).")] = None,
    tokens_in: Annotated[float | None, typer.Option(help="Prompt tokens per call.")] = None,
    tokens_out: Annotated[float | None, typer.Option(help="Reply tokens per call.")] = None,
    latency: Annotated[float | None, typer.Option(help="Median seconds per call (without a ledger 2).")] = None,
    latency_p95: Annotated[float | None, typer.Option(help="Seconds 95 % of the calls do not exceed.")] = None,
    concurrency: Annotated[float | None, typer.Option(help="Calls in flight, all endpoints.")] = None,
    rpm: Annotated[float | None, typer.Option(help="Requests per minute, all endpoints.")] = None,
    tpm: Annotated[float | None, typer.Option(help="Tokens per minute, all endpoints.")] = None,
    budget: Annotated[float | None, typer.Option(help="US dollars for the epoch.")] = None,
    price_in: Annotated[float | None, typer.Option(help="US dollars per million prompt tokens.")] = None,
    price_out: Annotated[float | None, typer.Option(help="US dollars per million reply tokens.")] = None,
    asked: Annotated[float | None, typer.Option(help="Share of the samples that need a call (0 to 1).")] = None,
    work: Annotated[float | None, typer.Option(help="Seconds of other work between submit and collect.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Plain data instead of a table.")] = False,
) -> None:
    """Say how long judging takes per step, what it costs, which limit binds and what to change."""
    base = _base(run, config)
    given = {
        "samples": samples,
        "steps": steps,
        "tokens_in": tokens_in,
        "tokens_out": tokens_out,
        "latency": latency,
        "concurrency": concurrency,
        "rpm": rpm,
        "tpm": tpm,
        "budget_usd": budget,
        "price_in": price_in,
        "price_out": price_out,
        "asked": asked,
        "work_s": work,
    }
    workload = replace(base, **{name: value for name, value in given.items() if value is not None})
    if latency_p95 is not None:
        if not latency_p95 >= workload.latency:
            raise InputError(
                f"--latency-p95 {latency_p95:g} is below the median {workload.latency:g}: give --latency too."
            )
        workload = replace(workload, sigma=math.log(latency_p95 / workload.latency) / NINETY_FIVE)
    _check(workload)
    plan = make_plan(workload)
    assumed = {name for name in ASSUMED if run is None and given[name] is None}
    if as_json:
        data = {"workload": workload, "plan": plan}
        typer.echo(msgspec.json.format(msgspec.json.encode(data), indent=2).decode())
    else:
        show(workload, plan, terminal(), assumed)


def _base(run: Path | None, config: Path | None) -> Workload:
    """What is known before any option: the ledger, with the limits of the configuration if one is named."""
    found: dict[str, Any] = limits_in(load(config, os.environ).public()) if config is not None else {}
    if run is None:
        return Workload(samples=SAMPLES, **found)
    seen = observe(read(run))
    if not seen.samples:
        raise InputError(f"{run}: no verdicts in it to learn from. Give the numbers as options instead.")
    return replace(seen.workload(), **found)


def _check(workload: Workload) -> None:
    for name in workload.__struct_fields__:
        value = getattr(workload, name)
        least_is_zero = name in ("tokens_in", "tokens_out", "price_in", "price_out", "work_s", "asked", "sigma")
        if value is None or (least_is_zero and value == 0 and math.isfinite(value)):
            continue
        if name == "cost_per_call" and value == 0:
            continue
        if not (math.isfinite(value) and value > 0):
            raise InputError(f"{name.replace('_', '-')} must be a positive number, not {value!r}.", field=name)
    if workload.asked > 1:
        raise InputError(f"asked is a share of the samples, at most 1, not {workload.asked!r}.", field="asked")


def show(workload: Workload, plan: Plan, console: Console, assumed: Collection[str] = ()) -> None:
    """The plan as plain tables. `assumed`: numbers that neither a ledger nor an option gave."""
    console.print(_facts(workload, plan, assumed))
    if plan.limits:
        console.print()
        console.print(_limits(plan))
    then = "" if plan.slowed_by == plan.binds else f", then {plan.slowed_by}"
    console.print(f"\nwhat binds: {plan.binds}{then}")
    for line in plan.advice:
        console.print(f"- {line}")


def _facts(workload: Workload, plan: Plan, assumed: Collection[str]) -> Table:
    table = Table(show_header=False, show_edge=False, pad_edge=False, box=None)
    table.add_column(justify="left")
    table.add_column(justify="right")
    table.add_column(justify="left")
    share = f"{workload.asked:.0%} of {workload.samples:g} samples, {workload.attempts:.3g} attempts each"
    share += " (assumed: --samples)" if "samples" in assumed else ""
    spread = f"median {duration(workload.latency)} a call" + (" (assumed: --latency)" if "latency" in assumed else "")
    table.add_row("calls per step", f"{plan.calls:.0f}", share)
    table.add_row("judging per step", duration(plan.judging_s), spread)
    table.add_row("  one step in twenty", duration(plan.judging_p95_s), "or longer")
    work = "own work not known (--work)" if workload.work_s is None else f"own work {duration(workload.work_s)}"
    table.add_row("trainer waits", duration(plan.wait_s), work)
    table.add_row("calls in flight", f"{plan.in_flight:.1f}", "on average while judging")
    table.add_row("cost per step", money(plan.cost_step), _tokens(workload))
    table.add_row("cost per epoch", money(plan.cost_epoch), f"{workload.steps:g} steps (--steps)")
    table.add_row("judging per epoch", duration(plan.epoch_s), "if nothing overlapped")
    return table


def _limits(plan: Plan) -> Table:
    table = Table(show_edge=False, pad_edge=False)
    for name in ("limit", "value", "calls/s", "step by itself"):
        table.add_column(name, justify="left" if name == "limit" else "right")
    for limit in sorted(plan.limits, key=lambda item: -item.seconds):
        table.add_row(limit.name, f"{limit.value:,.10g}", f"{limit.per_second:.3g}", duration(limit.seconds))
    return table


def _tokens(workload: Workload) -> str:
    if workload.tokens_in is None or workload.tokens_out is None:
        return "tokens not known (--tokens-in, --tokens-out)"
    return f"{workload.tokens_in:.0f} tokens in, {workload.tokens_out:.0f} out a call"


def duration(seconds: float) -> str:
    """Seconds in the unit a person would say."""
    if seconds < 120:
        return f"{seconds:.3g} s"
    return f"{seconds / 60:.3g} min" if seconds < 7200 else f"{seconds / 3600:.3g} h"


def money(dollars: float | None) -> str:
    """US dollars, or that they are not known."""
    if dollars is None:
        return "unknown"
    return f"${dollars:.4f}" if dollars < 1 else f"${dollars:,.2f}"
