"""The output of `referee score` by the ending of its name: lines of JSON, packed ones, CSV, Parquet.

While a run goes on, rows are lines of JSON, in OUTPUT.rows where the output is something else. That is made of them
when all are there, and then they are removed. So a kill or a full disk leaves what it leaves of lines of JSON.
"""

from __future__ import annotations

import contextlib
import csv
import gzip
import io
import itertools
import os
import shutil
import zlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, BinaryIO

import msgspec

from referee.cli.rows import create, join, joining, read_rows
from referee.errors import ConfigError
from referee.report.reward_rows import IN_TABLES, Row, flat, own_name, read_table
from referee.rollouts.tables import ROWS_AT_ONCE, arrow

FOREIGN = (".csv.gz", ".parquet.gz", ".tsv", ".xlsx", ".arrow", ".feather", ".zip", ".zst", ".bz2", ".xz")
"""Endings of what is not written: lines of JSON under such a name would be taken for it."""


def working(output: str) -> str:
    """Where the rows are while a run goes on; the output itself, if that is lines of JSON."""
    return output + ".rows" if _writer(output) else output


def is_flat(output: str) -> bool:
    """Whether it is a table, in which the caller's columns stand beside ours."""
    return _writer(output) in (_write_csv, _write_parquet)


def check_ending(output: str) -> None:
    """Refuse a format that is not written, or not without pyarrow. Nothing was spent."""
    for ending in FOREIGN:
        if output.lower().endswith(ending):
            raise ConfigError(f"-o {output}: not {ending}, but .jsonl, .jsonl.gz, .csv or .parquet can be written.")
    if _writer(output) is _write_parquet:
        arrow(f"-o {output}")


def make_table(output: str) -> None:
    """Write the output from the rows of a run that is over, and remove those."""
    write = _writer(output)
    if write is None:
        return
    rows, new = Path(working(output)), joining(Path(output))
    try:
        with create(new) as stream:
            write(rows, stream)
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(new, output)
    except BaseException as error:
        with contextlib.suppress(OSError):
            new.unlink(missing_ok=True)
        if isinstance(error, OSError):
            error.filename = error.filename or output
        raise
    rows.unlink()


def reopen_table(output: str) -> None:
    """Put the rows of an output that is there beside those of a run that was interrupted: newer rows count."""
    if _writer(output) is None or not Path(output).exists():
        return
    rows = Path(working(output))
    join(rows, read_rows(rows), _read(Path(output)))


def holds_rewards(output: str) -> bool:
    """Whether a table that is there is one of rewards."""
    return next(_read(Path(output)), None) is not None


def _read(path: Path) -> Iterator[Row]:
    """Rows up to the first that is none."""
    with contextlib.suppress(KeyError, AttributeError, msgspec.MsgspecError, EOFError, gzip.BadGzipFile, zlib.error):
        for row in read_table(path):
            if isinstance(row, bytes):
                return
            row["columns"] = {name: msgspec.Raw(msgspec.json.encode(cell)) for name, cell in row["columns"].items()}
            yield msgspec.convert(row, Row, strict=False)


def _writer(output: str) -> Callable[[Path, BinaryIO], None] | None:
    name = output.lower()
    endings = {".gz": _write_packed, ".csv": _write_csv, ".parquet": _write_parquet}
    return next((write for ending, write in endings.items() if name.endswith(ending)), None)


def _write_packed(rows: Path, target: BinaryIO) -> None:
    with gzip.GzipFile(filename="", mode="wb", fileobj=target, mtime=0) as packed, rows.open("rb") as given:
        shutil.copyfileobj(given, packed)


def _write_csv(rows: Path, target: BinaryIO) -> None:
    names = _own_names(rows)
    text = io.TextIOWrapper(target, "utf-8", newline="")
    # Ends of line are cut, not set: cells are quoted for characters in them, and "\r" in a bare cell would end a row.
    writer = csv.writer(SimpleNamespace(write=lambda line: text.write(line.removesuffix("\r\n") + "\n")))
    columns = (*names.values(), *IN_TABLES)
    writer.writerow(columns)
    for row in read_rows(rows):
        cells = flat(row, names)
        writer.writerow([_text(cells.get(name)) for name in columns])
    text.detach()  # which flushes, and leaves the file open


def _write_parquet(rows: Path, target: BinaryIO) -> None:
    pa = arrow("Parquet")
    import pyarrow.parquet

    names = _own_names(rows)
    for types in (_own_types(pa, rows, names), dict.fromkeys(names.values(), pa.string())):
        texts = [name for name, type in types.items() if type == pa.string()]
        ours = {field.name: _OURS.get(field.type, "string") for field in msgspec.structs.fields(Row)}
        schema = pa.schema([*types.items(), *((name, pa.type_for_alias(ours[name])) for name in IN_TABLES)])
        try:
            with pyarrow.parquet.ParquetWriter(target, schema) as writer:
                for some in _batches(rows):
                    table = [flat(row, names) for row in some]
                    for cells in table:
                        cells.update({name: _text(cells[name]) for name in texts if cells.get(name) is not None})
                    writer.write_table(pa.Table.from_pylist(table, schema=schema))
            return
        except (pa.ArrowException, OverflowError):  # such as 2**60 in a column of floats: then all of them are text
            target.seek(0)
            target.truncate()
    raise OSError(f"{rows}: its rows cannot be written as Parquet. Name a CSV.")


_OURS: dict[Any, str] = {int: "int64", float: "float64", float | None: "float64"}
"""Types of our columns; the others are text."""


def _own_types(pa: Any, rows: Path, names: Mapping[str, str]) -> dict[str, Any]:
    """Of each of the caller's columns the type that holds all its cells; text (JSON) where there is none."""
    import pyarrow.parquet

    found = dict.fromkeys(names.values(), pa.null())
    for some in _batches(rows):
        for column, name in names.items():
            cells = [msgspec.json.decode(row.columns[column]) for row in some if column in row.columns]
            try:
                pair = [pa.schema([("", type)]) for type in (found[name], pa.array(cells).type)]
                found[name] = pa.unify_schemas(pair, promote_options="permissive").field(0).type
                pyarrow.parquet.ParquetWriter(pa.BufferOutputStream(), pa.schema([("", found[name])])).close()
            except (pa.ArrowException, OverflowError):
                found[name] = pa.string()
    return {name: pa.string() if type == pa.null() else type for name, type in found.items()}


def _batches(rows: Path) -> Iterator[list[Row]]:
    all_rows = read_rows(rows)
    while some := list(itertools.islice(all_rows, ROWS_AT_ONCE)):
        yield some


def _own_names(rows: Path) -> dict[str, str]:
    """Every column of the caller's, in order of appearance, and what it is called in a table."""
    return {name: own_name(name) for row in read_rows(rows) for name in row.columns}


def _text(value: Any) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()
