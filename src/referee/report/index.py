"""The page over a folder of runs: a row for each, and what two of them need to be laid over each other.

A run is reduced to its row as soon as it is read. The page holds all rows as data, so the next page reads again only
runs whose files have changed since.
"""

from __future__ import annotations

import base64
import os
import re
import shlex
import zlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

import msgspec
from msgspec import Struct, field

from referee.report.diff import flat
from referee.report.page import element, framed, plotly_source, write_pieces
from referee.report.plain import plain
from referee.report.rows import Packed, encode
from referee.report.shape import Finding, Report, StepRow
from referee.report.steps import BINS
from referee.version import VERSION

SCRIPTS = (
    *("codec.js", "text.js", "charts.js", "panels.js", "criteria.js", "groups.js"),
    *("judges.js", "audit.js", "index.js"),
)
DEPTH = 4
"""Folders below the one that is named in which runs are looked for."""
MOST_POINTS = 100
"""Points of a run's curves."""
LONGEST = 200
"""Characters of a setting that are kept."""
CURVES = ("score_mean", "reward_mean", "cost", "wait_fraction")
"""Of a StepRow; and the share of unscored samples."""
_DATA = re.compile(rb'<script type="text/plain" id="index">([A-Za-z0-9+/=]*)</script>')
_HEAD = 256 * 1024 * 1024


class RunRow(Struct, kw_only=True):
    """What the page says of one run. None: nothing to say."""

    name: str
    """Its folder, below the one that was named."""
    mark: str = ""
    """Names, sizes and times of its files: the same as long as nothing was written."""
    trouble: str = ""
    """Why it could not be read."""
    began: float = 0.0
    kind: str = ""
    models: list[str] = field(default_factory=list)
    digest: str = ""
    trainer: bool = True
    priced: bool = False
    levels: int = 0
    low: float = 0.0
    high: float = 1.0
    """The judge's scale, as the report's."""
    metrics: dict[str, float] = field(default_factory=dict)
    """Those that the table and the comparison show."""
    unscored_share: float | None = None
    steps: int = 0
    x: list[float] = field(default_factory=list)
    """Steps of the curves."""
    curves: dict[str, list[float | None]] = field(default_factory=dict)
    bins: list[int] = field(default_factory=list)
    """Verdicts by score from the lowest to the highest."""
    findings: list[Finding] = field(default_factory=list)
    alarms: int = 0
    """Of the audit, over or not."""
    settings: dict[str, str] = field(default_factory=dict)
    page: str = ""
    """Its own page's name, beside this one; empty where there is none."""
    stale: bool = False
    """That page is older than the run's last line."""
    command: str = ""
    """What writes that page."""


MADE_BY = " ".join((VERSION, *RunRow.__struct_fields__))
"""Rows that something else made are made anew."""


class Index(Struct):
    """Everything the page holds."""

    made_by: str = ""
    folder: str = ""
    rows: list[RunRow] = field(default_factory=list)


SHOWN = (
    "samples",
    "scored",
    "score_mean",
    "score_std",
    "reward_mean",
    "cost_usd",
    "latency_p50_s",
    "latency_p95_s",
    "wait_fraction",
    "wait_s",
    "requests",
    "throttled",
    "elapsed_s",
    "flat_group_share",
)
"""Metrics of a row."""


def runs_in(folder: Path) -> list[Path]:
    """Folders at or below this one that hold a ledger, in order of their names. Hidden ones only if they are ours."""
    found = []
    for where, below, files in os.walk(folder):
        if any(name.startswith("ledger-") and name.endswith(".jsonl") for name in files):
            found.append(Path(where))
        deep = len(Path(where).relative_to(folder).parts) >= DEPTH
        below[:] = [] if deep else sorted(name for name in below if not name.startswith(".") or name == ".referee")
    return sorted(found)


