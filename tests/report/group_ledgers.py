"""Ledgers of judges of groups, written by a Referee whose judge model goes by [[quality=7]]."""

from __future__ import annotations

import tempfile
from typing import Any

from tests.group_replies import group_answer

from referee import Sample
from referee.ledger import Line, read
from referee.testing import fake_referee

QUALITIES = (2, 9, 5, 6)


def rollouts(groups: int, **more: Any) -> list[Sample]:
    """Groups of four, and one rollout alone."""
    found = [
        Sample(
            prompt=f"Question {group}?",
            response=f"[[quality={quality}]] answer {number}",
            group=f"g{group}",
            id=f"g{group}-{number}",
            **more,
        )
        for group in range(groups)
        for number, quality in enumerate(QUALITIES)
    ]
    return [*found, Sample(prompt="Alone?", response="[[quality=5]] alone", id="lone", **more)]


def judged(judge: Any, groups: int = 2, near: int = 0, content: bool = True, ids: bool = True) -> list[Line]:
    """The lines of such a run. Of two answers that differ by at most `near` the one shown first wins."""
    samples = rollouts(groups)
    if not ids:
        samples = [Sample(prompt=one.prompt, response=one.response, group=one.group) for one in samples]
    with tempfile.TemporaryDirectory() as folder:
        config = {"judge": judge, "ledger": {"dir": folder, "content": content}}
        with fake_referee(config, group_answer(near)) as referee:
            referee.score(samples)
        return list(read(folder))


def pairs(**more: Any) -> list[Line]:
    """All pairs of two groups; where answers are close, the one shown first wins."""
    return judged({"kind": "pairwise", "schedule": "all"}, near=1, **more)


def lists() -> list[Line]:
    """Two orders, of groups that do not fit one request, and a pairwise judge beside it."""
    view = {"kind": "listwise", "permutations": 2, "max_view_tokens": 20, "name": "list", "optional": True}
    one = {"kind": "score", "name": "one"}
    return judged([view, {"kind": "pairwise", "name": "pair", "alone": "one"}, one])
