"""What is wrong with a file of rollouts, in few lines: the format it has instead, or each kind of problem once."""

from __future__ import annotations

import contextlib
import csv
import itertools
import re
import zlib
from collections.abc import Collection
from pathlib import Path

import typer

from referee.cli.words import counted
from referee.config import Config, asking_judges
from referee.errors import InputError
from referee.rollouts import (
    ALIASES,
    BOM,
    NEEDED,
    BadLine,
    Polarity,
    doubtful_columns,
    open_rollouts,
    polarity_of_rows,
    unread_columns,
    unreadable,
)
from referee.rollouts.columns import Rows

SHOWN = 20
"""Kinds of problems that are kept and shown; the rest is counted. So memory does not grow with bad lines."""
UNREAD = 12
"""Columns without a reader that are named."""
HEAD = 64 * 1024
"""Bytes that are looked at to recognise a format."""
_PANDAS = (
    """python -c "import pandas; pandas.read_{kind}('{source}').to_json('{target}', orient='records', lines=True)\""""
)
_PACKED = "{tool} -dc {source} | referee score - …"
_BINARY = (
    (b"PAR1", "Parquet", _PANDAS.replace("{kind}", "parquet")),
    (b"ARROW1", "Arrow (Feather)", _PANDAS.replace("{kind}", "feather")),
    (b"\xff\xff\xff\xff", "Arrow", "datasets.load_from_disk(…).to_json('{target}')"),
    (b"PK\x03\x04", "ZIP (Excel sheets are, too)", "unpack it, or save the sheet as CSV and convert that"),
    (b"\x28\xb5\x2f\xfd", "packed with zstd", _PACKED.replace("{tool}", "zstd")),
    (b"BZh", "packed with bzip2", _PACKED.replace("{tool}", "bzip2")),
    (b"\xfd7zXZ\x00", "packed with xz", _PACKED.replace("{tool}", "xz")),
    (b"\xff\xfe", "UTF-16", "iconv -f UTF-16 -t UTF-8 {source} > {target}"),
    (b"\xfe\xff", "UTF-16", "iconv -f UTF-16 -t UTF-8 {source} > {target}"),
)
_ARRAY = ("a JSON array", "jq -c '.[]' {source} > {target}")
_DOCUMENT = ("JSON over several lines", "jq -c . {source} > {target}, one rollout a line")
_CSV, _TSV = "CSV", "CSV with tabs"
_COLUMN = re.compile(r"[\w .#/()-]{1,64}")
COLUMNS = frozenset((*NEEDED, *itertools.chain(*ALIASES.values()), "answer", "text", "instruction", "input", "id"))
"""One of these heads a column of nearly every table of rollouts: a sentence with a comma is no table."""


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


def text_only(config: Config) -> bool:
    """Whether a judge refuses images and the like."""
    return any(judge.parts == "refuse" for judge in asking_judges(config.judge))


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
        more = f" and {counted(len(found) - UNREAD, 'more')}" if len(found) > UNREAD else ""
        typer.echo(
            f"{name}: not read: {', '.join(found[:UNREAD])}{more}. No judge sees them; a template shows a column with "
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
    first = text.splitlines()[0].rstrip()
    if text.startswith("["):
        raise _other(name, *_ARRAY)
    if first == "{":
        raise _other(name, *_DOCUMENT)
    for what, separator in ((_CSV, ","), (_TSV, "\t"), (_CSV, ";")):
        with contextlib.suppress(csv.Error):
            cells = [cell.strip() for cell in next(csv.reader([first], delimiter=separator))]
            if len(cells) < 2 or not all(map(_COLUMN.fullmatch, cells)) or not COLUMNS.intersection(cells):
                continue
            more = "" if separator == "," else f", sep={separator!r}"
            raise _other(name, what, _PANDAS.replace("{kind}", "csv").replace("'{source}'", "'{source}'" + more))


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
        f"{name}: this is {what}; referee reads JSON Lines, one object with `prompt` and `response` a line. Nothing "
        f"was spent. To convert it: {command}"
    )
