"""What is wrong with a file of rollouts, in few lines: the format it has instead, or each kind of problem once."""

from __future__ import annotations

import re
import zlib
from collections.abc import Collection
from pathlib import Path

import typer

from referee.cli.words import counted
from referee.errors import InputError
from referee.rollouts import (
    BOM,
    BadLine,
    Polarity,
    doubtful_columns,
    open_rollouts,
    polarity_of_rows,
    unread_columns,
    unreadable,
)
from referee.rollouts.columns import Rows
from referee.rollouts.row import NEEDED

SHOWN = 20
"""Kinds of problems that are kept and shown; the rest is counted. So memory does not grow with bad lines."""
UNREAD = 12
"""Columns without a reader that are named."""
HEAD = 64 * 1024
"""Bytes that are looked at to recognise a format."""
ROW = 'Not one line is a rollout. One looks like this: {"prompt": "What is 2 + 2?", "response": "It is 4."}'
_PACKED = "{tool} -dc {source} | referee score - …"
_BINARY = (
    (b"PK\x03\x04", "ZIP (Excel sheets are, too)", "unpack it, or save the sheet as CSV"),
    (b"SQLite format 3\x00", "an SQLite database", "sqlite3 -csv -header {source} 'SELECT ...' | referee score - …"),
    (b"\x80\x04", "a Python pickle", "load it, and write Parquet or call referee.score_table"),
    (b"\x80\x05", "a Python pickle", "load it, and write Parquet or call referee.score_table"),
    (b"version https://git-lfs", "a Git LFS pointer, not the file itself", "git lfs pull"),
    (b"\x28\xb5\x2f\xfd", "packed with zstd", _PACKED.replace("{tool}", "zstd")),
    (b"BZh", "packed with bzip2", _PACKED.replace("{tool}", "bzip2")),
    (b"\xfd7zXZ\x00", "packed with xz", _PACKED.replace("{tool}", "xz")),
    (b"\xff\xfe", "UTF-16", "iconv -f UTF-16 -t UTF-8 {source} > {target}"),
    (b"\xfe\xff", "UTF-16", "iconv -f UTF-16 -t UTF-8 {source} > {target}"),
)
_DOCUMENT = ("JSON over several lines", "jq -c . {source} > {target}, one rollout a line")


class Problems:
    """Counts bad lines, and keeps the first of each kind."""

    def __init__(self) -> None:
        self.count = 0
        self._kinds: dict[tuple[str, str], tuple[BadLine, int]] = {}

    def add(self, item: BadLine) -> None:
        """One more. The line itself is not kept."""
        self.count += 1
        name = (item.field, item.problem)
        first, times = self._kinds.get(name, (item, 0))
        if times or len(self._kinds) < SHOWN:
            self._kinds[name] = (BadLine(first.line, first.field, first.problem), times + 1)

    def complaint(self, name: str, advice: str) -> str:
        """All of it for people."""
        more = self.count
        lines = []
        for item, times in self._kinds.values():
            more -= times
            again = f" (the same on {counted(times - 1, 'more line')})" if times > 1 else ""
            lines.append(f"  {item.message}{again}")
        if more:
            lines.append(f"  … and {counted(more, 'more line')} with other problems")
        return "\n".join([f"{name}: {counted(self.count, 'line')} cannot be used. Nothing was spent.", *lines, advice])

    def instead(self, rows: Rows) -> str:
        """Advice for a file without one usable row: which column may be the missing field, else what a row looks like.
        `rows`: its first ones."""
        missing = next((field for field, what in self._kinds if field in NEEDED and what.startswith("missing")), "")
        names = column_names(rows)
        if not missing or not names:
            return ROW
        return f"{names} If one of them is the {missing}, name it with --map {missing}=COLUMN."


def column_names(rows: Rows) -> str:
    """A sentence with the columns of these rows; empty where they have none."""
    names = [name for name in dict.fromkeys(name for row in rows for name in row) if name.isprintable()]
    more = f" and {len(names) - UNREAD} more" if len(names) > UNREAD else ""
    return f"Its columns are {', '.join(names[:UNREAD])}{more}." if names else ""


def warn_unread(name: str, rows: Rows, shown: Collection[str], rubric: Polarity | None) -> None:
    """Say which columns no judge sees, and how pitfalls of rubrics are understood. `shown`: columns that templates
    show."""
    if rubric is not None:
        report = polarity_of_rows(rows, rubric)
        for line in report.lines():
            typer.echo(f"{name}: {line}", err=True)
    named = {doubt.column for doubt in doubtful_columns(rows)}
    found = [
        column
        for column in unread_columns(rows, shown, rubric is not None)
        if column.isprintable() and column not in named
    ]
    if found:
        names = ", ".join(column or '""' for column in found[:UNREAD])  # pandas writes its index without a name
        more = f" and {len(found) - UNREAD} more" if len(found) > UNREAD else ""
        typer.echo(
            f"{name}: not read: {names}{more}. No judge sees them; a template shows a column with "
            "{{columns.name}}.",
            err=True,
        )


def refuse_binary(name: str, path: Path) -> None:
    """Raise for a file that cannot hold lines of JSON, by its first bytes."""
    head = _head(name, path)
    for magic, what, how in _BINARY:
        if head.startswith(magic):
            raise _other(name, what, how)


def refuse_text(name: str, path: Path) -> None:
    """Raise for a text of another format, by its beginning. For a file without a single rollout."""
    text = _head(name, path).removeprefix(BOM).decode("utf-8", "replace").strip()
    if not text:
        raise InputError(f"{name}: there are no rollouts in this file. Nothing was spent.")
    if "\0" in text:
        raise _other(name, "binary data of a format that is not known", "save it as one of these")
    first = text.splitlines()[0].rstrip()
    if first == "{":
        raise _other(name, *_DOCUMENT)
    if not first.startswith("{"):
        raise InputError(
            f"{name}: this is not JSON Lines: it begins with {first[:40]!r}. Nothing was spent. A rollout is a line of "
            'JSON, or a row of a table. One looks like this: {"prompt": "What is 2 + 2?", "response": "It is 4."}'
        )


def _head(name: str, path: Path) -> bytes:
    try:
        with open_rollouts(path) as stream:
            return stream.read(HEAD)
    except (OSError, EOFError, zlib.error) as error:
        raise unreadable(name, error) from None


def _other(name: str, what: str, how: str) -> InputError:
    plain = re.fullmatch(r"[\w./+-]+", name) and name != "-"
    target = Path(name).with_suffix(".jsonl") if plain else "in.jsonl"
    if str(target) == name:
        target = Path(name).with_suffix(".converted.jsonl")
    command = how.replace("{source}", name if plain else "in").replace("{target}", str(target))
    return InputError(
        f"{name}: this is {what}; referee reads JSON Lines (an object with `prompt` and `response` a line), CSV and "
        f"Parquet. Nothing was spent. To convert it: {command}"
    )
