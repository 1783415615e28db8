"""Reads rollouts from JSON Lines, one sample a line, as a stream. A file that is packed with gzip is read as what is in
it.
"""

from __future__ import annotations

import gzip
import io
import itertools
import zlib
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import BinaryIO

import msgspec
from msgspec.structs import replace

from referee.errors import InputError
from referee.records import Sample
from referee.rollouts.columns import meant_instead
from referee.rollouts.criteria import Polarity
from referee.rollouts.row import BadLine, Missing, columns_of, problem_with, read_row
from referee.rollouts.turns import media_in

LONGEST_LINE = 16 * 1024 * 1024
"""Bytes. A longer line is refused without being held in memory."""
KEPT_OF_LONG_LINE = 1024
FIRST = 100
"""Rows that are looked at for their columns, which are the same on nearly every line of a file."""
GZIP = b"\x1f\x8b"
"""How a file packed with gzip begins."""
BOM = b"\xef\xbb\xbf"


def read_rollouts(
    source: BinaryIO | str | Path,
    columns: Collection[str] = (),
    text_only: bool = False,
    rubric: Polarity | None = None,
) -> Iterator[tuple[int, Sample | BadLine]]:
    """Every line with its number (from 1), as a Sample or a BadLine. Blank lines are passed over.

    `columns`: more columns to keep. `text_only`: a line with images or the like is a BadLine. `rubric`: read each row's
    rubric, and decide so what its pitfalls mean.
    """
    if not isinstance(source, str | Path):
        yield from _read(source, columns, text_only, rubric)
        return
    try:
        with open_rollouts(source) as stream:
            yield from _read(stream, columns, text_only, rubric)
    except (OSError, EOFError, zlib.error) as error:
        raise unreadable(source, error) from None


def unreadable(source: str | Path, error: Exception) -> InputError:
    """The error for a file that the system, or gzip, cannot read."""
    return InputError(f"{source}: cannot read rollouts ({getattr(error, 'strerror', None) or error}).")


def open_rollouts(path: str | Path) -> io.BufferedIOBase:
    """The file, unpacked if it is packed with gzip."""
    try:
        with open(path, "rb") as stream:
            packed = stream.read(2) == GZIP
        return gzip.open(path, "rb") if packed else open(path, "rb")
    except ValueError as error:
        raise InputError(f"{str(path)!r}: not a file name ({error}).") from None


def check_file(path: str | Path) -> tuple[int, list[BadLine]]:
    """Read it all once: how many samples there are, and every problem (without the raw lines)."""
    count, problems = 0, []
    for _, item in read_rollouts(path):
        if isinstance(item, BadLine):
            problems.append(replace(item, raw=b""))
        else:
            count += 1
    return count, problems


def first_rows(path: str | Path, most: int = FIRST) -> list[dict[str, msgspec.Raw]]:
    """What stands in the first rows, by column."""
    with open_rollouts(path) as stream:
        lines = iter(lambda: stream.readline(LONGEST_LINE + 1), b"")
        return [columns_of(line.removeprefix(BOM)) for line in itertools.islice(lines, most)]


def numbered(stream: BinaryIO | io.BufferedIOBase) -> Iterator[tuple[int, bytes]]:
    """Every line with its number; of one that is too long, its beginning, which is longer than LONGEST_LINE."""
    number = 0
    while data := stream.readline(LONGEST_LINE + 1):
        number += 1
        if len(data) > LONGEST_LINE and not data.endswith(b"\n"):
            while (rest := stream.readline(1 << 20)) and not rest.endswith(b"\n"):
                pass
        yield number, data.removeprefix(BOM) if number == 1 else data


def _read(
    stream: BinaryIO | io.BufferedIOBase, columns: Collection[str], text_only: bool, rubric: Polarity | None
) -> Iterator[tuple[int, Sample | BadLine]]:
    number = found = 0
    for number, data in numbered(stream):
        if len(data) > LONGEST_LINE and not data.endswith(b"\n"):
            problem = f"longer than {LONGEST_LINE} bytes; a rollout does not need that much."
            item: Sample | BadLine = BadLine(number, "", problem, data[:KEPT_OF_LONG_LINE])
        elif not data or data.isspace():
            continue
        else:
            item = read_line(data, number, columns, text_only, rubric)
        found += 1
        yield number, item
    if not found:
        yield max(number, 1), BadLine(max(number, 1), "", "there are no rollouts in this file.")


def read_line(
    data: bytes,
    number: int,
    columns: Collection[str] = (),
    text_only: bool = False,
    rubric: Polarity | None = None,
) -> Sample | BadLine:
    """One line of JSON as a sample. Its id, if it has none, is the line's number."""
    try:
        sample = read_row(data, number, columns, rubric)
    except Exception as error:
        field, problem = problem_with(data, error)
        if isinstance(error, Missing):
            problem += meant_instead(data, field)
        return BadLine(number, field, problem, data.rstrip(b"\r\n"))
    found = media_in(sample) if text_only else None
    if found is None:
        return sample
    return BadLine(number, found[0], not_text(found[1]), data.rstrip(b"\r\n"))


def not_text(type: str) -> str:
    """What is said of a part that a judge of text cannot be shown."""
    return (
        f'holds a part of type {type!r}, which the judge would not see. judge.parts = "describe" puts a line in its '
        'place that says what stood there, "show" sends images to judges that take them.'
    )
