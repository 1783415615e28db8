"""Files named on the command line: a path, a pipe, standard input, or a table, as a file of JSON Lines."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import sys
import tempfile
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Annotated

import typer

from referee.cli.problems import refuse_binary
from referee.errors import InputError
from referee.rollouts import unreadable
from referee.rollouts.tables import MAPPED, is_table, read_mapping, table_lines

Map = Annotated[
    list[str] | None,
    typer.Option("--map", metavar="FIELD=COLUMN", help="Read a field from another column; may be repeated."),
]


@contextlib.contextmanager
def as_file(rollouts: str, mapped: Sequence[str] | None = None, more: Sequence[str] = ()) -> Iterator[Path]:
    """The input as a file of JSON Lines that can be read twice: once to check all of it, once to judge it. `more`:
    fields beside those of rollouts that a column can be mapped to."""
    mapping = read_mapping(mapped or (), MAPPED.union(more))
    path = Path(rollouts)
    if rollouts == "-" and sys.stdin is None:
        raise InputError("-: standard input is closed. Name a file of rollouts.")
    if rollouts != "-" and not path.exists():
        raise InputError(f"{rollouts}: no such file.")
    with contextlib.ExitStack() as stack:
        try:
            if rollouts == "-" or not (path.is_file() or path.is_dir()):
                # Standard input, a FIFO, <(zcat …): what can be read once only is kept for the second time.
                spool, copy = stack.enter_context(scratch())
                with contextlib.nullcontext(sys.stdin.buffer) if rollouts == "-" else path.open("rb") as given:
                    shutil.copyfileobj(given, spool)
                spool.flush()
                path = copy
            if path.is_file():
                refuse_binary(rollouts, path)  # before its ending is believed: an Excel sheet may be called a.csv
            if mapping or is_table(path):
                lines, copy = stack.enter_context(scratch())
                lines.writelines(table_lines(path, mapping))
                lines.flush()
                path = copy
        except (EOFError, zlib.error, OSError) as error:
            if getattr(error, "errno", None) in (errno.ENOSPC, errno.EDQUOT):
                raise InputError(
                    f"{tempfile.gettempdir()}: no room for a temporary copy of {rollouts}; the variable TMPDIR names "
                    "another folder. Nothing was spent."
                ) from None
            raise unreadable(rollouts, error) from None
        except InputError as error:
            raise InputError(str(error).replace(str(path), rollouts)) from None
        yield path


@contextlib.contextmanager
def scratch() -> Iterator[tuple[IO[bytes], Path]]:
    """A temporary file, to be written and then read by its path. On Linux no folder names it, so that not even kill -9
    leaves it behind."""
    with tempfile.TemporaryFile() as stream:
        path = Path(f"/proc/self/fd/{stream.fileno()}")
        if os.access(path, os.R_OK):
            yield stream, path
            return
    with tempfile.NamedTemporaryFile(prefix="referee-", suffix=".jsonl") as named:
        yield named, Path(named.name)
