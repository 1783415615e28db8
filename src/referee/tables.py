"""Tables in Python: every row judged, and the same table back with columns of rewards. pandas, pyarrow and datasets are
taken as they are given, and imported only where they are.
"""

from __future__ import annotations

import contextlib
import logging
import math
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypeVar

import msgspec

from referee.config import Config
from referee.errors import InputError, install
from referee.progress import Meter, notebook
from referee.records import Reward, Sample
from referee.referee import Referee
from referee.rollouts import BadLine, doubtful_columns, read_line, unread_columns
from referee.rollouts.file import FIRST
from referee.rollouts.row import NEEDED, columns_of
from referee.rollouts.rubric import SOURCES
from referee.rollouts.tables import MAPPED, arrow, encode, renamed
from referee.scoring.build import columns_shown, rubric_polarity, text_only

log = logging.getLogger("referee")

NUMBERS = ("reward", "score", "cost")
WORDS = ("why", "unscored", "detail")
"""Columns that are added, with the names of a row of rewards; of several judges also score.<judge>."""
SHOWN = 3
"""Rows that cannot be judged that an error shows."""
COUNTS = ("samples", "cache_hits", "shared", "unscored", "cost_usd")
"""Metrics that a Referee has counted since it was made."""

T = TypeVar("T")


def score_table(
    data: T,
    config: str | Path | Mapping[str, Any] | Config | Referee,
    *,
    map: Mapping[str, str] | None = None,
    keep: Literal["all", "none"] | Sequence[str] = "all",
    progress: bool | None = None,
) -> T:
    """Judge every row of a pandas DataFrame, a pyarrow Table, a datasets Dataset or a list of mappings, and return the
    same with the columns reward, score, why, unscored, detail and cost; without a score, reward and score are None (in
    pandas NaN).

    `config`: as for Referee.from_config, or a Referee. `map`: fields of a rollout by the column to read them from.
    `keep`: which columns stay. `progress`: show it; None: in a notebook or a terminal. Blocks until all is judged.
    """
    table = _table(data)
    mapping = _mapping(map or {}, table.names)
    with contextlib.ExitStack() as stack:
        referee = config if isinstance(config, Referee) else stack.enter_context(Referee.from_config(config))
        judges = [judge.name for judge in referee.config.judge] if len(referee.config.judge) > 1 else []
        kept = _kept(keep, table.names, (*NUMBERS, *WORDS, *(f"score.{name}" for name in judges)))
        samples = _samples(table, mapping, referee.config)
        shown = (notebook() is not None or sys.stderr.isatty()) if progress is None else progress
        priced = any(endpoint.price_in is not None for endpoint in referee.config.endpoint)
        meter = Meter(len(samples), _since_now(referee), priced=priced) if shown else contextlib.nullcontext()
        ticket = referee.submit(samples, deadline=math.inf)
        try:
            with meter:
                rewards = ticket.result()
        except BaseException:
            ticket.cancel()
            raise
    rows = [reward.to_dict() for reward in rewards]
    numbers = {name: [row[name] for row in rows] for name in NUMBERS}
    numbers |= {f"score.{name}": [row["judges"][name]["score"] for row in rows] for name in judges}
    words = {name: [row[name] for row in rows] for name in WORDS}
    return table.with_columns(kept, numbers, words)  # type: ignore[no-any-return]


def rewards_to_pandas(rewards: Iterable[Reward]) -> Any:
    """A pandas DataFrame with a row for each reward and the columns of `Reward.to_dict`."""
    try:
        import pandas
    except ImportError:
        raise InputError(f"rewards_to_pandas needs pandas: {install('tables')}.") from None
    return pandas.DataFrame([reward.to_dict() for reward in rewards])


class _Rows:
    """A list of mappings. The others differ in how rows are read and columns added."""

    def __init__(self, data: Any, names: Iterable[Any]) -> None:
        self.data = data
        self.names = [str(name) for name in names]

    def __len__(self) -> int:
        return len(self.data)

    def rows(self) -> Iterator[Mapping[str, Any]]:
        """Every row, by column."""
        return iter(self.data)

    def with_columns(self, kept: list[str], numbers: Mapping[str, list[Any]], words: Mapping[str, list[Any]]) -> Any:
        """The same data with these of its columns, and new ones."""
        new = {**numbers, **words}
        return [
            {name: value for name, value in row.items() if str(name) in kept}
            | {name: column[place] for name, column in new.items()}
            for place, row in enumerate(self.data)
        ]


class _Pandas(_Rows):
    def rows(self) -> Iterator[Mapping[str, Any]]:
        for row in self.data.itertuples(index=False, name=None):
            yield dict(zip(self.names, row, strict=True))

    def with_columns(self, kept: list[str], numbers: Mapping[str, list[Any]], words: Mapping[str, list[Any]]) -> Any:
        floats = {
            name: [math.nan if value is None else float(value) for value in column] for name, column in numbers.items()
        }
        places = [place for place, name in enumerate(self.names) if name in kept]
        return self.data.iloc[:, places].assign(**floats, **words)


class _Arrow(_Rows):
    def rows(self) -> Iterator[Mapping[str, Any]]:
        for batch in self.data.to_batches(max_chunksize=1024):
            yield from batch.to_pylist()

    def with_columns(self, kept: list[str], numbers: Mapping[str, list[Any]], words: Mapping[str, list[Any]]) -> Any:
        found = self.data.select(kept)
        for name, column in _typed(numbers, words).items():
            found = found.append_column(name, column)
        return found


