"""Verdicts of a run that is over, for rows with labels: a ledger, or rewards of `referee score`. Nothing is asked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from referee.calibration.labels import Row
from referee.config import Config
from referee.errors import InputError
from referee.ledger import JudgeLine, RunLine, VerdictLine
from referee.records import How, Origin, Part, Reason, Reward, Settled, Term, Unscored, Verdict
from referee.report.files import lines_of
from referee.report.resumed_runs import Samples
from referee.rollouts import plain

NOT_THERE = Settled(verdict=Unscored(reason=Reason.CANCELLED, detail="the run has no verdict on this row"))


def stored(path: Path, config: Config, rows: Sequence[Row]) -> list[Reward]:
    """What a run said of these rows, found by id, else by prompt and response; a row it does not have is unscored."""
    samples, found = Samples(), dict[int, tuple[VerdictLine, Mapping[str, JudgeLine]]]()
    said: dict[tuple[str, int], dict[str, JudgeLine]] = {}
    for line in lines_of(path):
        if isinstance(line, RunLine):
            samples.start(line)
        elif isinstance(line, JudgeLine):
            said.setdefault((line.batch, line.index), {})[line.judge] = line
        elif isinstance(line, VerdictLine):
            ended, _ = samples.end(line)
            judges = said.pop((line.batch, line.index), {})
            if ended is not None:
                found[ended.row] = line, judges
    every = list(found.values())
    by_id = {line.id: one for one in every for line in one[:1] if line.id}
    by_text = {(line.prompt, line.response): one for one in every for line in one[:1] if line.response}
    unique = len(by_id) == len(every)
    rewards, matched = [], 0
    for place, row in enumerate(rows):
        sample = row.sample
        texts = plain(sample.prompt), plain(sample.response)
        one = by_text.get(texts) or (by_id.get(sample.id) if unique else None)
        matched += one is not None
        ends = [_settled(config, number, one) for number in range(len(config.judge))]
        terms = tuple(Term(judge.name, None, judge.weight, end) for judge, end in zip(config.judge, ends, strict=True))
        rewards.append(Reward(index=place, id=sample.id, group=sample.group, value=None, settled=ends[0], terms=terms))
    if not matched:
        raise InputError(f"{path}: it has none of the labelled rows, by id or by prompt and response.")
    return rewards


def _settled(config: Config, number: int, one: tuple[VerdictLine, Mapping[str, JudgeLine]] | None) -> Settled:
    if one is None:
        return NOT_THERE
    line: VerdictLine | JudgeLine | None = one[0]
    if len(config.judge) > 1:
        line = one[1].get(config.judge[number].name)
    return NOT_THERE if line is None else _of(line)


def _of(line: VerdictLine | JudgeLine) -> Settled:
    parts = tuple(_part(part) for part in line.parts)
    verdict: Verdict | Unscored
    if line.value is None or line.score is None:
        verdict = Unscored(reason=_reason(line.unscored), detail=line.detail, parts=parts)
    else:
        verdict = Verdict(
            score=line.score,
            value=line.value,
            reason=line.why,
            how=cast(How, line.how or "tag"),
            uncertainty=line.uncertainty,
            parts=parts,
        )
    paid, origin = line.cost + line.saved, cast(Origin, line.origin)
    return Settled(verdict=verdict, origin=origin, model=line.model, endpoint=line.endpoint, saved=paid)


def _part(row: Mapping[str, Any]) -> Part:
    value = row.get("value")
    verdict: Verdict | Unscored
    if isinstance(value, int | float):
        parts = tuple(_part(part) for part in row.get("parts") or ())
        why = str(row.get("why", ""))
        verdict = Verdict(score=value, value=value, reason=why, uncertainty=row.get("uncertainty"), parts=parts)
    else:
        verdict = Unscored(reason=_reason(str(row.get("unscored", ""))), detail=str(row.get("why", "")))
    return Part(
        name=str(row.get("name", "")),
        verdict=verdict,
        weight=float(row.get("weight", 1.0)),
        text=str(row.get("text", "")),
        label=str(row.get("verdict", "")),
        good=row.get("true_is") != "bad",
    )


def _reason(name: str) -> Reason:
    return Reason(name) if name in {reason.value for reason in Reason} else Reason.CANCELLED