def mark_of(run: Path) -> tuple[str, float]:
    """What tells whether a run's files have changed since, and when that last was."""
    files = sorted((path.name, path.stat()) for path in run.glob("ledger-*.jsonl"))
    mark = " ".join(f"{name}:{stat.st_size}:{stat.st_mtime_ns}" for name, stat in files)
    return mark, max((stat.st_mtime for _, stat in files), default=0.0)


def row_of(name: str, report: Report, config: Mapping[str, Any]) -> RunRow:
    """A run's row from its report."""
    last = report.runs[-1] if report.runs else None
    named = [row for row in report.steps if row.first is not None]
    drawn = named[:: max(1, -(-len(named) // MOST_POINTS))] if len(named) > 1 else []
    metrics = report.metrics
    ended = metrics["samples"] - metrics["unscored/cancelled"]
    return RunRow(
        name=name,
        began=report.runs[0].began if report.runs else 0.0,
        kind=last.kind if last else "",
        models=list(dict.fromkeys(model for run in report.runs for model in run.models)),
        digest=last.digest if last else "",
        trainer=report.trainer,
        priced=report.cost.priced,
        levels=report.scale.levels,
        low=report.scale.low,
        high=report.scale.high,
        metrics={one: metrics[one] for one in SHOWN},
        unscored_share=1.0 - metrics["scored"] / ended if ended else None,
        steps=sum((row.last or 0) - (row.first or 0) + 1 for row in named),
        x=[((row.first or 0) + (row.last or 0)) / 2 for row in drawn],
        curves={curve: [getattr(row, curve) for row in drawn] for curve in CURVES}
        | {"unscored": [_unscored(row) for row in drawn]},
        bins=[sum(counts) for counts in zip(*(row.bins for row in report.steps), strict=True)] or [0] * BINS,
        alarms=len(report.audit.alarms) + report.audit.more_alarms if report.audit else 0,
        findings=[one for one in report.findings if one.level != "good"],
        settings={
            name: text if len(text := _said(value)) <= LONGEST else f"{text[:LONGEST]}…"
            for name, value in flat(config)
            if value not in (None, "") and not name.startswith("ledger.")  # where a record is kept shapes no verdict
        },
    )


def _said(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _unscored(row: StepRow) -> float | None:
    return 1.0 - row.scored / row.samples if row.samples else None


def linked(row: RunRow, run: Path, output: Path, changed: float) -> Path:
    """Say in the row where its own page is, or what writes it; the page's place, beside this one."""
    page = output.with_name(f"{output.stem}-{quote(row.name, safe='')}.html")
    there = page.is_file()
    row.page = quote(page.name) if there else ""
    row.stale = there and page.stat().st_mtime < changed
    row.command = f"referee report {shlex.quote(str(run))} -o {shlex.quote(str(page))}"
    return page


def rows_before(page: Path) -> dict[str, RunRow]:
    """Rows that an earlier index of this version holds, by name; none where it is no such page."""
    try:
        found = _DATA.search(page.read_bytes())
        told = zlib.decompressobj().decompress(base64.b64decode(found[1]), _HEAD) if found else b"{}"
        index = msgspec.json.decode(told, type=Index)
    except (OSError, ValueError, zlib.error, msgspec.MsgspecError):
        return {}
    return {row.name: row for row in index.rows} if index.made_by == MADE_BY else {}


def write_index(path: Path, folder: Path, rows: Sequence[RunRow], title: str) -> int:
    """Write the page, readable by its owner only, and say how many bytes it has."""
    named = plain(str(folder if folder.name else folder.resolve()), 300)
    return write_pieces(path, _page(Index(made_by=MADE_BY, folder=named, rows=list(rows)), title))


def _page(index: Index, title: str) -> Iterator[str]:
    charts = plotly_source()
    data = (
        element(Packed("index", zlib.compress(encode(index), 6))),
        element(Packed("plotly", zlib.compress(charts.encode(), 9))),
    )
    yield from framed("index", title, SCRIPTS, data, charts)
