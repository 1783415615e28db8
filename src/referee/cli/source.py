"""Rollouts named on the command line: a path, a pipe, standard input, or a table, as a file of JSON Lines."""

from __future__ import annotations

import contextlib
import shutil
import sys
import tempfile
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated

import typer

from referee.cli.problems import refuse_binary
from referee.errors import InputError
from referee.rollouts import unreadable
from referee.rollouts.tables import is_table, read_mapping, write_lines

Map = Annotated[
    list[str] | None,
    typer.Option("--map", metavar="FIELD=COLUMN", help="Read a field from another column; may be repeated."),
]


@contextlib.contextmanager
def as_file(rollouts: str, mapped: Sequence[str] | None = None) -> Iterator[Path]:
    """The input as a file of JSON Lines that can be read twice: once to check all of it, once to judge it."""
    mapping = read_mapping(mapped or ())
    path = Path(rollouts)
    if rollouts == "-" and sys.stdin is None:
        raise InputError("-: standard input is closed. Name a file of rollouts.")
    if rollouts != "-" and not path.exists():
        raise InputError(f"{rollouts}: no such file.")
    with contextlib.ExitStack() as stack:
        if rollouts == "-" or not (path.is_file() or path.is_dir()):
            # Standard input, a FIFO, <(zcat …): what can be read once only is kept for the second time.
            spool = stack.enter_context(tempfile.NamedTemporaryFile(prefix="referee-", suffix=".jsonl"))
            with contextlib.nullcontext(sys.stdin.buffer) if rollouts == "-" else path.open("rb") as given:
                shutil.copyfileobj(given, spool)
            spool.flush()
            path = Path(spool.name)
        try:
            if mapping or is_table(path):
                lines = stack.enter_context(tempfile.NamedTemporaryFile(prefix="referee-", suffix=".jsonl"))
                if path.is_file() and not is_table(path, mapping.values()):
                    refuse_binary(rollouts, path)
                write_lines(path, mapping, lines)  # type: ignore[arg-type]
                lines.flush()
                path = Path(lines.name)
        except (EOFError, zlib.error, OSError) as error:
            raise unreadable(rollouts, error) from None
        yield path
