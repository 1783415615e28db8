"""`referee diff`: two runs, or two judges, on the same samples. Where they agree, and examples of where they do not."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Annotated

import msgspec
import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from referee.cli.source import as_file
from referee.cli.terminal import terminal
from referee.errors import InputError
from referee.report.diff import Diff, Example, diff
from referee.report.files import record_beside, sides
from referee.report.plain import plain

SETTINGS_SHOWN = 12
LABELS = ("score", "label", "value")
"""What people said of a sample."""
NOTHING = "-"


def command(
    a: Annotated[Path, typer.Argument(help="A ledger (folder or file), or rewards of referee score.")],
    b: Annotated[Path, typer.Argument(help="Another one over the same samples, or labels that people gave.")],
    examples: Annotated[int, typer.Option(min=0, help="How many of the widest differences to show.")] = 5,
    judge: Annotated[str, typer.Option(help="Of a run with several judges: the one to compare.")] = "",
    same_text: Annotated[
        bool, typer.Option("--same-text", help="Leave out pairs that share an id while their texts differ.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Plain data instead of tables.")] = False,
    mapped: Annotated[
        list[str] | None,
        typer.Option("--map", metavar="FIELD=COLUMN", help="Of labels in B: read a field from another column."),
    ] = None,
) -> None:
    """Compare two judges, or a judge with people, on the same samples.

    Runs with several judges are compared by the weighted mean of their judges, and judge by judge.
    """
    with as_file(str(b), mapped, LABELS) if mapped else contextlib.nullcontext(b) as labels:
        try:
            given = sides(a, labels, judge)
        except InputError as error:
            raise InputError(str(error).replace(str(labels), str(b))) from None
        print_diff(diff(*given, examples, same_text), as_json, _records(a, b))


def _records(*files: Path) -> str:
    """Rows of rewards may lack texts: the records beside them, which have them."""
    beside = [str(record_beside(path)) for path in files if path.is_file() and record_beside(path).is_dir()]
    return f" Rewards may hold no texts; the record of their run does: compare {', '.join(beside)}." if beside else ""


def print_diff(found: Diff, as_json: bool, records: str = "") -> None:
    """Print a comparison. Status 1 where there is nothing to compare. `records`: what else to compare."""
    if as_json:
        typer.echo(msgspec.json.format(msgspec.json.encode(found), indent=2).decode())
    else:
        show(found, terminal())
    if not found.matched:
        typer.echo(
            "no sample of one is in the other: samples are matched by id, by prompt and response, or by position where "
            f"one file has neither and both have as many.{records}",
            err=True,
        )
        raise typer.Exit(1)


def show(found: Diff, console: Console) -> None:
    """The comparison as plain tables. Text of samples is cut and cannot act on the terminal."""
    console.print(_facts(found))
    if found.judges:
        console.print()
        console.print(_judges(found))
    if found.levels:
        console.print()
        console.print(_levels(found))
    if found.settings:
        console.print("\nsettings that differ (a, b)")
        for name, (mine, other) in list(found.settings.items())[:SETTINGS_SHOWN]:
            console.print(Text(f"  {plain(name)}: {plain(repr(mine), 60)}, {plain(repr(other), 60)}"))
        if len(found.settings) > SETTINGS_SHOWN:
            console.print(f"  and {len(found.settings) - SETTINGS_SHOWN} more")
    for example in found.examples:
        console.print(_example(example, console.width))


def _facts(found: Diff) -> Table:
    table = Table(show_header=False, show_edge=False, pad_edge=False, box=None)
    table.add_column()
    table.add_column(justify="right")
    table.add_column()
    if found.judge_a or found.judge_b:
        names = [plain(name, 60) or "its judge" for name in (found.judge_a, found.judge_b)]
        table.add_row("compared", "", f"a: {names[0]}  b: {names[1]}")
    how = ", ".join(f"{count} by {name}" for name, count in found.matched_by.items())
    table.add_row("matched", str(found.matched), f"{how}; {found.only_a} only in a, {found.only_b} only in b")
    if found.matched_by.get("id only"):
        table.add_row("", "", "id only: the texts differ, so these are different answers (--same-text)")
    if found.repeated:
        table.add_row("repeated", str(found.repeated), "the same sample again, paired in order")
    table.add_row("scored by both", str(found.both), f"a: {_models(found.models_a)}  b: {_models(found.models_b)}")
    unscored = f"{found.unscored_a} by a only, {found.unscored_b} by b only, {found.unscored_both} by both"
    table.add_row("unscored", str(found.unscored_a + found.unscored_b + found.unscored_both), unscored)
    for name, reasons in (("a", found.reasons_a), ("b", found.reasons_b)):
        if reasons:
            table.add_row("", "", f"{name}: " + ", ".join(f"{plain(why, 30)} {n}" for why, n in reasons.items()))
    unit = "one point" if found.scale == "score" else "a tenth of the scale"
    table.add_row("equal", _share(found.exact), f"within {unit}: {_share(found.within_one)}")
    table.add_row("Spearman", _number(found.spearman), f"Pearson {_number(found.pearson)}")
    table.add_row("kappa", _number(found.kappa), f"of {found.kappa_of}; weighted {_number(found.weighted_kappa)}")
    means = f"a {_number(found.mean_a)}, b {_number(found.mean_b)}, in [0, 1]"
    table.add_row("mean difference", _number(found.mean_difference, "+.3f"), means)
    order = found.order
    if order.groups:
        table.add_row(
            "order flipped",
            _flipped(found),
            f"{order.flipped} of {order.same + order.flipped} pairs of siblings that both tell apart, in "
            f"{order.groups} groups",
        )
        table.add_row("tied", f"{order.tied_a + order.tied_b}", f"only a ties {order.tied_a}, only b {order.tied_b}")
        table.add_row("best kept", _share(order.best_kept / order.groups), "groups whose best is the same sample")
    return table


def _judges(found: Diff) -> Table:
    """Each of several judges by itself, in a line."""
    table = Table(show_edge=False, pad_edge=False)
    for name in ("judge", "scored by both", "equal", "Spearman", "mean a", "mean b", "order flipped"):
        table.add_column(name, justify="left" if name == "judge" else "right")
    for name, one in found.judges.items():
        means = _number(one.mean_a), _number(one.mean_b)
        table.add_row(
            Text(plain(name, 40)), str(one.both), _share(one.exact), _number(one.spearman), *means, _flipped(one)
        )
    return table


def _flipped(found: Diff) -> str:
    told = found.order.same + found.order.flipped
    return _share(found.order.flipped / told if told else None)


def _levels(found: Diff) -> Table:
    table = Table(show_edge=False, pad_edge=False)
    for name in ("where a gave", "samples", "b gave", "difference"):
        table.add_column(name, justify="right")
    for level in found.levels:
        table.add_row(f"{level.a:.2f}", str(level.count), f"{level.mean_b:.2f}", f"{level.mean_b - level.a:+.2f}")
    return table


def _example(example: Example, width: int) -> Text:
    room = max(40, width - 12)
    where = "".join(
        part
        for part in (
            f"\n{plain(example.id, 60) or 'no id'}",
            "" if example.step is None else f", step {example.step}",
            f", group {plain(example.group, 40)}" if example.group else "",
            f": a {_number(example.a, 'g')}, b {_number(example.b, 'g')} ({example.difference:+.2f})",
        )
    )
    lines = [where]
    for name, text in (
        ("prompt", example.prompt),
        ("response", example.response),
        ("a says", example.why_a),
        ("b says", example.why_b),
    ):
        if text:
            lines.append(f"  {name:<8}  {plain(text, room)}")
    return Text("\n".join(lines))


def _models(models: dict[str, int]) -> str:
    return ", ".join(plain(name, 40) for name in models) or NOTHING


def _number(value: float | None, form: str = ".3f") -> str:
    return NOTHING if value is None else format(value, form)


def _share(value: float | None) -> str:
    return NOTHING if value is None else f"{value:.1%}"
