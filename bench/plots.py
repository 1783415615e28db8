"""Small bar charts as SVG, from what was measured: `python -m bench.plots` (or `make plots`)."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any, NamedTuple

HERE = Path(__file__).parent
IMAGES = HERE.parent / "docs" / "images"
WIDTH, LABEL, ROW, TOP, FOOT, VALUE = 760, 290, 30, 64, 46, 150
STYLE = (
    "text{fill:#1f2933}.s{fill:#52606d}.b{fill:#fff}.o{fill:#1f6f5c}.n{fill:#9aa5b1}.g{stroke:#d9dee4}.m{stroke:#1f2933}"
    "@media (prefers-color-scheme:dark){text{fill:#e4e7eb}.s{fill:#9aa5b1}.b{fill:#0d1117}.o{fill:#3a9d84}"
    ".n{fill:#66707c}.g{stroke:#2a313a}.m{stroke:#e4e7eb}}"
)


class Bar(NamedTuple):
    """One row of a chart: its bar, a line from the least to the most that was measured, and words at its end."""

    name: str
    value: float
    least: float
    most: float
    shown: str


def ticks(most: float) -> list[float]:
    """Round numbers from 0 up to at least `most`, four to six of them."""
    size = 10.0 ** math.floor(math.log10(most)) if most > 0 else 1.0
    step = next(size * part for part in (0.2, 0.25, 0.5, 1.0, 2.0) if most <= 5 * size * part)
    return [step * n for n in range(max(1, math.ceil(most / step - 1e-9)) + 1)]


def chart(title: str, subtitle: str, axis: str, rows: Sequence[Bar]) -> str:
    """Bars over an axis. Those of referee are coloured."""
    marks = ticks(max(row.most for row in rows))
    room = WIDTH - LABEL - VALUE
    bottom = TOP + ROW * len(rows)
    height = bottom + FOOT

    def at(value: float) -> float:
        return LABEL + room * value / marks[-1]

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" '
        f'role="img" aria-label="{escape(title)}" font-family="system-ui, sans-serif" font-size="14">',
        f"<style>{STYLE}</style>",
        f'<rect class="b" width="{WIDTH}" height="{height}"/>',
        f'<text x="16" y="26" font-size="17" font-weight="600">{escape(title)}</text>',
        f'<text class="s" x="16" y="46" font-size="12">{escape(subtitle)}</text>',
    ]
    for mark in marks:
        x = f"{at(mark):.1f}"
        parts += [
            f'<line class="g" x1="{x}" x2="{x}" y1="{TOP - 6}" y2="{bottom}"/>',
            f'<text class="s" x="{x}" y="{bottom + 15}" font-size="12" text-anchor="middle">{mark:,g}</text>',
        ]
    middle = (LABEL + WIDTH - VALUE) / 2
    parts.append(
        f'<text class="s" x="{middle}" y="{bottom + 34}" font-size="12" text-anchor="middle">{escape(axis)}</text>'
    )
    for n, row in enumerate(rows):
        y = TOP + n * ROW
        colour = "o" if row.name.startswith("referee") else "n"
        parts += [
            f'<text x="{LABEL - 10}" y="{y + 16}" text-anchor="end">{escape(row.name)}</text>',
            f'<rect class="{colour}" x="{LABEL}" y="{y}" width="{max(2.0, at(row.value) - LABEL):.1f}" '
            f'height="{ROW - 9}" rx="3"/>',
            f'<text x="{at(row.most) + 8:.1f}" y="{y + 16}">{escape(row.shown)}</text>',
        ]
        if row.most > row.least:
            y += (ROW - 9) // 2
            parts.append(
                f'<path class="m" fill="none" d="M{at(row.least):.1f} {y - 4}v8m0 -4H{at(row.most):.1f}m0 -4v8"/>'
            )
    return "\n".join([*parts, "</svg>", ""])


def measured(name: str, values: Sequence[float], form: str) -> Bar:
    """The median of repeats, with the least and the most."""
    middle = statistics.median(values)
    return Bar(_named(name), middle, min(values), max(values), form.format(middle))


def _named(name: str) -> str:
    return "referee" + name.removeprefix("ours").replace(", whole pipeline", "") if name.startswith("ours") else name


def waiting(results: dict[str, Any]) -> str:
    """How long a training step stands still for its verdicts."""
    rows = [
        measured(name, [row["blocked"] * 1e3 for row in found], "{:,.0f} ms")
        for name, found in results["rows"].items()
        if name != "no judge"
    ]
    said = (
        f"64 samples in a step of {results['seconds']:g} s of compute, a judge of 100 ms that serves 32 at once; median"
    )
    axis = "milliseconds that a step stands still (line: least to most); less is better"
    return chart("What a training step waits for its judge", said, axis, rows)


def limits(results: dict[str, Any]) -> str:
    """The typical share of the ideal over all providers, with the least and the most of them."""
    rows = []
    for client in next(iter(results["rows"].values())):
        shares = [statistics.median(row["share"] for row in clients[client]) for clients in results["rows"].values()]
        name = f"{client} (told the capacity)" if client == "fixed 60" else client
        bar = measured(name, shares, "{:.2f}")
        rows.append(bar._replace(shown=f"{bar.shown}, least {bar.least:.2f}"))
    said = f"{len(results['rows'])} kinds of provider, the same setting for all of them; the bar is the median provider"
    axis = "ideal time / time taken (line: worst to best provider); more is better, 1 is ideal"
    return chart("Finding the provider's limit", said, axis, rows)


def cost(results: dict[str, Any]) -> str:
    """Processor time per sample at 64 in flight, whole clients only, the cheapest first."""
    rows = []
    for name, found in results["rows"].items():
        client, kind, at_once = name.split(" | ")
        if kind == "plain" and at_once == "64" and not client.endswith("alone"):
            rows.append(measured(client, [row["cpu_us"] for row in found], "{:,.0f} µs"))
    said = (
        f"64 in flight, a server that answers at once; {results['count']:,} samples with referee, "
        f"{results['others']:,} with other clients; median"
    )
    axis = "microseconds of processor time per sample (line: least to most); less is better"
    return chart("Processor time per judged sample", said, axis, sorted(rows, key=lambda row: row.value))


PLOTS = {
    "bench-waiting": ("waiting", waiting),
    "bench-limits": ("limits", limits),
    "bench-cost": ("client_cost", cost),
}


def main() -> None:
    """Draw what results.json has figures for."""
    results = json.loads((HERE / "results.json").read_text())
    IMAGES.mkdir(parents=True, exist_ok=True)
    for name, (bench, draw) in PLOTS.items():
        if "skipped" not in results.get(bench, {"skipped": ""}):
            (IMAGES / f"{name}.svg").write_text(draw(results[bench]))
            print(f"docs/images/{name}.svg")


if __name__ == "__main__":
    main()
