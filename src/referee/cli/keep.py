"""Which of the caller's own columns stand in rows of rewards, and reading them again when a row is written."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import msgspec
import typer
from msgspec import Raw

from referee.errors import InputError
from referee.rollouts import first_rows, open_rollouts
from referee.rollouts.file import numbered
from referee.rollouts.row import columns_of
from referee.rollouts.tables import MAPPED

IN_ROWS = frozenset(("id", "group", "length"))
"""Fields that a row of rewards has anyway."""
Keep = Annotated[
    str | None,
    typer.Option(
        metavar="all|none|A,B",
        help="Own columns that rows of rewards keep. Default: those that are no field of a rollout; in a table all.",
    ),
]


class KeptColumns:
    """Columns of a file, line after line, beside another reader of it: memory does not grow."""

    def __init__(self, source: Path, keep: str | None) -> None:
        """`keep`: as `--keep`; None: those that are no field of a rollout."""
        self._keep = keep
        self._names = [name.strip() for name in (keep or "").split(",")]
        self._stream = open_rollouts(source)
        self._lines = numbered(self._stream)

    def of(self, line: int) -> dict[str, Raw]:
        """Those of this line. Lines are asked for in order."""
        data = b"" if self._keep == "none" else next((data for number, data in self._lines if number == line), b"")
        row = columns_of(data.decode("utf-8", "replace").encode())  # rows are UTF-8, whatever is in unread columns
        if self._keep is None:
            names = [name for name in row if name not in MAPPED]
        else:
            wanted = row if self._keep == "all" else self._names
            names = [name for name in wanted if name in row and name not in IN_ROWS]
        return {name: _readable(row[name]) for name in names}

    def close(self) -> None:
        """Let the file go."""
        self._stream.close()


def _readable(cell: Raw) -> Raw:
    """The cell; as text where nothing could read the row for it: a number such as 1e999."""
    try:
        msgspec.json.decode(cell)
    except (msgspec.MsgspecError, ValueError):
        return Raw(msgspec.json.encode(bytes(cell).decode()))
    return cell


def check_keep(rollouts: str, source: Path, keep: str | None) -> None:
    """Refuse names that no row has, as far as the first rows tell."""
    if keep in (None, "all", "none"):
        return
    assert keep is not None
    there = {name for row in first_rows(source) for name in row}
    for name in keep.split(","):
        if name.strip() not in there:
            known = ", ".join(sorted(there - IN_ROWS)[:20])
            raise InputError(f"--keep {name.strip()}: the first rows of {rollouts} have {known}. Nothing was spent.")
