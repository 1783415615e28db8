"""`referee audit --ask`: the audit's own questions about a run that is over."""

from __future__ import annotations

import functools
import random
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec
import typer

from referee.audit.after_run import ask_afterwards, questions_about
from referee.audit.judged import SIBLINGS, JudgedSample
from referee.cli.settings import settings
from referee.cli.words import counted
from referee.config import Config
from referee.errors import InputError
from referee.judging import needs_groups
from referee.ledger import AuditLine, JudgeLine, VerdictLine
from referee.records import Sample
from referee.referee import Referee
from referee.report.files import lines_of
from referee.report.recorded_rollouts import row_of
from referee.rollouts import Polarity
from referee.rollouts.row import read_row
from referee.scoring.build import columns_shown, rubric_polarity

QUARTER = 4
KEPT = 256
"""Answers of the first quarter of a run, and of the last, of which some are asked about."""


def asked_now(run: Path, path: Path | None, requests: int) -> list[AuditLine]:
    """What the configured judges say now about answers of a run, at most `requests`; how many is said before."""
    with settings(path, audit=True) as config:
        early, late, made, cost = _lives(run, config)
        questions = questions_about(config, early, late, requests, max(1.0, made))
        cases = sum(len(one.cases) for one in questions)
        price = f", about ${cases * cost:.4f} by what the run paid" if cost else ""
        limit = config.limits.budget_usd
        bound = "" if limit is None else f", at most ${limit:g} ([limits] budget_usd)"
        typer.echo(f"asking {counted(cases * max(1.0, made), 'request')}{price}{bound}", err=True)
        lines = ask_afterwards(config, questions, Referee)
    spent = sum(line.cost for line in lines)
    typer.echo(f"{counted(len(lines), 'answer')}" + (f", ${spent:.4f}" if spent else ""), err=True)
    return lines


def _lives(run: Path, config: Config) -> tuple[list[JudgedSample], list[JudgedSample], float, float]:
    """Answers of the first and of the last quarter, in order; and requests and dollars for one that was asked about."""
    order: list[tuple[int, float, int]] = []
    paid = requests = 0
    dollars = 0.0
    for place, line in enumerate(lines_of(run)):
        if isinstance(line, VerdictLine) and line.value is not None and line.origin != "gate":
            if line.prompt_digest:
                raise InputError(f"{run}: holds digests of its texts only ([ledger] content = false): nothing to ask.")
            order.append((line.step if line.step is not None else 0, line.wall, place))
            paid, requests, dollars = paid + bool(line.attempts), requests + line.attempts, dollars + line.cost
    if not order:
        raise InputError(f"{run}: no sample in it that a judge has scored.")
    order.sort()
    part, rng = max(1, len(order) // QUARTER), random.Random(0)
    places = [sorted(rng.sample(half, min(KEPT, part))) for half in (order[:part], order[-part:])]
    found = _read(run, {place for half in places for _, _, place in half}, config)
    early, late = [[found[place] for _, _, place in half] for half in places]
    return early, late, requests / max(1, paid), dollars / max(1, paid)


def _read(run: Path, places: set[int], config: Config) -> dict[int, JudgedSample]:
    """The samples at these places of the record, with siblings where a judge compares."""
    chosen = {place: line for place, line in enumerate(lines_of(run)) if place in places}
    lines = {place: line for place, line in chosen.items() if isinstance(line, VerdictLine)}
    keys = {(line.batch, line.index) for line in lines.values()}
    groups = {(line.batch, line.group): list[Sample]() for line in lines.values() if line.group}
    said: dict[tuple[str, int], dict[str, float | None]] = {}
    compares = needs_groups(config.known_judges)
    sample_of = functools.partial(_sample, columns=columns_shown(config), polarity=rubric_polarity(config))
    for line in lines_of(run) if compares or len(config.judge) > 1 else ():
        if isinstance(line, JudgeLine) and (line.batch, line.index) in keys:
            said.setdefault((line.batch, line.index), {})[line.judge] = line.value
        elif compares and isinstance(line, VerdictLine) and (line.batch, line.group) in groups:
            groups[line.batch, line.group].append(sample_of(line))
    return {place: _live(line, sample_of(line), said, groups, config) for place, line in lines.items()}


def _live(
    line: VerdictLine,
    sample: Sample,
    said: Mapping[tuple[str, int], Mapping[str, float | None]],
    groups: Mapping[tuple[str, str], Sequence[Sample]],
    config: Config,
) -> JudgedSample:
    assert line.value is not None
    mine = said.get((line.batch, line.index), {})
    values = tuple([mine.get(judge.name) for judge in config.judge]) if len(config.judge) > 1 else (line.value,)
    others = [one for one in groups.get((line.batch, line.group), ()) if one != sample]
    return JudgedSample(line.batch, line.index, sample, line.value, values, True, tuple(others[:SIBLINGS]))


def _sample(line: VerdictLine, columns: tuple[str, ...], polarity: Polarity | None) -> Sample:
    row = {name: value for name, value in row_of(line, line.group).items() if value is not None}
    return read_row(msgspec.json.encode(row), 0, columns, polarity)
