"""Small bar charts for the README, as SVG, from what was measured: `python -m bench.plots` (or `make plots`)."""

from __future__ import annotations

import json
import statistics
from html import escape
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
IMAGES = HERE.parent / "docs" / "images"
WIDTH, LABEL, ROW, TOP = 760, 300, 30, 62
OURS, OTHER = "#1f6f5c", "#9aa5b1"


def bars(title: str, subtitle: str, rows: list[tuple[str, float, str]]) -> str:
    """A chart of (name, value, shown value). Names that begin with "ours" are coloured."""
    most = max(value for _, value, _ in rows) or 1.0
    height = TOP + ROW * len(rows) + 14
    room = WIDTH - LABEL - 130
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" '
        f'role="img" aria-label="{escape(title)}" font-family="system-ui, sans-serif" font-size="14">',
        "<style>text{fill:#1f2933}.s{fill:#52606d}rect.b{fill:#fff}"
        "@media (prefers-color-scheme:dark){text{fill:#e4e7eb}.s{fill:#9aa5b1}rect.b{fill:#0d1117}}</style>",
        f'<rect class="b" width="{WIDTH}" height="{height}"/>',
        f'<text x="16" y="26" font-size="17" font-weight="600">{escape(title)}</text>',
        f'<text class="s" x="16" y="46" font-size="12">{escape(subtitle)}</text>',
    ]
    for n, (name, value, shown) in enumerate(rows):
        y = TOP + n * ROW
        wide = max(2.0, room * value / most)
        colour = OURS if name.startswith("ours") else OTHER
        parts += [
            f'<text x="{LABEL - 10}" y="{y + 16}" text-anchor="end">{escape(name)}</text>',
            f'<rect x="{LABEL}" y="{y}" width="{wide:.1f}" height="{ROW - 9}" rx="3" fill="{colour}"/>',
            f'<text x="{LABEL + wide + 8:.1f}" y="{y + 16}">{escape(shown)}</text>',
        ]
    return "\n".join([*parts, "</svg>", ""])


def _middle(rows: list[Any], key: Any) -> float:
    return float(statistics.median(row[key] for row in rows))


def waiting(results: dict[str, Any]) -> str:
    """Document 002: seconds the trainer waits."""
    rows = [(name, _middle(found, 1), f"{_middle(found, 1):.1f} s") for name, found in results["002"].items()]
    said = f"100 responses, judge of 0.6 s, 10 s of other work; median, time scaled {results['scale']:g}x"
    return bars("Seconds a training step waits for its judge", said, rows)


def limits(results: dict[str, Any]) -> str:
    """The lowest and the typical share of the ideal over all providers."""
    rows = []
    for client in next(iter(results["rows"].values())):
        shares = sorted(_middle(clients[client], "share") for clients in results["rows"].values())
        rows.append((client, statistics.median(shares), f"{statistics.median(shares):.2f} (least {shares[0]:.2f})"))
    said = f"{len(results['rows'])} kinds of provider, share of the ideal makespan: median and least; one setting each"
    return bars("Finding the provider's limit", said, rows)


def cost(results: dict[str, Any]) -> str:
    """Processor time per sample at 64 in flight."""
    rows = []
    for name, found in results["rows"].items():
        client, kind, at_once = name.split(" | ")
        if kind == "plain" and at_once == "64":
            rows.append((client, _middle(found, "cpu_us"), f"{_middle(found, 'cpu_us'):,.0f} µs"))
    return bars("Processor time per judged sample", "64 in flight, a server that answers at once; median", rows)


PLOTS = {
    "bench-waiting": ("documents", waiting),
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
