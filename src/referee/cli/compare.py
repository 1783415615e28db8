"""`referee compare`: which of two sets of answers to the same prompts a judge prefers."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import msgspec
import typer
from msgspec.structs import replace

from referee.cli.compare_input import AnswerFile, match_files, read_answers
from referee.cli.compare_run import Task, about, compare_pairs, plan_line, to_compare
from referee.cli.compare_show import show
from referee.cli.problems import warn_unread
from referee.cli.score import UNSCORED
from referee.cli.settings import ConfigFile, settings, with_ledger
from referee.cli.source import Map, as_file
from referee.cli.terminal import terminal
from referee.cli.words import counted
from referee.errors import InputError
from referee.report.page import check_page
from referee.report.plain import plain
from referee.report.versus import versus
from referee.report.versus_page import write_versus
from referee.rollouts import first_rows
from referee.scoring.build import columns_shown, rubric_polarity


def command(
    a: Annotated[str, typer.Argument(help="Answers (JSONL, CSV, Parquet), the base; - for standard input.")],
    b: Annotated[str, typer.Argument(help="Other answers to the same prompts: does this one win?")],
    config: ConfigFile = None,
    judge: Annotated[str, typer.Option(help="Of a configuration with several judges: the one to ask.")] = "",
    names: Annotated[str, typer.Option(help="What to call them, as in base,tuned. Default: the files' names.")] = "",
    key: Annotated[str, typer.Option(help="Match rows by this column instead of by their prompt.")] = "",
    by: Annotated[
        list[str] | None, typer.Option(metavar="COLUMN", help="Break down by this column; may be given again.")
    ] = None,
    worst: Annotated[int, typer.Option(min=0, help="How many of the worst losses to show.")] = 5,
    skip_unmatched: Annotated[
        bool, typer.Option("--skip-unmatched", help="Leave out rows without a partner in the other file.")
    ] = False,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Also write a page with every comparison.")
    ] = None,
    ledger: Annotated[
        Path | None, typer.Option(help="Folder for the record. Default: PAGE.run beside the page; else none.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object instead of tables.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No plan, no progress.")] = False,
    mapped: Map = None,
) -> None:
    """Compare two sets of answers to the same prompts: how often does the judge prefer b to a?

    Rows are matched by their prompt; several answers to one prompt in the order they stand. A judge of kind pairwise is
    shown both answers, by default in both orders; any other scores each, and the higher score wins. A comparison
    without a verdict is no tie. What was judged is in the cache: after an interruption the same command goes on.
    """
    if a == b == "-":
        raise InputError("-: only one of the two can be standard input. Name a file for the other.")
    if output is not None:
        check_page(output)
    called, columns = _names(a, b, names), tuple(dict.fromkeys(by or ()))
    with as_file(a, mapped) as source_a, as_file(b, mapped) as source_b:
        files = AnswerFile(a, source_a), AnswerFile(b, source_b)
        seen = [read_answers(file) for file in files]
        references = all((row.sample.reference or "").strip() for rows in seen for row in rows)
        with settings(config, references) as chosen:
            asked = to_compare(chosen, judge)
            if ledger is not None:
                asked = replace(asked, ledger=replace(asked.ledger, dir=str(ledger)))
            elif output is not None:
                asked = with_ledger(asked, output.with_suffix(".run"))
            shown = columns_shown(asked)
            wanted = tuple(dict.fromkeys((*shown, *columns, *([key] if key else ()))))
            for file in files:
                warn_unread(file.name, first_rows(file.path), wanted, rubric_polarity(asked))
            found = match_files(files, asked, wanted, columns, key, skip_unmatched)
            task = Task(pairs=found.pairs, names=called, config=asked, shown=frozenset(shown), by=columns)
            if not quiet:
                typer.echo(plan_line(task), err=True)
            done = compare_pairs(task, quiet)
    left = len(found.only_a), len(found.only_b)
    result = versus(done.comparisons, about(task, done, left), columns, worst, done.unit)
    if as_json:
        typer.echo(msgspec.json.format(msgspec.json.encode(result), indent=2).decode())
    else:
        show(result, terminal())
    if output is not None:
        size = write_versus(output, result, done.comparisons)
        record = f"   record: {asked.ledger.dir}" if asked.ledger.dir else ""
        typer.echo(f"{output}: {counted(result.pairs, 'comparison')}, {size / 1e3:.0f} kB{record}", err=True)
    if result.unscored == result.pairs or result.unscored > chosen.missing.abort_above * result.pairs:
        have = f"{counted(result.pairs, 'comparison')} {'has' if result.pairs == 1 else 'have'}"
        typer.echo(f"{result.unscored} of {have} no verdict: exit status {UNSCORED}.", err=True)
        raise typer.Exit(UNSCORED)


def _names(a: str, b: str, given: str) -> tuple[str, str]:
    """What the two are called: as given, or by their files, or by the folders where those have the same name."""
    if given:
        parts = [part.strip() for part in given.split(",")]
        if len(parts) != 2 or not all(parts) or parts[0] == parts[1]:
            raise InputError(f"--names {given!r}: two different names with a comma, such as base,tuned.")
        return parts[0], parts[1]
    files = [Path(name) for name in (a, b)]
    for first, second in (
        [file.name.partition(".")[0] for file in files],
        [file.absolute().parent.name for file in files],
    ):
        if first != second and first.strip("-") and second.strip("-"):
            return plain(first, 40), plain(second, 40)
    return "a", "b"
