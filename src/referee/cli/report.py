"""`referee report`: one page from the record of a run, or an index of the runs in a folder."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import track

from referee.cli.words import counted
from referee.errors import InputError
from referee.ledger import RunLine
from referee.report.data import Gathering
from referee.report.files import Rewards, lines_of, record_beside
from referee.report.index import RunRow, linked, mark_of, row_of, rows_before, runs_in, write_index
from referee.report.judged_file import judged_file, with_own_columns
from referee.report.page import check_page, plotly_source, write_page
from referee.report.rows import TEXTS_MB, Rows


def command(
    run: Annotated[
        Path,
        typer.Argument(help="A ledger ([ledger] dir), rewards of referee score, or a folder of runs for an index."),
    ],
    output: Annotated[Path, typer.Option("--output", "-o", help="The page to write.")] = Path("report.html"),
    title: Annotated[str, typer.Option(help="Its title. Default: the folder's name.")] = "",
    texts_mb: Annotated[
        float,
        typer.Option(min=0.0, help="How much prompts and replies may add to the page; 0 for numbers only."),
    ] = TEXTS_MB,
    pages: Annotated[
        bool, typer.Option("--pages", help="Of a folder of runs: write each run's page too, beside the index.")
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Say nothing.")] = False,
) -> None:
    """Write one self-contained page of a run: findings, charts, and every sample. Of a folder of runs: an index, a row
    for each, and two of them side by side."""
    if run.is_dir() and (runs := runs_in(run)) and run not in runs:
        said = make_index(run, output, title, texts_mb if pages else None, quiet)
    else:
        said = make_report(run, output, title, texts_mb)
    if not quiet:
        typer.echo(said, err=True)


def make_report(run: Path, output: Path, title: str = "", texts_mb: float = TEXTS_MB) -> str:
    """Write the page of a ledger or of rewards; returns a line that says what was written."""
    return _report(run, output, title, texts_mb)[1]


def make_index(folder: Path, output: Path, title: str = "", texts_mb: float | None = None, quiet: bool = True) -> str:
    """Write the index of the runs in a folder, and with `texts_mb` the pages of those without one that is up to date;
    returns a line that says what was written."""
    runs = runs_in(folder)
    plotly_source()
    check_page(output)
    before, rows, read = rows_before(output), list[RunRow](), 0
    console = Console(stderr=True)
    for run in track(runs, "reading", console=console, transient=True, disable=quiet or not console.is_terminal):
        name = str(run.relative_to(folder))
        try:
            mark, changed = mark_of(run)
        except OSError as error:
            rows.append(RunRow(name=name, trouble=f"{run}: cannot be read ({error.strerror or error})."))
            continue
        row = before.get(name)
        page = linked(row or RunRow(name=name), run, output, changed)
        wanted = texts_mb is not None and (not page.is_file() or page.stat().st_mtime < changed)
        if row is None or row.mark != mark or wanted:
            read += 1
            try:
                row = _report(run, page if wanted else None, name, texts_mb or 0.0)[0]
                row.name = name
            except InputError as error:
                row = RunRow(name=name, trouble=str(error))
            row.mark = mark
        linked(row, run, output, changed)
        rows.append(row)
    size = write_index(output, folder, rows, title or f"referee: runs in {folder.resolve().name}")
    return f"{output}: {counted(len(runs), 'run')}, {read} of them read, {size / 1e6:.1f} MB"


def _report(run: Path, output: Path | None, title: str, texts_mb: float) -> tuple[RunRow, str]:
    """Read a run once, write its page if there is a place for it; its row in an index, and what was written."""
    plotly_source()  # if it is missing, say so before reading a large ledger
    beside = judged_file(run)
    reading = lines_of(run if beside is None else beside.record)
    lines = reading if beside is None or output is None else with_own_columns(reading, beside.rewards)
    gathering = Gathering(reading.scale, reading.scales) if isinstance(reading, Rewards) else Gathering()
    rows = Rows(texts_mb)
    count, config = 0, dict[str, object]()
    for count, line in enumerate(lines, 1):  # noqa: B007
        gathering.add(line)
        if output is not None:
            rows.add(line)
        if isinstance(line, RunLine):
            config = line.config
    if not count:
        raise InputError(f"{run}: its ledger holds nothing that can be read. No page was written.")
    report = gathering.report()
    row = row_of(run.name, report, config)
    if output is None:
        return row, ""
    size = write_page(output, report, rows, title or f"referee: {run.resolve().name}")
    kept = rows.meta().with_texts
    words = f"{output}: {counted(rows.count, 'sample')}, {size / 1e6:.1f} MB"
    if kept < rows.count:
        words += f"; texts of {kept} (--texts-mb allows more)"
    if beside is not None and beside.record != run:
        words += f", from its record {beside.record}"
    elif beside is None and run.is_file() and record_beside(run).is_dir():
        words += f"; {record_beside(run)} does not hold all of these rewards, and is left out"
    if lost := reading.skipped + reading.torn + reading.unknown:
        words += f"; {counted(lost, 'line')} of {run if beside is None else beside.record} could not be read"
    return row, words
