"""Where `referee score` may write: checked before anything is touched, and claimed by one run at a time."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path

from referee.cli.output_tables import check_ending, holds_rewards, working
from referee.cli.rows import holds_rows, joining, partial
from referee.errors import ConfigError


def check_output(rollouts: str, output: str, resume: bool, overwrite: bool) -> None:
    """Refuse an output that cannot be written, or that would cost the user a file. Changes nothing."""
    if output == "-":
        if resume:
            raise ConfigError("--resume needs a file to resume: give -o a path. (Cached verdicts are reused anyway.)")
        if sys.stdout is None:
            raise ConfigError("-o -: standard output is closed. Give -o a path.")
        return
    check_ending(output)
    path, rows = Path(output), Path(working(output))
    if resume and overwrite:
        raise ConfigError("--resume goes on, --overwrite starts over: choose one.")
    try:
        output.encode()
    except UnicodeEncodeError:
        raise ConfigError(
            f"{output!r}: this file name is not UTF-8, so the record cannot name it. Rename it."
        ) from None
    if not path.parent.is_dir():
        raise ConfigError(f"{output}: the folder {path.parent} does not exist.")
    _spare_input(rollouts, path)
    if path.exists() and not path.is_file():
        what = "a folder" if path.is_dir() else "no regular file"
        raise ConfigError(f"{output} is {what}. Give -o the path of a file, or - for standard output.")
    if overwrite:
        return
    if not holds_rows(rows) or (rows != path and path.exists() and not holds_rewards(output)):
        there = path if holds_rows(rows) else rows
        raise ConfigError(f"{there} exists and is no file of rewards: name another, or replace it with --overwrite.")
    for there in () if resume else dict.fromkeys((path, rows, partial(rows))):
        if there.exists():
            raise ConfigError(f"{there} exists: --resume goes on with it, --overwrite starts over.")


def rejects_of(rollouts: str, output: str) -> Path:
    """The file in which unusable lines are set aside."""
    base = Path("rollouts.jsonl" if rollouts == "-" else rollouts) if output == "-" else Path(output)
    return base.with_name(base.stem + ".rejects.jsonl")


@contextlib.contextmanager
def claimed(output: str) -> Iterator[None]:
    """Keep a second run off the same output; it would mix its rows with ours. Standard output needs no lock."""
    if output == "-" or sys.platform == "win32":
        yield
        return
    import fcntl

    path = Path(output + ".lock")
    while True:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(handle)
            raise ConfigError(f"{output}: another run is writing it now. Wait for it, or name another file.") from None
        except OSError:
            pass  # a file system without locks cannot keep a second run off
        if path.exists() and os.path.samestat(os.fstat(handle), path.stat()):
            break
        os.close(handle)  # the other run ended just now and removed the file
    try:
        yield
    finally:
        path.unlink(missing_ok=True)
        os.close(handle)


def _spare_input(rollouts: str, path: Path) -> None:
    """A run must not write over what it reads, under whatever name."""
    if rollouts == "-":
        return
    rows = Path(working(str(path)))
    written = {
        "the output": path,
        "the rows of a run in progress": rows,
        "the output of a run in progress": partial(rows),
        "the joined rows": joining(rows),
        "the joined output": joining(path),
        "the file of rejects": rejects_of(rollouts, str(path)),
    }
    for what, file in written.items():
        with contextlib.suppress(OSError):
            if os.path.samefile(rollouts, file):
                raise ConfigError(f"{file}: {what} would replace the rollouts. Give -o another name; nothing was done.")
