"""Tables as lines of JSON, which is what every reader of rollouts reads: CSV, JSON arrays, and with pyarrow Parquet,
Arrow files and dataset folders of Hugging Face. The only module that imports pyarrow. Rows are streamed, except those
of a JSON array.
"""

from __future__ import annotations

import contextlib
import csv
import io
import itertools
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from referee.errors import InputError, install
from referee.rollouts.file import BOM, open_rollouts
from referee.rollouts.row import ALIASES, KNOWN, NEEDED

HEAD = 64 * 1024
"""Bytes that are looked at to recognise a format."""
LONGEST_CELL = 16 * 1024 * 1024
ROWS_AT_ONCE = 1024
NAMED = 20
"""Columns that an error names."""
MAPPED = frozenset({*KNOWN, "rubric"})
"""Fields that a column can be mapped to."""
COLUMNS = frozenset((*NEEDED, *itertools.chain(*ALIASES.values()), "answer", "text", "instruction", "input", "id"))
"""One of these heads a column of nearly every table of rollouts: a sentence with a comma is no table."""
SEPARATORS = {".csv": ",", ".tsv": "\t"}
NUMBERS = ("rule_score", "length", "step")
WHOLE = ("id", "group", "uid", "length", "step")
"""Whole numbers, which pandas makes 3.0 of in a column with empty cells."""
WORDS = {"true": True, "false": False, "1": True, "0": False}
_COLUMN = re.compile(r"[\w .#/()-]{1,64}")
_SHARD = re.compile(r"(.+)-\d{5}-of-\d{5}\.parquet")
_ARROW = (b"PAR1", b"ARROW1", b"\xff\xff\xff\xff")


def is_table(path: Path, mapped: Iterable[str] = ()) -> bool:
    """Whether it is a format that `table_lines` turns into lines of JSON. `mapped`: columns that it must have."""
    if path.is_dir():
        return True
    with open_rollouts(path) as stream:
        head = stream.read(HEAD)
    text = head.removeprefix(BOM).lstrip()
    return head.startswith(_ARROW) or text.startswith(b"[") or bool(_separator(path, text, mapped))


def table_lines(path: Path, mapping: Mapping[str, str]) -> Iterator[bytes]:
    """Rows as lines of JSON, with columns under the names that they are mapped to. A row of a CSV stands on the line
    on which it stands in its file."""
    line, missed, columns = 1, dict(mapping), dict[str, None]()
    for number, row in table_rows(path, mapping):
        yield b"\n" * max(0, number - line)
        line = max(line, number) + 1
        if isinstance(row, bytes):
            yield row.rstrip(b"\r\n") + b"\n"
            continue
        for field in list(missed):
            columns.update(dict.fromkeys(row))
            if _found(row, missed[field]) is not None:
                del missed[field]
        yield encode(renamed(row, mapping)) + b"\n"
    for field, column in missed.items():
        raise InputError(
            f"{path}: --map {field}={column}: no row has anything in `{column}`. Columns are "
            f"{', '.join(list(columns)[:NAMED])}. Nothing was spent."
        )


def read_mapping(given: Iterable[str], fields: frozenset[str] = MAPPED) -> dict[str, str]:
    """FIELD=COLUMN, each."""
    found: dict[str, str] = {}
    for item in given:
        field, equals, column = (part.strip() for part in item.partition("="))
        if not equals or not column or field not in fields or field in found:
            known = ", ".join(sorted(fields))
            raise InputError(f"--map {item}: write FIELD=COLUMN, each field once; fields are {known}.")
        found[field] = column
    return found


def renamed(row: Mapping[str, Any], mapping: Mapping[str, str]) -> dict[str, Any]:
    """The row with mapped fields. A column that would say the same field otherwise stays, as `input.<name>`."""
    if not mapping:
        return dict(row)
    taken = {name for field in mapping for name in (field, *ALIASES.get(field, ()))}
    given = {column for column in mapping.values() if column in row}
    found = {f"input.{name}" if name in taken else name: value for name, value in row.items() if name not in given}
    values = ((field, _found(row, column)) for field, column in mapping.items())
    return found | {field: value for field, value in values if value is not None}


def encode(row: Mapping[str, Any]) -> bytes:
    """A row as JSON: numpy's values as plain ones, cells without a value left out."""
    cells = {str(name): value for name, cell in row.items() if (value := plain(cell)) is not None}
    for name in WHOLE:
        number = cells.get(name)
        if isinstance(number, float) and number.is_integer():
            cells[name] = int(number)
    return msgspec.json.encode(cells)


