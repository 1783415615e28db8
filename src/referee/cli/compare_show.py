"""A comparison of two sets of answers in a terminal. Texts of answers are cut and cannot act on the terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from referee.cli.plan import money
from referee.cli.words import counted
from referee.report.plain import plain
from referee.report.versus import About, Slice, Versus
from referee.report.versus_pair import Comparison, Order
from referee.stats.interval import Estimate

SLICES_SHOWN = 20
"""Values of a column that are shown; the rest is in the JSON and on the page."""
LINES_OF_ANSWER = 3
"""Lines of an answer that are shown."""


def show(found: Versus, console: Console) -> None:
    """Numbers, breakdown, findings, worst losses."""
    console.print(Text(heading(found)))
    console.print()
    console.print(_facts(found))
    console.print()
    for finding in found.findings:
        console.print(Text(f"- {plain(finding.text, 400)}"))
    for column, slices in found.by.items():
        console.print()
        console.print(_slices(plain(column, 40), slices))
    if len(found.lengths.by) > 1:
        console.print()
        console.print(_slices("length", found.lengths.by))
    if found.worst:
        console.print()
        console.print(Text(f"worst losses of {found.about.names[1]}"))
        for number, each in enumerate(found.worst, 1):
            console.print(_loss(number, each, found.about, console.width))


def heading(found: Versus) -> str:
    """What was compared, and how."""
    about = found.about
    models = f", {', '.join(plain(name, 40) for name in about.models)}" if about.models else ""
    how = (
        f"compared by {about.judge}{models}, {'in both orders' if about.both_orders else 'in one order'}"
        if about.by == "comparison"
        else f"scored by {about.judge} ({about.kind}{models}); the higher score wins"
    )
    return f"{about.names[1]} against {about.names[0]}, {how}"


def _facts(found: Versus) -> Table:
    table = Table(show_header=False, show_edge=False, pad_edge=False, box=None)
    table.add_column()
    table.add_column(justify="right")
    table.add_column()
    for name, value, more in _rows(found):
        table.add_row(name, value, Text(more))
    return table


def _rows(found: Versus) -> Iterator[tuple[str, str, str]]:
    about, rate, position, lengths = found.about, found.win_rate, found.position, found.lengths
    prompts = counted(found.prompts, "prompt")
    interval = (
        f"95 % interval {_between(rate)} ({found.interval}), over {prompts}"
        if rate.low is not None
        else f"no interval: {rate.reason or 'nothing to compute it from'}"
    )
    yield "win rate", _percent(rate.value), interval
    yield "wins", str(found.wins), ""
    ties = [f"{found.equal} of equal answers" if found.equal else ""]
    if position is not None and position.order_ties:
        ties.append(f"{position.order_ties} changed with the order")
    yield "ties", str(found.ties), ", ".join(filter(None, ties))
    yield "losses", str(found.losses), ""
    reasons = ", ".join(f"{plain(why, 30)} {count}" for why, count in found.reasons.items())
    share = f"{_percent(found.unscored_share)} of {counted(found.pairs, 'pair')}"
    yield "unscored", str(found.unscored), f"{share}: {reasons}; counted nowhere" if reasons else ""
    if found.gated_a or found.gated_b:
        gated = f"{about.names[1]} {found.gated_b}, {about.names[0]} {found.gated_a}: not shown to the judge"
        yield "empty, cut off", str(found.gated_a + found.gated_b), gated
    if any(about.unmatched):
        yield "left out", str(sum(about.unmatched)), "rows without a partner"
    if position is not None:
        agree = f"; both orders agree in {_percent(position.agree)}" if position.agree is not None else ""
        decided = f"of {counted(position.decided, 'decided request')}{agree}"
        yield "shown first wins", _percent(position.first_wins.value), f"{_bracketed(position.first_wins)}{decided}"
    if found.scores is not None:
        scores, apart = found.scores, found.scores.difference
        width = f" ({apart.low:+.3f} to {apart.high:+.3f})" if apart.low is not None else ""
        means = f"{about.names[1]} {scores.mean_b:.3f}, {about.names[0]} {scores.mean_a:.3f}, in [0, 1]"
        yield "mean difference", f"{apart.value:+.3f}", f"{means}{width}"
    if lengths.mean_a is not None:
        means = (
            f"{about.names[1]} {lengths.mean_b:.0f}, {about.names[0]} {lengths.mean_a:.0f} {lengths.unit} on average"
        )
        yield "longer wins", _percent(lengths.longer_wins.value), f"{_bracketed(lengths.longer_wins)}{means}"
    asked = f"{counted(about.requests, 'request')}, {about.from_cache} of {counted(found.pairs, 'pair')} from cache"
    cost = "unknown" if about.cost_usd is None else money(about.cost_usd)
    yield "cost", cost, f"{asked}, {counted(about.tokens_in, 'token')} in, {about.tokens_out} out"


def _slices(name: str, slices: Sequence[Slice]) -> Table:
    table = Table(show_edge=False, pad_edge=False)
    missing = ("unscored",) if any(each.unscored for each in slices) else ()
    for column in (name, "win rate", "95 % interval", "wins", "ties", "losses", *missing):
        table.add_column(column, justify="left" if column == name else "right")
    for each in slices[:SLICES_SHOWN]:
        numbers = each.wins, each.ties, each.losses, *([each.unscored] if missing else [])
        rate, interval = _percent(each.win_rate.value), _between(each.win_rate) or "-"
        table.add_row(Text(plain(each.value, 40)), rate, interval, *map(str, numbers))
    if len(slices) > SLICES_SHOWN:
        table.add_row(f"and {len(slices) - SLICES_SHOWN} more")
    return table


def _loss(number: int, each: Comparison, about: About, width: int) -> Text:
    names = about.names
    room = max(40, width - 12)
    columns = "".join(f", {plain(name, 20)} {plain(value, 30)}" for name, value in each.columns.items())
    answer = f", answer {each.ordinal + 1}" if each.ordinal else ""
    lines = [f"\n{number}. lines {each.a.line} and {each.b.line}{answer}{columns}"]
    lines.append(f"   prompt  {plain(each.prompt, room)}")
    for name, side in zip(names, (each.a, each.b), strict=True):
        score = "" if about.by == "comparison" or side.score is None else f" ({side.score:g})"
        lines.append(f"   {plain(name, 30)}{score}: {plain(side.text, LINES_OF_ANSWER * room)}")
    lines += [f"   judge, {_shown(order, names)}: {plain(order.why, 2 * room)}" for order in each.orders]
    if not each.orders:
        said = [(name, side.why) for name, side in zip(names, (each.a, each.b), strict=True) if side.why]
        lines += [f"   judge on {plain(name, 30)}: {plain(why, 2 * room)}" for name, why in said]
    return Text("\n".join(lines))


def _shown(order: Order, names: tuple[str, str]) -> str:
    return f"{plain(names[order.first == 'b'], 30)} first"


def _between(found: Estimate) -> str:
    return "" if found.low is None or found.high is None else f"{100 * found.low:.1f} to {100 * found.high:.1f}"


def _bracketed(found: Estimate) -> str:
    words = _between(found)
    return f"({words}) " if words else ""


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:.1f} %"
