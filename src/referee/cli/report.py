"""`referee report`: one page from the record of a run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from referee.errors import InputError
from referee.report.data import Gathering
from referee.report.files import Rewards, lines_of
from referee.report.page import plotly_source, write_page
from referee.report.rows import TEXTS_MB, Rows


def command(
    run: Annotated[
        Path,
        typer.Argument(help="A folder of ledger files ([ledger] dir), one of them, or rewards of referee score."),
    ],
    output: Annotated[Path, typer.Option("--output", "-o", help="The page to write.")] = Path("report.html"),
    title: Annotated[str, typer.Option(help="Its title. Default: the folder's name.")] = "",
    texts_mb: Annotated[
        float,
        typer.Option(min=0.0, help="How much prompts and replies may add to the page; 0 for numbers only."),
    ] = TEXTS_MB,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Say nothing.")] = False,
) -> None:
    """Write one self-contained page of a run: findings, charts, and every sample."""
    said = make_report(run, output, title, texts_mb)
    if not quiet:
        typer.echo(said, err=True)


def make_report(run: Path, output: Path, title: str = "", texts_mb: float = TEXTS_MB) -> str:
    """Write the page of a ledger or of rewards; returns a line that says what was written."""
    plotly_source()  # if it is missing, say so before reading a large ledger
    reading = lines_of(run)
    rewards = reading if isinstance(reading, Rewards) else None
    gathering, rows, count = Gathering(rewards.scale if rewards else None), Rows(texts_mb), 0
    for count, line in enumerate(reading, 1):  # noqa: B007
        gathering.add(line)
        rows.add(line)
    if not count:
        raise InputError(f"{run}: its ledger holds nothing that can be read. No page was written.")
    report = gathering.report()
    size = write_page(output, report, rows, title or f"referee: {run.resolve().name}")
    kept = rows.meta().with_texts
    words = f"{output}: {rows.count} sample{'' if rows.count == 1 else 's'}, {size / 1e6:.1f} MB"
    if kept < rows.count:
        words += f"; texts of {kept} (--texts-mb allows more)"
    lost = reading.skipped + reading.torn + reading.unknown
    if lost:
        words += f"; {lost} line{'' if lost == 1 else 's'} of {run} could not be read"
    if rewards is not None and rewards.record is not None:
        words += f". Its record says more, with prompts, replies and times: referee report {rewards.record}"
    return words
