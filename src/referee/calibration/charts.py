"""Charts of a calibration as SVG and tables: no script, colours by the page's style sheet. Pure; text is escaped."""

from __future__ import annotations

import math
from collections.abc import Sequence

from referee.calibration.markup import shown
from referee.stats import Bin, Confusion, Estimate

SIDE, LEFT, TOP, RIGHT, BOTTOM = 300, 46, 10, 12, 40
"""Pixels: the square of a curve and the room around it."""
TICKS = 5
LONG = 150
"""Pixels of an interval in a table."""


def curve(bins: Sequence[Bin]) -> str:
    """People's mean against what the judge said, with intervals; even agreement is the diagonal."""
    most = max(each.count for each in bins)
    parts = [
        f'<svg class="curve" viewBox="0 0 {LEFT + SIDE + RIGHT} {TOP + SIDE + BOTTOM}" role="img" '
        'aria-label="What people said against what the judge said, rows grouped by the judge\'s value">'
    ]
    for step in range(TICKS + 1):
        share = step / TICKS
        label = f"{share:.3g}"
        x, y = _at(share, share)
        parts += [
            f'<path class="grid" d="M{x:.1f} {TOP}V{TOP + SIDE}M{LEFT} {y:.1f}H{LEFT + SIDE}"/>',
            f'<text x="{x:.1f}" y="{TOP + SIDE + 15}" text-anchor="middle">{label}</text>',
            f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{label}</text>',
        ]
    (x0, y0), (x1, y1) = _at(0, 0), _at(1, 1)
    parts.append(f'<line class="even" x1="{x0}" y1="{y0}" x2="{x1}" y2="{y1}"/>')
    for each in bins:
        x, y = _at(each.said, each.true)
        (_, bottom), (_, top) = _at(each.said, each.low), _at(each.said, each.high)
        size = 3 + 6 * math.sqrt(each.count / most)
        title = f"{each.count} rows: judge {each.said:.2f}, people {each.true:.2f} ({each.low:.2f} to {each.high:.2f})"
        parts.append(
            f'<g><title>{title}</title><line class="bar" x1="{x:.1f}" y1="{bottom:.1f}" x2="{x:.1f}" y2="{top:.1f}"/>'
            f'<circle class="dot" cx="{x:.1f}" cy="{y:.1f}" r="{size:.1f}"/></g>'
        )
    middle = LEFT + SIDE / 2
    parts.append(f'<text x="{middle}" y="{TOP + SIDE + 33}" text-anchor="middle">the judge says</text>')
    side = TOP + SIDE / 2
    parts.append(
        f'<text x="12" y="{side}" text-anchor="middle" transform="rotate(-90 12 {side})">people say</text></svg>'
    )
    return "".join(parts)


def _at(x: float, y: float) -> tuple[float, float]:
    return LEFT + SIDE * min(1.0, max(0.0, x)), TOP + SIDE * (1 - min(1.0, max(0.0, y)))


def matrix(table: Confusion) -> str:
    """Rows by people's label, columns by the judge's; darker is more of the row."""
    head = "".join(f"<th>{shown(str(label))}</th>" for label in table.labels)
    rows = [f'<tr><th></th><th colspan="{len(table.labels)}">the judge says</th></tr><tr><th>people</th>{head}</tr>']
    for at, (label, counts) in enumerate(zip(table.labels, table.counts, strict=True)):
        total = sum(counts)
        cells = []
        for other, count in enumerate(counts):
            colour = "--green" if at == other else "--red"
            share = round(70 * count / total) if total else 0
            fill = f"background:color-mix(in srgb,var({colour}) {share}%,var(--faint))"
            cells.append(f'<td style="{fill}" title="{count} of {total}">{count or ""}</td>')
        rows.append(f"<tr><th>{shown(str(label))}</th>{''.join(cells)}</tr>")
    return f'<div class="wrap"><table class="matrix">{"".join(rows)}</table></div>'


def interval(found: Estimate) -> str:
    """A dot and its interval on a line from 0 to 1."""
    if found.value is None:
        return ""

    def at(value: float) -> float:
        return 5 + (LONG - 10) * min(1.0, max(0.0, value))

    ends = "" if found.low is None or found.high is None else f"M{at(found.low):.1f} 8H{at(found.high):.1f}"
    return (
        f'<svg width="{LONG}" height="16" viewBox="0 0 {LONG} 16" aria-hidden="true">'
        f'<path class="grid" d="M5 8H{LONG - 5}M5 4V12M{LONG - 5} 4V12"/><path class="bar" d="{ends}"/>'
        f'<circle class="dot" cx="{at(found.value):.1f}" cy="8" r="4"/></svg>'
    )