def plain(value: Any) -> Any:
    """A cell as JSON has it. NaN is how pandas says that there is none; bytes that are no text are left out."""
    if value is None or isinstance(value, str | bool | int):
        return value
    if isinstance(value, float):  # JSON has no infinity: as text it is refused where a number is read
        return value if math.isfinite(value) else None if math.isnan(value) else str(value)
    if isinstance(value, Mapping):
        return {str(name): plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple | set):
        return [plain(item) for item in value]
    if isinstance(value, bytes):
        with contextlib.suppress(UnicodeDecodeError):
            return value.decode()
        return None
    if hasattr(value, "tolist"):
        return plain(value.tolist())  # numpy's arrays and numbers
    try:
        return None if value != value else str(value)  # NaT; dates, decimals
    except TypeError:  # pandas.NA is neither equal to itself nor not
        return None


def _found(row: Mapping[str, Any], column: str) -> Any:
    """A column, or a field inside one: reward_model.ground_truth."""
    if column in row:
        return row[column]
    name, dot, rest = column.partition(".")
    inner = row.get(name)
    return _found(inner, rest) if dot and isinstance(inner, Mapping) else None


def table_rows(path: Path, mapping: Mapping[str, str] = {}) -> Iterator[tuple[int, Mapping[str, Any] | bytes]]:
    """Every row with its line; of a line that is no row, the line. `mapping`: fields by the column they are in."""
    if path.is_dir():
        yield from enumerate(itertools.chain.from_iterable(map(_arrow_rows, _arrow_files(path))), 1)
        return
    with open_rollouts(path) as stream:
        head = stream.read(HEAD)
    text = head.removeprefix(BOM).lstrip()
    if head.startswith(_ARROW):
        yield from enumerate(_arrow_rows(path), 1)
    elif text.startswith(b"["):
        with open_rollouts(path) as stream:
            yield from enumerate(_array(path, stream.read()), 1)
    elif separator := _separator(path, text, mapping.values()):
        yield from _csv_rows(path, separator, {column: field for field, column in mapping.items()})
    else:
        with open_rollouts(path) as stream:
            for number, data in enumerate(stream, 1):
                try:
                    yield number, msgspec.json.decode(data.removeprefix(BOM), type=dict[str, Any])
                except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
                    yield number, data  # its reader says what is wrong with it


def _separator(path: Path, text: bytes, mapped: Iterable[str]) -> str:
    """Of a CSV, what is between its cells; empty if it is none."""
    first = text.split(b"\n", 1)[0].decode("utf-8", "replace").rstrip()
    if first.startswith("{"):
        return ""
    suffixes = [suffix.lower() for suffix in path.suffixes]
    named = next((SEPARATORS[suffix] for suffix in suffixes if suffix in SEPARATORS), "")
    wanted, most = COLUMNS.union(mapped), 1
    for separator in (",", "\t", ";"):
        with contextlib.suppress(csv.Error, StopIteration):
            cells = [cell.strip() for cell in next(csv.reader([first], delimiter=separator))]
            if len(cells) > 1 and (named or all(map(_COLUMN.fullmatch, cells))) and wanted.intersection(cells):
                return separator
            if named and len(cells) > most:  # no name in it is known: the ending says that it is a table
                named, most = separator, len(cells)
    return named if first else ""


def _csv_rows(path: Path, separator: str, fields: Mapping[str, str]) -> Iterator[tuple[int, Mapping[str, Any]]]:
    csv.field_size_limit(LONGEST_CELL)
    with open_rollouts(path) as raw, io.TextIOWrapper(raw, "utf-8-sig", newline="") as stream:  # type: ignore[type-var]
        # Strict: else a quote that is never closed makes one cell of the rest of the file.
        reader = csv.reader(stream, delimiter=separator, strict=True)
        start = 1
        try:
            header = next(reader, [])
            double = next((name for name in header if header.count(name) > 1), None)
            if double is not None:
                raise InputError(
                    f"{path}: two columns are called {double!r}; is the first line a header? Nothing was spent."
                )
            start = reader.line_num + 1
            for cells in reader:
                if len(cells) > len(header):
                    known = " Cells are separated by commas, tabs or semicolons." if len(header) == 1 else ""
                    raise InputError(
                        f"{path}: line {start} has {len(cells)} cells, its header {len(header)}.{known} Nothing was "
                        "spent."
                    )
                named = zip(header, cells, strict=False)
                row = {name: _cell(fields.get(name, name), text) for name, text in named if text}
                if row:
                    yield start, row
                start = reader.line_num + 1
        except csv.Error as error:
            what = 'a quote (") is opened and never closed' if "end of data" in str(error) else f"not CSV ({error})"
            raise InputError(f"{path}: line {start}: {what}. Nothing was spent.") from None
        except UnicodeDecodeError:
            raise InputError(
                f"{path}: near line {start}: this CSV is not UTF-8. Save it as UTF-8 (iconv -f CP1252 -t UTF-8, if "
                "Excel wrote it in Western Europe or America). Nothing was spent."
            ) from None


