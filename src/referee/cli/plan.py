"""`referee plan`: how long judging takes, what it costs and which limit binds, from rollouts, a ledger or numbers.

Times come from rehearsals with the simulated provider in virtual time.
"""

from __future__ import annotations

import math
import os
from collections.abc import Collection
from pathlib import Path
from typing import Annotated

import msgspec
import typer
from msgspec.structs import replace
from rich.console import Console
from rich.table import Table

from referee.cli.estimate import Costs, Estimate, estimate
from referee.cli.settings import DEFAULT_FILE
from referee.cli.source import Map, as_file
from referee.cli.terminal import terminal
from referee.cli.words import counted
from referee.config import Config, load
from referee.errors import InputError
from referee.ledger import read
from referee.plan import Plan, Workload, limits_in, make_plan, observe
from referee.report.files import holds_a_ledger

SAMPLES = 1024.0
"""Per step, where neither a ledger nor an option says."""
ASSUMED = ("samples", "latency")
"""What a plan needs and, without a ledger, takes as usual unless an option says it."""
NINETY_FIVE = 1.6449


def command(
    run: Annotated[
        Path | None, typer.Argument(help="A file of rollouts to be judged, or a ledger (folder or file) to learn from.")
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
    mapped: Map = None,
) -> None:
    """Say how long judging takes, what it costs, which limit binds and what to change.

    Of a file of rollouts, with -c: every request is planned and looked up in the cache, none is sent; the reply is
    taken as long as judge.max_tokens allows, so the cost is an upper estimate. Of judges that compare the responses of
    a group, it says what a group takes. Of a ledger, or of numbers: for each training step. Options override what is
    found. Times come from rehearsals: the same engine, with a simulated provider, in virtual time.
    """
    base, found, chosen = _base(run, config, mapped)
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
    if concurrency is not None:
        workload = replace(workload, adaptive=False, capacity=None)
    _check(workload)
    priced = price_in is not None or price_out is not None
    costs = found.costs(chosen, tokens_out) if found and chosen and not priced else None
    plan = make_plan(workload, costs.own if costs else None)
    assumed = {name for name in ASSUMED if given[name] is None and (run is None or (found and name == "latency"))}
    if found and tokens_out is None and not found.measured:
        assumed.add("tokens_out")
    if workload.adaptive and workload.capacity is None:
        assumed.add("concurrency")
    if as_json:
        data = {"workload": workload, "plan": plan, **({"rollouts": found, "costs": costs} if found else {})}
        typer.echo(msgspec.json.format(msgspec.json.encode(data), indent=2).decode())
    else:
        if found:
            terminal().print(found.words(), end="\n\n", soft_wrap=True)
        show(workload, plan, terminal(), assumed, whole=found is not None, costs=costs)


def show_file(path: Path, config: Config, name: str) -> None:
    """The plan of a file of rollouts, for `referee score --dry-run`."""
    found = estimate(name, path, config, looked_at=True)
    costs, load_ = found.costs(config), found.workload(config)
    assumed = {"latency", *([] if found.measured else ["tokens_out"]), *(["concurrency"] if load_.adaptive else [])}
    terminal().print(found.words(), end="\n\n", soft_wrap=True)
    show(load_, make_plan(load_, costs.own), terminal(), assumed, whole=True, costs=costs)


def _base(
    run: Path | None, config: Path | None, mapped: list[str] | None
) -> tuple[Workload, Estimate | None, Config | None]:
    """What is known before any option, what a file of rollouts holds, and the configuration that it is judged with."""
    public = load(config, os.environ).public() if config is not None else {}
    limits = limits_in(public)
    if run is not None and _holds_rollouts(run):
        if config is None and not DEFAULT_FILE.exists():
            raise InputError(f"{run}: a plan for rollouts needs the judge: name a configuration with -c.")
        chosen = load(config or DEFAULT_FILE, os.environ)
        with as_file(str(run), mapped) as path:
            found = estimate(str(run), path, chosen)
        return found.workload(chosen), found, chosen
    if mapped:
        raise InputError("--map reads columns of rollouts, and a ledger or numbers have none. Leave it out.")
    if run is None:
        return Workload(samples=SAMPLES, **limits), None, None
    if not run.exists():
        raise InputError(f"{run}: no such file of rollouts, and no such ledger.")
    seen = observe(read(run))
    if not seen.samples:
        raise InputError(f"{run}: no verdicts in it to learn from. Give the numbers as options instead.")
    return replace(seen.workload(), **limits), None, None


def _holds_rollouts(run: Path) -> bool:
    if run.is_dir():
        return not any(run.glob("ledger-*.jsonl"))
    return str(run) == "-" or run.is_fifo() or (run.is_file() and not holds_a_ledger(run))


def _check(workload: Workload) -> None:
    for name in workload.__struct_fields__:
        value = getattr(workload, name)
        if isinstance(value, bool):
            continue
        least_is_zero = name in ("tokens_in", "tokens_out", "price_in", "price_out", "work_s", "asked", "sigma")
        if value is None or (least_is_zero and value == 0 and math.isfinite(value)):
            continue
        if name == "cost_per_call" and value == 0:
            continue
        if not (math.isfinite(value) and value > 0):
            raise InputError(f"{name.replace('_', '-')} must be a positive number, not {value!r}.", field=name)
    if workload.asked > 1:
        raise InputError(f"asked is a share of the samples, at most 1, not {workload.asked!r}.", field="asked")


def show(
    workload: Workload,
    plan: Plan,
    console: Console,
    assumed: Collection[str] = (),
    whole: bool = False,
    costs: Costs | None = None,
) -> None:
    """The plan as plain tables. `assumed`: numbers that nothing gave. `whole`: of a file, not of a training step."""
    console.print(_facts(workload, plan, assumed, whole, costs))
    if plan.limits:
        console.print()
        console.print(_limits(plan))
    then = "" if plan.slowed_by == plan.binds else f", then {plan.slowed_by}"
    console.print(f"\nwhat binds: {plan.binds}{then}")
    for line in plan.advice:
        console.print(f"- {line}")


def _facts(workload: Workload, plan: Plan, assumed: Collection[str], whole: bool, costs: Costs | None) -> Table:
    table = Table(show_header=False, show_edge=False, pad_edge=False, box=None)
    table.add_column(justify="left")
    table.add_column(justify="right")
    table.add_column(justify="left")
    attempts = f"{workload.attempts:.3g} request{'' if workload.attempts == 1 else 's'} each"
    share = f"{workload.asked:.0%} of {counted(workload.samples, 'question' if whole else 'sample')}, {attempts}"
    share += " (assumed: --samples)" if "samples" in assumed else ""
    spread = f"median {duration(workload.latency)} a call" + (" (assumed: --latency)" if "latency" in assumed else "")
    of_step = "" if whole else " per step"
    table.add_row("calls" + of_step, f"{plan.calls:.0f}", share)
    table.add_row("judging" + of_step, duration(plan.judging_s), spread)
    if plan.rehearsals > 1:
        table.add_row("  at the slowest", duration(plan.judging_slowest_s), f"of {plan.rehearsals} rehearsals")
    if not whole:
        work = "own work not known (--work)" if workload.work_s is None else f"own work {duration(workload.work_s)}"
        table.add_row("trainer waits", duration(plan.wait_s), work)
    bears = " (assumed that the provider bears the ceiling of auto: --concurrency)" if "concurrency" in assumed else ""
    table.add_row("calls in flight", f"{plan.in_flight:.1f}", f"on average while judging{bears}")
    most = "up to " if "tokens_out" in assumed and plan.cost_step is not None else ""
    table.add_row("cost" + of_step, most + money(plan.cost_step), _tokens(workload, assumed))
    for name, dollars, note in _ways(costs) if costs else ():
        table.add_row(f"  {name}", most + money(dollars), note)
    if whole:
        return table
    table.add_row("cost per epoch", money(plan.cost_epoch), f"{counted(workload.steps, 'step')} (--steps)")
    table.add_row("judging per epoch", duration(plan.epoch_s), "if nothing overlapped")
    return table


def _limits(plan: Plan) -> Table:
    table = Table(show_edge=False, pad_edge=False)
    for name in ("limit", "value", "judging without it"):
        table.add_column(name, justify="left" if name == "limit" else "right")
    for limit in sorted(plan.limits, key=lambda item: item.seconds_without):
        table.add_row(limit.name, f"{limit.value:,.10g}", duration(limit.seconds_without))
    return table


def _ways(costs: Costs) -> list[tuple[str, float, str]]:
    """Other ways to pay, where they are known."""
    found = (
        ("flex", costs.flex, 'endpoint.tier = "flex"'),
        ("batch", costs.batch, "referee score --batch: within a day"),
        ("cascade", costs.least, "if the first member decides everything; up to the cost above"),
    )
    return [(name, dollars, note) for name, dollars, note in found if dollars is not None and costs.standard]


def _tokens(workload: Workload, assumed: Collection[str]) -> str:
    if workload.tokens_in is None or workload.tokens_out is None:
        return "tokens not known (--tokens-in, --tokens-out)"
    most = " (judge.max_tokens; --tokens-out)" if "tokens_out" in assumed and workload.tokens_out else ""
    return f"{workload.tokens_in:.0f} tokens in, {workload.tokens_out:.0f} out{most} a call"


def duration(seconds: float) -> str:
    """Seconds in the unit a person would say."""
    if seconds < 120:
        return f"{seconds:.3g} s"
    return f"{seconds / 60:.3g} min" if seconds < 7200 else f"{seconds / 3600:.3g} h"


def money(dollars: float | None) -> str:
    """US dollars, or that they are not known."""
    if dollars is None:
        return "unknown"
    return f"${dollars:.{4 if dollars == 0 or dollars >= 0.001 else 7}f}" if dollars < 1 else f"${dollars:,.2f}"
