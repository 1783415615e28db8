"""`referee calibrate --cascade`: what a cascade costs, and how far it agrees with people, at each threshold."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import typer
from msgspec.structs import replace
from rich.table import Table

from referee.calibration import Row, YesRule, common_of
from referee.calibration.cascade import Curve, Point, replay, words
from referee.calibration.ratings import ask, settled_of
from referee.calibration.truth import truth_of
from referee.cli.terminal import terminal
from referee.cli.words import counted
from referee.config import Config
from referee.errors import ConfigError, InputError
from referee.judging import needs_groups
from referee.progress import Meter
from referee.referee import Referee


def replayed(config: Config, rows: Sequence[Row], yes: YesRule | None, seed: int, quiet: bool) -> Curve:
    """The curve of the configuration's cascade. Every member judges every labelled row once; what is cached costs
    nothing."""
    cascade = next((judge for judge in config.judge if judge.kind == "cascade"), None)
    if cascade is None:
        raise ConfigError('--cascade needs a judge of kind = "cascade" in the configuration.', setting="judge.kind")
    if needs_groups(cascade.uses):
        raise ConfigError("--cascade: a member compares the responses of a group, which goes on as a whole.")
    rows = [row for row in rows if row.labelled]
    truth = truth_of(rows, cascade.uses[-1], yes)
    if truth.kind == "preference":
        raise InputError("--cascade needs a label for each row, not preferences. Nothing was spent.")
    members = {judge.name: judge for judge in cascade.uses}
    every = replace(config, judge=tuple(members[name] for name in cascade.members), team=())
    prices = [endpoint.price_in for endpoint in config.endpoint]
    with Referee(every) as referee, Meter(len(rows), referee.metrics, quiet, any(prices)):
        rewards = ask(referee, rows)
    said = [settled_of(place, rewards) for place in range(len(every.judge))]
    prompts, priced = common_of(rows).prompts, all(price is not None for price in prices)
    return replay(cascade.members, said, truth.values, prompts, truth.kind, seed, cascade.until, priced)


def tell(curve: Curve, as_json: bool) -> None:
    """Print it, and the line to write."""
    if as_json:
        data = {**msgspec.to_builtins(curve), "line": curve.line()}
        typer.echo(msgspec.json.format(msgspec.json.encode(data), indent=2).decode())
        return
    table = Table(show_edge=False, pad_edge=False, box=None, padding=(0, 1))
    for name in ("", "until", *(f"by {member}" for member in curve.members), "kappa", "difference", "$/1,000"):
        table.add_column(name, justify="right")
    for point in curve.points:
        shares = [f"{share:.0%}" for share in point.shares]
        kappa = "-" if point.agreement is None else f"{point.agreement:.2f}"
        threshold = "always on" if point.until is None else words(point.until)
        price = "unknown" if point.cost_per_1000 is None else f"{point.cost_per_1000:.3f}"
        mark = "→" if point is curve.chosen else ""
        table.add_row(mark, threshold, *shares, kappa, _difference(point), price)
    console = terminal()
    console.print(f"{counted(curve.rows, 'labelled row')}; kappa with people, less that of {curve.members[-1]} alone\n")
    console.print(table)
    if curve.line():
        console.print(
            f"\nThe cheapest that is not worse than {curve.members[-1]} alone, by these rows:\n{curve.line()}"
        )
    elif curve.rows:
        console.print(f"\nNo threshold is as good as {curve.members[-1]} alone, by these rows: use that judge.")


def _difference(point: Point) -> str:
    found = point.difference
    if found.value is None:
        return "-"
    ends = " ?" if found.low is None or found.high is None else f" ({found.low:+.2f} to {found.high:+.2f})"
    return f"{found.value:+.2f}{ends}"
