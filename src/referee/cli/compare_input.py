"""Two files of answers as pairs. What is wrong with them is said before anything is spent."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from pathlib import Path
from typing import NamedTuple

import typer

from referee.cli.problems import Problems, refuse_text
from referee.cli.words import counted
from referee.config import Config
from referee.errors import InputError
from referee.records import Sample
from referee.report.plain import plain
from referee.rollouts import BadLine, first_rows, last_user, read_rollouts
from referee.rollouts.pairs import AnswerRow, Matched, match_answers, prompt_key, two_prompts
from referee.scoring.build import rubric_polarity, text_only

EXAMPLES = 3
"""Rows without a partner that are named."""
MOST_COLUMNS = 20
"""Columns that an error lists."""


class AnswerFile(NamedTuple):
    """A file as it was named, and where it can be read."""

    name: str
    path: Path


def read_answers(file: AnswerFile, config: Config | None = None, columns: Sequence[str] = ()) -> list[AnswerRow]:
    """All rows, as the judge is shown them; a line that is none is an error. Without a configuration: to see what is
    there."""
    bad, found = Problems(), list[AnswerRow]()
    only_text, rubric = (text_only(config), rubric_polarity(config)) if config is not None else (False, None)
    for line, item in read_rollouts(file.path, columns, only_text, rubric):
        if isinstance(item, BadLine):
            bad.add(item)
        else:
            found.append(AnswerRow(line, item))
    if not found:
        refuse_text(file.name, file.path)
    if bad.count:
        raise InputError(bad.complaint(file.name, "Correct them." if found else bad.instead(first_rows(file.path))))
    return found


def match_files(
    files: Sequence[AnswerFile],
    config: Config,
    columns: Sequence[str],
    by: Sequence[str],
    key: str,
    skip_unmatched: bool,
) -> Matched:
    """The pairs of two files, by a column or by their prompts. `columns`: all that are kept of a row; `by`: those to
    break down by."""
    rows = [read_answers(file, config, columns) for file in files]
    for name in by:
        if not any(name in row.sample.columns for each in rows for row in each):
            raise InputError(f"--by {name}: no row has this column. {_known(files)} Nothing was spent.")
    if key:
        for file, each in zip(files, rows, strict=True):
            _check_key(file, each, key, files)
    found = match_answers(rows[0], rows[1], _column(key) if key else prompt_key)
    what = f"value of {key}" if key else "prompt"
    if not found.pairs:
        hint = "" if key else " If rows have a common id, name its column with --key."
        raise InputError(
            f"no {what} of {files[0].name} is in {files[1].name}: there is nothing to compare.{hint} Nothing was spent."
        )
    missing = [_alone(*each) for each in zip(files, reversed(files), (found.only_a, found.only_b), strict=True)]
    said = " ".join(filter(None, missing))
    if said and not skip_unmatched:
        raise InputError(
            f"{said} Nothing was spent. Give both files the same prompts, name a column that identifies rows with "
            "--key, or leave these rows out with --skip-unmatched."
        )
    if said:
        typer.echo(f"left out: {said}", err=True)
    other = [pair for pair in found.pairs if prompt_key(pair.a.sample) != prompt_key(pair.b.sample)]
    if other:
        typer.echo(
            f"warning: the prompts of {counted(len(other), 'pair')} differ (for example {files[0].name} line "
            f"{other[0].a.line}, {files[1].name} line {other[0].b.line}); the judge is shown that of {files[0].name}.",
            err=True,
        )
    return found


def _check_key(file: AnswerFile, rows: Sequence[AnswerRow], key: str, files: Sequence[AnswerFile]) -> None:
    """Every row has the key, and it stands for one prompt."""
    missing = [row for row in rows if key not in row.sample.columns]
    if missing:
        more = f" (and on {counted(len(missing) - 1, 'more line')})" if missing[1:] else ""
        problem = f"line {missing[0].line}{more} has no such column"
        raise InputError(f"{file.name}: --key {key}: {problem}. {_known(files)} Nothing was spent.")
    two = two_prompts(rows, _column(key))
    if two is not None:
        raise InputError(
            f"{file.name}: --key {key}: {plain(two[0].sample.columns[key], 40)!r} stands on lines {two[0].line} and "
            f"{two[1].line} for different prompts, so it does not say which rows belong together. Nothing was spent."
        )


def _column(key: str) -> Callable[[Sample], Hashable]:
    return lambda sample: sample.columns[key]


def _known(files: Sequence[AnswerFile]) -> str:
    found = dict.fromkeys(column for file in files for row in first_rows(file.path) for column in row)
    return f"There are: {', '.join(plain(name, 40) for name in list(found)[:MOST_COLUMNS])}."


def _alone(file: AnswerFile, other: AnswerFile, rows: Sequence[AnswerRow]) -> str:
    """A sentence about the rows that have no partner; empty if all have one."""
    if not rows:
        return ""
    shown = "; ".join(f"line {row.line}: {plain(last_user(row.sample.prompt), 50)}" for row in rows[:EXAMPLES])
    more = "; …" if len(rows) > EXAMPLES else ""
    have = f"{counted(len(rows), 'row')} {'has' if len(rows) == 1 else 'have'}"
    return f"{file.name}: {have} no partner in {other.name} ({shown}{more})."
