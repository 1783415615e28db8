"""Juries and cascades in the report: who was asked, which member decided, what it cost, how far members agree."""

from __future__ import annotations

import random
from typing import Any

import pytest
from tests.report.ledgers import CONFIG, START, pair

from referee.ledger import Line, RunLine, VerdictLine
from referee.report import Report, build


def part(name: str, value: float | None, verdict: str = "") -> dict[str, Any]:
    """What one member said, as the ledger has it."""
    missing = "" if value is not None else "timeout"
    return {
        "name": name,
        "text": "",
        "weight": 1.0,
        "true_is": "good",
        "verdict": verdict,
        "value": value,
        "unscored": missing,
    }


def made_of(kind: str, samples: list[tuple[list[dict[str, Any]], float]], name: str = "") -> Report:
    """Samples by such a judge: parts and cost of each."""
    config = {**CONFIG, "judge": [{"kind": kind, "name": name or "j"}]}
    lines: list[Line] = [RunLine(wall=START, config=config)]
    for number, (parts, cost) in enumerate(samples):
        there = any(one["value"] is not None for one in parts)
        more = {"parts": parts, "cost": cost, "group": f"g{number // 4}", "id": f"s{number}"}
        lines += pair(1, number, 5 if there else None, **{**more, "how": kind if there else ""})
    return build(lines)


def test_a_cascade_says_which_member_decided_and_at_what_cost() -> None:
    """Shares are of the samples with a decision; the cost of a sample is that of all members asked."""
    easy = ([part("cheap", 0.9, "decided")], 0.001)
    hard = ([part("cheap", 0.5, "unsure"), part("strong", 0.2, "decided")], 0.011)
    lost = ([part("cheap", None, "no verdict"), part("strong", None, "no verdict")], 0.011)
    (found,) = made_of("cascade", [easy] * 6 + [hard] * 3 + [lost]).made_of
    cheap, strong = found.members
    assert (found.kind, found.samples) == ("cascade", 10)
    assert (cheap.asked, cheap.scored, cheap.decided) == (10, 9, 6)
    assert (strong.asked, strong.scored, strong.decided) == (4, 3, 3)
    assert (cheap.cost, strong.cost) == (pytest.approx(0.006), pytest.approx(0.033))
    assert cheap.mean == pytest.approx((6 * 0.9 + 3 * 0.5) / 9)
    assert not found.agreement


def test_members_of_a_jury_are_compared() -> None:
    """Two that say the same agree wholly, one that says the opposite not at all; the same among siblings."""
    chance = random.Random(1)
    values = [chance.random() for _ in range(40)]
    samples = [([part("a", v), part("b", v * v), part("c", 1 - v)], 0.001) for v in values]
    (found,) = made_of("jury", [*samples, ([part("a", None), part("b", 0.1), part("c", 0.2)], 0.001)]).made_of
    assert [(one.name, one.asked, one.scored) for one in found.members] == [("a", 41, 40), ("b", 41, 41), ("c", 41, 41)]
    by_pair = {(one.a, one.b): one for one in found.agreement}
    assert by_pair["a", "b"].correlation == pytest.approx(1.0)
    assert by_pair["a", "c"].within_correlation == pytest.approx(-1.0)
    assert by_pair["a", "b"].within_groups == 10


def test_a_gate_is_no_members_opinion() -> None:
    """What a gate settled was not asked of any member."""
    lines = pair(1, 0, 1, how="gate", origin="gate", parts=[part("a", 0.0), part("b", 0.0)])
    assert not build([RunLine(config={**CONFIG, "judge": [{"kind": "jury"}]}), *lines]).made_of


def test_a_sample_that_came_again_counts_once() -> None:
    """As it ended last, in counts and in agreement."""
    run = RunLine(wall=START, config={**CONFIG, "judge": [{"kind": "jury"}]})
    parts = [part("a", 0.2), part("b", 0.3)]
    first = [run, *pair(1, 0, None, how="", parts=[part("a", None), part("b", 0.3)], wall=START + 1)]
    again = [RunLine(wall=START + 5, config=run.config), *pair(1, 0, 5, how="jury", parts=parts, wall=START + 6)]
    (found,) = build([*first, *again]).made_of
    assert found.samples == 1
    assert [(one.asked, one.scored) for one in found.members] == [(1, 1), (1, 1)]
    assert [one.samples for one in found.agreement] == [1]


def test_parts_of_other_judges_are_no_members() -> None:
    """Criteria of a rubric have a panel of their own."""
    line = next(one for one in pair(1, 0, 5, how="rubric", parts=[part("c", 1.0)]) if isinstance(one, VerdictLine))
    assert not build([RunLine(config={**CONFIG, "judge": [{"kind": "rubric"}]}), line]).made_of