class _Dataset(_Rows):
    def rows(self) -> Iterator[Mapping[str, Any]]:
        for batch in self.data.with_format("arrow").iter(batch_size=1024):  # audio and images are not decoded
            yield from batch.to_pylist()

    def with_columns(self, kept: list[str], numbers: Mapping[str, list[Any]], words: Mapping[str, list[Any]]) -> Any:
        found = self.data.select_columns(kept) if kept else None
        columns = _typed(numbers, words)
        if found is None:  # a Dataset without columns has no rows either
            return type(self.data)(arrow("datasets").table(columns))
        for name, column in columns.items():
            found = found.add_column(name, column)
        return found


def _typed(numbers: Mapping[str, list[Any]], words: Mapping[str, list[Any]]) -> dict[str, Any]:
    """New columns as pyarrow's: without a type, a column of None has none."""
    pa = arrow("score_table")
    found = {name: pa.array(column, pa.float64()) for name, column in numbers.items()}
    return found | {name: pa.array(column, pa.string()) for name, column in words.items()}


def _table(data: Any) -> _Rows:
    kind = f"{type(data).__module__.partition('.')[0]}.{type(data).__name__}"
    if kind == "pandas.DataFrame":
        found: _Rows = _Pandas(data, data.columns)
    elif kind == "pyarrow.Table":
        found = _Arrow(data, data.column_names)
    elif kind == "datasets.Dataset":
        found = _Dataset(data, data.column_names)
    elif isinstance(data, list | tuple) and all(isinstance(row, Mapping) for row in data):
        found = _Rows(data, dict.fromkeys(name for row in data for name in row))
    else:
        hints = {
            "datasets.DatasetDict": " Name one of its splits: data['train'].",
            "datasets.IterableDataset": " Take what you need of it: list(data.take(1000)).",
            "polars.DataFrame": " Give data.to_arrow().",
        }
        raise InputError(
            f"score_table takes a pandas DataFrame, a pyarrow Table, a datasets Dataset or a list of mappings, not "
            f"{kind.removeprefix('builtins.')}.{hints.get(kind, '')}"
        )
    twice = next((name for name in found.names if found.names.count(name) > 1), None)
    if twice is not None:
        raise InputError(f"two columns are called {twice!r}. Nothing was spent.")
    return found


def _mapping(given: Mapping[str, str], names: Sequence[str]) -> dict[str, str]:
    for field, column in given.items():
        if field not in MAPPED:
            raise InputError(f"map: there is no field {field!r}. Fields are {', '.join(sorted(MAPPED))}.")
        if column not in names and column.partition(".")[0] not in names:
            raise InputError(f"map: there is no column {column!r} for {field}. There are {', '.join(names)}.")
    return dict(given)


def _kept(keep: str | Sequence[str], names: Sequence[str], ours: Sequence[str]) -> list[str]:
    """Columns that stay; none of them may have the name of a new one."""
    if isinstance(keep, str):
        if keep not in ("all", "none"):
            raise InputError(f'keep={keep!r}: write "all", "none" or a list of columns.')
        kept = list(names) if keep == "all" else []
    else:
        kept = list(keep)
    for name in kept:
        if name not in names:
            raise InputError(f"keep: there is no column {name!r}. There are {', '.join(names)}.")
        if name in ours:
            raise InputError(
                f"there is a column {name!r} already, and rewards have one of that name. Rename it, or leave it out "
                "with keep=[…]. Nothing was spent."
            )
    return kept


def _samples(table: _Rows, mapping: Mapping[str, str], config: Config) -> list[Sample]:
    """Every row as these judges are shown it; an error, before anything is spent, if one cannot be."""
    shown, rubric, only_text = columns_shown(config), rubric_polarity(config), text_only(config)
    needed = {*MAPPED, *SOURCES, *shown, *mapping.values(), *(column.partition(".")[0] for column in mapping.values())}
    samples, first = list[Sample](), list[dict[str, msgspec.Raw]]()
    bad, count = list[str](), 0
    for number, row in enumerate(table.rows()):
        whole = number < FIRST
        try:
            data = encode(renamed({n: cell for n, cell in row.items() if whole or str(n) in needed}, mapping))
            item = read_line(data, number, shown, only_text, rubric)
        except (UnicodeEncodeError, OverflowError, RecursionError) as error:
            data, item = b"", BadLine(number, "", f"{type(error).__name__}: {error}")
        if whole:
            first.append(columns_of(data))
        if isinstance(item, Sample):
            samples.append(item)
            continue
        count += 1
        if len(bad) < SHOWN:
            bad.append(item.message.replace("line", "row", 1))
    if count:
        more = "" if count <= SHOWN else f" … and {count - SHOWN} more."
        lacks = next((field for field in NEEDED if count == len(table) and f"{field}: missing" in bad[0]), "")
        hint = f" Columns are {', '.join(table.names)}; say which is the {lacks}: map={{'{lacks}': 'COLUMN'}}."
        if lacks in mapping or lacks in table.names:
            hint = f" No row has anything in {mapping.get(lacks, lacks)!r}, which is taken for the {lacks}; see map."
        raise InputError(
            f"{count} of {len(table)} rows cannot be judged. Nothing was spent. {' '.join(bad)}{more}"
            f"{hint if lacks else ''}"
        )
    for doubt in doubtful_columns(first):
        log.warning("%s", doubt.message)
    unread = unread_columns(first, shown, rubric is not None)
    if unread:
        log.info("not read: %s. No judge sees them; a template shows a column with {{columns.name}}", ", ".join(unread))
    return samples


def _since_now(referee: Referee) -> Callable[[], dict[str, float]]:
    """Metrics, without what was counted before."""
    before = referee.metrics()

    def metrics() -> dict[str, float]:
        now = referee.metrics()
        return now | {name: now[name] - before.get(name, 0.0) for name in COUNTS if name in now}

    return metrics
