"""Rows of rewards, as `referee score` writes them: lines of JSON, or flat in a table beside own columns."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Raw, Struct

from referee.records import Reason
from referee.rollouts.tables import is_table, table_rows


class Row(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One line of output."""

    line: int
    """Line of the input it answers."""
    id: str
    reward: float | None
    """None (null): no reward."""
    group: str = ""
    score: float | None = None
    """On the judge's own scale."""
    value: float | None = None
    """The same in [0, 1]."""
    why: str = ""
    """The judge's words, or which gate settled it."""
    unscored: str = ""
    """Why there is no score."""
    detail: str = ""
    rule: float = 0.0
    judge: float | None = None
    penalty: float = 0.0
    length: int = 0
    median_length: float = 0.0
    filled: str = ""
    """The missing policy that supplied the reward, if one did."""
    origin: str = ""
    """call, cache, shared, gate or none."""
    how: str = ""
    uncertainty: float | None = None
    """How unsure the judge is, where it says so."""
    cost: float = 0.0
    model: str = ""
    """The model that answered, by its own account, and the endpoint it was asked at."""
    endpoint: str = ""
    provider: str = ""
    """Behind a router, and what the server says of its configuration, where the last reply says so."""
    fingerprint: str = ""
    key: str = ""
    """Cache key of the request; `referee cache explain` takes it."""
    parts: list[dict[str, Any]] = []
    """What the verdict is made of, such as criteria, jurors, comparisons: name, text, weight, true_is, verdict, value,
    why, unscored, and uncertainty and parts where there are any."""
    judges: dict[str, dict[str, Any]] = {}
    """With several judges: what each said, by name. The fields above are what they make together."""
    columns: dict[str, Raw] = {}
    """The caller's own."""
    digest: str = ""
    """Names the sample and the settings that made this row: a resumed run keeps the row only if both are the same."""

    @property
    def scored(self) -> bool:
        """True if the row holds a verdict."""
        return not self.unscored

    @property
    def whole(self) -> bool:
        """False if a part of it has no verdict only because the run ended: going on must not take it for complete."""
        judges = self.judges.values()
        said = [*self.parts, *judges, *(part for judge in judges for part in judge.get("parts") or ())]
        return not any(_was_left(part) for part in said)


ENDED = frozenset({Reason.BUDGET.value, Reason.DEADLINE.value, Reason.CANCELLED.value})
"""Why a question has no answer where the run was over, and nothing was wrong with it."""


def _was_left(part: Mapping[str, Any]) -> bool:
    return part.get("unscored") in ENDED or any(_was_left(inner) for inner in part.get("parts") or ())


FIELDS = Row.__struct_fields__
NESTED = ("parts", "judges")
"""JSON text in a table."""
IN_TABLES = (*(name for name in FIELDS if name not in ("line", "columns", "digest")), "line", "digest")
"""Columns of a table, after the caller's own."""


def own_name(column: str) -> str:
    """What a column of the caller's is called in a table: one that rewards have too gets a name of its own."""
    return f"input.{column}" if _is_field(column) else column


def holds_table(path: Path) -> bool:
    """Whether it may be read by `read_table`: a table, or rows that are packed."""
    if not path.is_file():
        return False
    with path.open("rb") as stream:
        packed = stream.read(2) == b"\x1f\x8b"
    return packed or is_table(path)


def read_table(path: Path) -> Iterator[dict[str, Any] | bytes]:
    """Rows of a table as those of JSON Lines: what is nested decoded, own columns in `columns`; numbers of a CSV are
    text. A line that is no row as it stands."""
    for _, given in table_rows(path):
        if isinstance(given, bytes):
            yield given
            continue
        row = dict(given)
        for name in NESTED:
            if isinstance(row.get(name), str):
                with contextlib.suppress(msgspec.DecodeError):
                    row[name] = msgspec.json.decode(row[name] or "null")
        if "line" in row and "digest" in row and "columns" not in row:
            row.setdefault("reward", None)  # an empty cell of a CSV is no value
            own = [name for name in row if name not in FIELDS]
            row["columns"] = {name.removeprefix("input.") if _is_field(name) else name: row.pop(name) for name in own}
        yield {name: value for name, value in row.items() if value is not None or name == "reward"}


def flat(row: Row, names: Mapping[str, str]) -> dict[str, Any]:
    """A row as cells of a table. `names`: what own columns are called there."""
    cells: dict[str, Any] = {names[name]: msgspec.json.decode(raw) for name, raw in row.columns.items()}
    for name in IN_TABLES:
        value = getattr(row, name)
        cells[name] = (msgspec.json.encode(value).decode() if value else "") if name in NESTED else value
    return cells


def _is_field(name: str) -> bool:
    while name.startswith("input."):
        name = name.removeprefix("input.")
    return name in FIELDS
