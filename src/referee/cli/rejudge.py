"""`referee rejudge`: the samples of a finished run by another judge, and how the two differ."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import msgspec
import typer

from referee.cli import score
from referee.cli.diff import print_diff
from referee.cli.source import scratch
from referee.errors import ConfigError, InputError
from referee.report.diff import diff
from referee.report.files import record_beside, sides
from referee.report.recorded_rollouts import rollouts_of


def command(
    run: Annotated[Path, typer.Argument(help="A ledger (folder or file), or rewards of referee score beside theirs.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="The new rewards: .jsonl, .jsonl.gz, .csv, .parquet.")],
    config: Annotated[
        Path | None, typer.Option("--config", "-c", help="The other judge. Default: ./referee.toml.")
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on after an interruption.")] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Start over although the output exists.")] = False,
    examples: Annotated[int, typer.Option(min=0, help="How many of the widest differences to show.")] = 5,
    as_json: Annotated[bool, typer.Option("--json", help="Plain data instead of tables.")] = False,
) -> None:
    """Judge the samples of a run again, with another judge, and compare.

    The ledger holds what is needed unless [ledger] content = false. The new rewards and their ledger are written as by
    `referee score`; the comparison is that of `referee diff`.
    """
    _spare(run, output)
    with scratch() as (rollouts, name):
        rollouts.writelines(msgspec.json.encode(row) + b"\n" for row in rollouts_of(run))
        rollouts.flush()
        try:
            score.command(str(name), str(output), config, resume, overwrite, skip_bad=False, quiet=as_json)
        except InputError as error:
            raise InputError(str(error).replace(str(name), str(run))) from None
    print_diff(diff(*sides(run, output), examples), as_json)


def _spare(run: Path, output: Path) -> None:
    """Refuse an output that would change the run it is compared with."""
    if not run.exists():
        return  # said where it is read
    mine = {path.resolve() for path in (run, *run.parents[:1]) if path.is_file() or path.suffix == ".run"}
    mine |= {record_beside(path) for path in mine} | {run.resolve()}
    if {output.resolve(), record_beside(output).resolve()} & mine:
        raise ConfigError(f"-o {output}: these are the rewards of the run that is judged again. Give -o another name.")
