"""The samples of a ledger as rollouts, to be judged by another judge. Two passes, in flat memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from referee.errors import InputError
from referee.ledger import Line, RunLine, VerdictLine
from referee.ledger.groups import Groups
from referee.report.files import Rewards, lines_of, record_beside
from referee.report.resumed_runs import Samples


def rollouts_of(path: Path) -> Iterator[dict[str, Any]]:
    """Every sample of a run once, as a row that `referee score` reads, in the order in which they were settled."""
    lines = lines_of(path)
    if isinstance(lines, Rewards):
        path = record_beside(given := path)
        if not path.is_dir():
            raise InputError(f"{given}: rewards hold no prompts. Name the run's ledger, or judge its rollouts.")
    places = _places(lines_of(path))
    if not places:
        raise InputError(f"{path}: no sample in it.")
    for place, line in enumerate(lines_of(path)):
        if place in places:
            assert isinstance(line, VerdictLine)
            if line.prompt_digest or line.response_digest:
                raise InputError(f"{path}: holds digests of its texts only ([ledger] content = false).")
            yield row_of(line, places[place])


def _places(lines: Iterable[Line]) -> dict[int, str]:
    """Places of the lines that count, each with the name of its group. Of a sample that a later start judged again, the
    last; a name that means several groups gets a number."""
    samples, groups = Samples(), Groups(most=None)
    found: dict[int, tuple[int, str]] = {}
    named: dict[str, int] = {}
    for place, line in enumerate(lines):
        if isinstance(line, RunLine):
            samples.start(line)
            groups.start(line)
        elif isinstance(line, VerdictLine):
            ended, _ = samples.end(line)
            number = groups.number(line)
            first = named.setdefault(line.group, number)
            if ended is not None:
                found[ended.row] = place, line.group if number == first else f"{line.group}#{number}"
    return dict(found.values())


def row_of(line: VerdictLine, group: str) -> dict[str, Any]:
    """A sample of a ledger as `referee score` reads it."""
    more = dict(line.more)
    return {
        **more.pop("columns", {}),
        "id": line.id,
        "group": group,
        "prompt": line.prompt,
        "response": line.response,
        "reference": line.reference,
        "rule_score": line.rule_score,
        "length": line.length,
        "truncated": line.truncated,
        "step": line.step,
        **more,
    }
