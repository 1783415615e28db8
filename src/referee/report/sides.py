"""One side of a comparison: what a run said of its samples, by all judges as one and by each of them. Pure."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from referee.errors import InputError
from referee.ledger import JudgeLine, Line, RunLine, VerdictLine, judges_in
from referee.ledger.build_lines import digest
from referee.ledger.groups import Groups
from referee.report.resumed_runs import Samples

KEPT_TEXT = 2000
"""Characters of a text kept for an example."""


class Said(Struct, frozen=True, gc=False):
    """What one of several judges said of a sample."""

    score: float | None
    value: float | None
    unscored: str
    why: str


class Row(Struct, frozen=True, kw_only=True, gc=False):
    """One sample as one side judged it."""

    id: str = ""
    text: str = ""
    """Digests of prompt and response; empty where the ledger has neither."""
    group: str = ""
    siblings: int = 0
    """The number of its group on its side; 0: in none."""
    step: int | None = None
    score: float | None = None
    value: float | None = None
    unscored: str = ""
    why: str = ""
    prompt: str = ""
    response: str = ""
    judges: dict[str, Said] = {}
    """With several judges: what each said."""


class Side(Struct, kw_only=True):
    """One ledger, read."""

    rows: list[Row] = []
    config: Mapping[str, Any] = {}
    models: dict[str, int] = {}
    scale: Hashable = None
    """What its scores mean: the ends of the judge's scale, or another judge's kind. None: nothing but their values."""
    ordered: bool = False
    """Its rows stand in the order of the rollouts."""
    judges: dict[str, Hashable] = {}
    """Several judges by name, with the scale of each; empty where there is one."""
    judge: str = ""
    """Whose verdicts its rows hold, where there are several judges: all of them as one, or one that was chosen."""


def side(lines: Iterable[Line]) -> Side:
    """Read one ledger. A sample that a later start judged again is one row, as it ended last."""
    found, samples, groups = Side(rows=[], models={}, judges={}), Samples(), Groups(most=None)
    said: dict[tuple[str, int], dict[str, Said]] = {}
    for line in lines:
        if isinstance(line, RunLine):
            found.config = line.config
            samples.start(line)
            groups.start(line)
        elif isinstance(line, JudgeLine):
            found.judges.setdefault(line.judge, None)
            judged = Said(line.score, line.value, line.unscored, line.why[:KEPT_TEXT])
            said.setdefault((line.batch, line.index), {})[line.judge] = judged
        elif isinstance(line, VerdictLine):
            ended, before = samples.end(line)
            row = _row(line, groups.number(line), said.pop((line.batch, line.index), {}))
            if before is not None:
                found.rows[before.row] = row
            elif ended is not None:
                found.rows.append(row)
            if line.model:
                found.models[line.model] = found.models.get(line.model, 0) + 1
    judges = judges_in(found.config)
    found.judges |= {str(judge.get("name", "")): _scale(judge) for judge in judges if len(judges) > 1}
    found.judge = " + ".join(found.judges)
    found.scale = None if found.judges else _scale(judges[0] if judges else {})
    return found


def of_judge(given: Side, name: str) -> Side:
    """The same samples as one of its judges sees them. A side with one judge is that judge's already."""
    if not given.judges:
        return given
    if name not in given.judges:
        raise InputError(f"no judge is named {name!r}. There are: {', '.join(given.judges)}.")
    rows = []
    for row in given.rows:
        said = row.judges.get(name) or Said(None, None, row.unscored or "not asked", "")
        rows.append(replace(row, score=said.score, value=said.value, unscored=said.unscored, why=said.why, judges={}))
    return replace(given, rows=rows, scale=given.judges[name], judges={}, judge=name)


def _scale(judge: Mapping[str, Any]) -> Hashable:
    kind = judge.get("kind", "score")
    return (judge.get("low", 1), judge.get("high", 10)) if kind in ("score", "integer") else kind


def _row(line: VerdictLine, siblings: int, judges: dict[str, Said]) -> Row:
    prompt = line.prompt_digest or (digest(line.prompt) if line.prompt or line.response else "")
    response = line.response_digest or (digest(line.response) if line.prompt or line.response else "")
    return Row(
        id=line.id,
        text=f"{prompt}{response}",
        group=line.group,
        siblings=siblings,
        step=line.step,
        score=line.value if line.how == "terms" else line.score,
        value=line.value,
        unscored=line.unscored,
        why=line.why[:KEPT_TEXT],
        prompt=line.prompt[:KEPT_TEXT],
        response=line.response[:KEPT_TEXT],
        judges=judges,
    )
