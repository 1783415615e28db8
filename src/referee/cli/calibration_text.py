"""A calibration in a terminal: a table of judges, what is good and what is not, and the worst disagreements."""

from __future__ import annotations

import textwrap

from rich.console import Console
from rich.table import Table
from rich.text import Text

from referee.calibration import Calibrated, Calibration, Disagreement
from referee.calibration.findings import corrected_words, legend, percent, value
from referee.cli.words import counted
from referee.report.plain import plain

MARKS = {"bad": "✗", "warn": "!", "good": "✓"}
NOTHING = "-"
MIN = {"judge": 8}
"""Columns that must not be squeezed to nothing in a narrow terminal."""


def show(found: Calibration, console: Console, name: str) -> None:
    """All of it. Text of rows is cut and cannot act on the terminal."""
    unit = "response" if found.preferences else "row"
    less = f", {found.unlabelled} without a label" if found.unlabelled else ""
    what = counted(found.labelled, f"labelled {unit}")
    console.print(Text(f"{plain(name)}: {what}{less}, {counted(found.prompts, 'prompt')}\n"))
    console.print(_table(found))
    console.print(Text(_legend(found)))
    for judge in found.judges:
        console.print()
        _judge(judge, console, len(found.judges) > 1)


def _table(found: Calibration) -> Table:
    table = Table(show_edge=False, pad_edge=False, box=None, padding=(0, 1, 0, 0))
    preferences = all(judge.measures.kind == "preference" for judge in found.judges)
    by = found.comparison.by if found.comparison else "kappa"
    missing = any(judge.measures.unscored for judge in found.judges)
    for name in (
        "",
        "judge",
        by,
        "accuracy",
        *(() if preferences else ("bias",) if by == "order" else ("bias", "order")),
        *(("unscored",) if missing else ()),
        "$/1,000",
        "a call",
    ):
        left = name in ("judge", "")
        table.add_column(name, justify="left" if left else "right", no_wrap=name != "judge", min_width=MIN.get(name))
    for judge in found.judges:
        measures = judge.measures
        bias = NOTHING if measures.bias.value is None else f"{measures.bias.value:+.2f}"
        order = NOTHING if measures.order.value is None else f"{measures.order.value:.0%}"
        share = measures.unscored / measures.labelled if measures.labelled else 0.0
        table.add_row(
            _mark(found, judge.name),
            Text(plain(judge.name, 40)),
            _narrow(value(measures.kappa) if by == "kappa" else percent(measures.order)),
            _narrow(percent(measures.accuracy)),
            *(() if preferences else (bias,) if by == "order" else (bias, order)),
            *((f"{share:.1%}",) if missing else ()),
            "unknown" if judge.cost_per_1000 is None else f"${judge.cost_per_1000:,.3g}",
            "cached" if judge.seconds is None else f"{judge.seconds:.2g} s",
        )
    return table


def _narrow(text: str) -> str:
    return text.replace(" to ", "–")


def _mark(found: Calibration, name: str) -> str:
    comparison = found.comparison
    if comparison is None:
        return ""
    near = {one.name: one.within_noise for one in comparison.others}
    best = "*" if name == comparison.best else {True: "~", None: "?"}.get(near.get(name), " ")
    return best + ("$" if name == comparison.cheapest else "")


def _legend(found: Calibration) -> str:
    if not found.judges:
        return ""
    comparison = found.comparison
    words = [f"Intervals of 95 %. {plain(legend(found), 2000)}"]
    if any(judge.measures.kind != "preference" for judge in found.judges):
        order = comparison is None or comparison.by == "kappa"
        more = " order: pairs of answers to one prompt that it puts as people do." if order else ""
        words.append(f"bias: judge less people, of 1.{more}")
    if comparison is not None:
        words.append("* best  ~ not worse than the best by more than noise  $ the cheapest of these")
        if any(one.within_noise is None for one in comparison.others):
            words.append("? not known whether it is worse: too few rows")
        for other in comparison.others:
            names = f"{plain(other.name, 40)} less {plain(comparison.best, 40)}"
            words.append(f"  {names}: {comparison.by} {value(other.difference, '+.2f')}")
    return "\n".join(words)


def _judge(judge: Calibrated, console: Console, several: bool) -> None:
    models = f" by {', '.join(plain(model, 60) for model in judge.models)}" if judge.models else ""
    console.print(Text(f"{plain(judge.name, 60)} ({judge.kind}{models})" if several else f"{judge.kind}{models}"))
    order = {"bad": 0, "warn": 1, "good": 2}
    for finding in sorted(judge.findings, key=lambda one: order[one.level]):
        _say(console, f"  {MARKS[finding.level]} {plain(finding.text, 400)}")
        if finding.advice:
            _say(console, f"    → {plain(finding.advice, 400)}", 6)
    if judge.corrected is not None:
        _say(console, f"  = mean of all rows: {corrected_words(judge.corrected)}")
    _parts(judge, console)
    for number, example in enumerate(judge.disagreements):
        if not number:
            console.print("\n  worst disagreements")
        console.print(_example(example, console.width))


def _say(console: Console, text: str, indent: int = 4) -> None:
    width = max(40, console.width)
    console.print(Text(textwrap.fill(text, width, subsequent_indent=" " * indent, break_on_hyphens=False)))


def _parts(judge: Calibrated, console: Console) -> None:
    if not judge.parts:
        return
    table = Table(show_edge=False, pad_edge=False, box=None, padding=(0, 2, 0, 0))
    for name in ("  part", "n", "kappa", "accuracy", "unscored"):
        table.add_column(name, justify="left" if name == "  part" else "right")
    for part in judge.parts:
        what = part.column if part.what == "by" else part.what
        measures = part.measures
        table.add_row(
            Text(f"  {plain(what, 30)}: {plain(part.name, 60)}"),
            str(measures.n),
            value(measures.kappa),
            percent(measures.accuracy),
            str(measures.unscored),
        )
    console.print()
    console.print(table)


def _example(example: Disagreement, width: int) -> Text:
    room = max(40, width - 16)
    id = "" if example.id == str(example.line) else f", {plain(example.id, 60)}"
    lines = [f"  line {example.line}{id}: people {example.human:.3g}, judge {example.judge:.3g}"]
    if example.other_judge is not None:
        lines = [f"  line {example.line}: the preferred one {example.judge:.2f}, the other {example.other_judge:.2f}"]
    for name, text in (
        ("prompt", example.prompt),
        ("response", example.response),
        ("people say", example.human_why),
        ("judge says", example.judge_why),
        ("the other", example.other),
        ("judge says", example.other_why),
    ):
        if text:
            lines.append(f"    {name:<10}  {plain(text, room)}")
    return Text("\n".join(lines))