def _cell(field: str, text: str) -> Any:
    """Numbers where a field is one, and what is JSON in fields that may hold messages or a rubric."""
    with contextlib.suppress(ValueError, msgspec.DecodeError):
        if field in NUMBERS and math.isfinite(number := float(text)):
            return number
        if field in MAPPED and text[:2] in ("[{", "[]"):
            return msgspec.json.decode(text)
    return WORDS.get(text.strip().lower(), text) if field == "truncated" else text


def _array(path: Path, data: bytes) -> Iterator[Mapping[str, Any] | bytes]:
    try:
        rows = msgspec.json.decode(data.removeprefix(BOM), type=list[msgspec.Raw])
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        what = f"a JSON array that cannot be read ({error})"
        if path.suffix == ".toml":
            what = "this is a configuration: name it with -c, and here a file of rollouts"
        raise InputError(f"{path}: {what}. Nothing was spent.") from None
    for raw in rows:
        value = msgspec.json.decode(raw)
        yield value if isinstance(value, dict) else msgspec.json.encode(value)


def _arrow_files(folder: Path) -> list[Path]:
    """The files of a dataset that `save_to_disk` wrote, in order; else the Parquet files of the folder."""
    if (folder / "dataset_dict.json").is_file():
        splits = msgspec.json.decode((folder / "dataset_dict.json").read_bytes()).get("splits", [])
        if len(splits) != 1:
            shown = ", ".join(str(folder / split) for split in splits)
            raise InputError(f"{folder} is a DatasetDict of {len(splits)} splits. Name one of them: {shown}.")
        return _arrow_files(folder / splits[0])
    if (folder / "state.json").is_file():
        state = msgspec.json.decode((folder / "state.json").read_bytes())
        return [folder / item["filename"] for item in state.get("_data_files", [])]
    if found := sorted(folder.glob("*.parquet")):
        splits = {match[1] for path in found if (match := _SHARD.fullmatch(path.name))}
        if len(splits) > 1:
            raise InputError(
                f"{folder} holds the splits {', '.join(sorted(splits))}, which are not judged as one. Name a file in "
                "it, or a folder with the files of one split."
            )
        return found
    raise InputError(
        f"{folder} is a folder and no dataset (save_to_disk's state.json, or *.parquet). Name a file of rollouts in it."
    )


def _arrow_rows(path: Path) -> Iterator[Mapping[str, Any]]:
    pa = arrow(str(path))
    with open(path, "rb") as stream:
        magic = stream.read(6)
    try:
        with pa.memory_map(str(path)) as source:
            if magic.startswith(b"PAR1"):
                import pyarrow.parquet

                batches = pyarrow.parquet.ParquetFile(source).iter_batches(batch_size=ROWS_AT_ONCE)
            elif magic == b"ARROW1":
                file = pa.ipc.open_file(source)
                batches = map(file.get_batch, range(file.num_record_batches))
            else:
                batches = pa.ipc.open_stream(source)
            for batch in batches:
                for start in range(0, batch.num_rows, ROWS_AT_ONCE):
                    yield from batch.slice(start, ROWS_AT_ONCE).to_pylist()
    except (pa.ArrowException, OSError) as error:
        raise InputError(f"{path}: cannot be read ({str(error)[:200]}). Nothing was spent.") from None


def arrow(what: str) -> Any:
    """pyarrow, or an error that says how to get it."""
    try:
        import pyarrow
        import pyarrow.ipc
    except ImportError:
        raise InputError(f"{what}: this needs pyarrow: {install('tables')}. Nothing was spent.") from None
    return pyarrow
