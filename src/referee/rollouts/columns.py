"""Columns of a file that no judge sees. They are named before anything is spent: one may have been meant for it."""

from __future__ import annotations

import contextlib
import difflib
import functools
import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence

import msgspec
from msgspec import Struct

from referee.records import Criterion
from referee.rollouts.criteria import Polarity, RubricError
from referee.rollouts.messages import unread_fields
from referee.rollouts.phrasing import PolarityReport, polarity_report
from referee.rollouts.reading import held
from referee.rollouts.row import ALIASES, CONVERSATIONS, KNOWN, NEEDED, columns_of
from referee.rollouts.rubric import SOURCES, rubric_of, unread_rubric

NEAR = 0.8
"""How like a known name another one must be to be taken for it (difflib's ratio): lenght and gruop are, stop is not."""
SHORTEST, LONGEST_NAME = 4, 64
"""Letters of a name that may be a misspelt one: nearly every short word is like `id`."""
TALKS = frozenset({*NEEDED, *ALIASES["prompt"], *ALIASES["response"], *CONVERSATIONS})
"""Columns that may hold messages."""


class Doubt(Struct, frozen=True):
    """A column that is not read, though its name is nearly one that is."""

    column: str
    meant: str
    rows: int
    """How many of the rows looked at have it, and nothing under the name that is meant."""
    seen: int
    """Rows looked at, from the first."""

    @property
    def message(self) -> str:
        """One line for people."""
        return (
            f"column `{self.column}` is not read. Did you mean `{self.meant}`? {self.rows} of the first {self.seen} "
            f"{'row' if self.seen == 1 else 'rows'} {'has' if self.rows == 1 else 'have'} `{self.column}` and no "
            f"`{self.meant}`."
        )


Rows = Sequence[Mapping[str, msgspec.Raw]]
"""What stands in the first rows of a file, by column."""


def doubtful_columns(rows: Rows) -> list[Doubt]:
    """Columns that are not read and seem to be misspelt, each once, in order of appearance.

    A name counts only in rows that lack the field it is like: where `length` and `lengths` stand, both are meant.
    """
    found: Counter[tuple[str, str]] = Counter()
    for row in rows:
        meanings = ((column, _meant(column)) for column in row)
        there = {*row, *NEEDED}  # what every row needs is missed where the row is read
        found.update((column, meant) for column, meant in meanings if meant and not _names(meant) & there)
    seen = sum(map(bool, rows))
    return [Doubt(column, meant, count, seen) for (column, meant), count in found.items()]


def unread_columns(rows: Rows, shown: Collection[str], rubric: bool = False) -> list[str]:
    """Columns, and fields of messages, that hold something no judge sees, in order of appearance. `shown`: columns that
    templates show. `rubric`: whether rubrics are read; then also rubrics that are not the one that counts."""
    found: dict[str, None] = {}
    for row in rows:
        used, left = unread_rubric(_sources(row)) if rubric else (set[str](), [])
        found.update((name, None) for name in left if name.partition(".")[0] not in shown)
        used |= {name.partition(".")[0] for name in left}
        split = any(name in row for field in NEEDED for name in _names(field))
        for column, raw in row.items():
            value = _decoded(raw)
            if not held(value) or column in shown or column in used:
                continue
            if column not in KNOWN or (split and column in CONVERSATIONS):
                found[column] = None
            elif column in TALKS:
                found.update((f"{column}[].{name}", None) for name in sorted(unread_fields(value)))
    return list(found)


def polarity_of_rows(rows: Rows, polarity: Polarity = "by_phrase") -> PolarityReport:
    """Which pitfalls of these rows were decided by their phrasing, and how. Rubrics that cannot be read are left out:
    they are errors elsewhere."""
    phrased: list[Criterion] = []
    for row in rows:
        with contextlib.suppress(RubricError):
            rubric_of(_sources(row), polarity, phrased=phrased)
    return polarity_report(phrased)


def _sources(row: Mapping[str, msgspec.Raw]) -> dict[str, object]:
    return {column: _decoded(raw) for column, raw in row.items() if column in SOURCES}


def _decoded(raw: msgspec.Raw) -> object:
    """A column's value; as text with marks where it is not UTF-8, which is an error only where the column is read."""
    try:
        return msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return bytes(raw).decode("utf-8", "replace")


def meant_instead(data: bytes, field: str) -> str:
    """What a row without this field has instead that may be meant to be it."""
    near = [column for column in columns_of(data) if _meant(column) in _names(field)]
    return f" Is `{near[0]}` meant to be it?" if near else ""


@functools.lru_cache(maxsize=1024)
def _meant(column: str) -> str:
    """The known name that this one is nearly; empty if there is none, or if it is one itself."""
    if column in KNOWN or len(column) > LONGEST_NAME or not column.isprintable():
        return ""
    plain = {_letters(name): name for name in KNOWN}
    given = _letters(column)
    if given in plain:
        return plain[given]
    near = difflib.get_close_matches(given, [name for name in plain if len(name) >= SHORTEST], n=1, cutoff=NEAR)
    return plain[near[0]] if near and len(given) >= SHORTEST else ""


def _letters(name: str) -> str:
    """A name without what people spell differently: groundTruth and ground-truth are ground_truth."""
    return re.sub(r"[\W_]+", "", name).lower()


def _names(name: str) -> set[str]:
    """All names of the field that has this one."""
    return next(({field, *others} for field, others in ALIASES.items() if name in (field, *others)), {name})
