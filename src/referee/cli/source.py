"""A file of rollouts named on the command line: a path, a pipe, or standard input."""

from __future__ import annotations

import contextlib
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from referee.errors import InputError


@contextlib.contextmanager
def as_file(rollouts: str) -> Iterator[Path]:
    """The input as a file that can be read twice: once to check all of it, once to judge it."""
    path = Path(rollouts)
    if rollouts == "-" and sys.stdin is None:
        raise InputError("-: standard input is closed. Name a file of rollouts.")
    if rollouts != "-" and path.is_dir():
        raise InputError(f"{rollouts} is a folder. Name a file of rollouts in it.")
    if rollouts != "-" and not path.exists():
        raise InputError(f"{rollouts}: no such file.")
    if rollouts != "-" and path.is_file():
        yield path
        return
    # Standard input, a FIFO, <(zcat …): what can be read once only is kept for the second time.
    with tempfile.NamedTemporaryFile(prefix="referee-", suffix=".jsonl") as spool:
        with contextlib.nullcontext(sys.stdin.buffer) if rollouts == "-" else path.open("rb") as given:
            shutil.copyfileobj(given, spool)
        spool.flush()
        yield Path(spool.name)
