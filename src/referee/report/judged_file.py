"""The record of a file that `referee score` judged, and the rewards beside it, which alone have all own columns."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from msgspec.structs import replace

from referee.errors import InputError
from referee.ledger import Line, VerdictLine, read
from referee.report.columns import LONGEST
from referee.report.files import given_rows, is_rewards, record_beside
from referee.rollouts.reading import as_json
from referee.rollouts.tables import MAPPED


class JudgedFile(NamedTuple):
    """Where both are."""

    record: Path
    rewards: Path


def judged_file(path: Path) -> JudgedFile | None:
    """Of a record or of rewards, both, where they stand side by side; else None."""
    if path.is_dir():
        output = path.name.removesuffix(".run")
        names = (f"{output}.jsonl", output, f"{output}.jsonl.partial") if output != path.name else ()
        beside = [path.with_name(name) for name in names]
        return next((JudgedFile(path, each) for each in beside if each.is_file() and _is_rewards(each)), None)
    record = record_beside(path)
    found = any(record.glob("ledger-*.jsonl")) and _is_rewards(path) and _holds_all(record, path)
    return JudgedFile(record, path) if found else None


def _holds_all(record: Path, rewards: Path) -> bool:
    """Whether every reward is in the record: it may be of an earlier run, kept elsewhere, or have lost lines."""
    wanted = {(str(row.id), str(row.group), row.key) for row in filter(None, given_rows(rewards))}
    for line in read(record):
        if isinstance(line, VerdictLine):
            wanted.discard((line.id, line.group, line.key))
    return not wanted


def with_own_columns(lines: Iterable[Line], rewards: Path) -> Iterator[Line]:
    """Lines of the record, its samples with the caller's own columns."""
    columns: dict[tuple[str, str, str], dict[str, Any]] = {}
    with suppress(InputError):  # the record is enough for a page
        for row in filter(None, given_rows(rewards)):
            own = {name: _short(value) for name, value in row.own().items() if name not in MAPPED}
            sample = (str(row.id), str(row.group), row.key)
            # Of samples that cannot be told from each other, none.
            columns[sample] = own if columns.get(sample, own) == own else {}
    for line in lines:
        found = columns.get((line.id, line.group, line.key)) if isinstance(line, VerdictLine) else None
        # A record without texts ([ledger] content = false) makes a page without any.
        if found and isinstance(line, VerdictLine) and not line.response_digest:
            line = replace(line, more={**line.more, "columns": {**found, **line.more.get("columns", {})}})
        yield line


def _is_rewards(path: Path) -> bool:
    with suppress(InputError):  # such as a Parquet file where pyarrow is not
        return is_rewards(path)
    return False


def _short(value: Any) -> Any:
    """Long ones are cut: they are shown, and are no filter."""
    return value if isinstance(value, int | float) or value is None else as_json(value)[: LONGEST + 1]
