"""Judges of groups in the report's data: counted, said where they go by the place, taken back with their sample."""

from __future__ import annotations

from msgspec.structs import replace
from tests.report.group_ledgers import judged, lists, pairs

from referee.ledger import AskLine, JudgeLine, Line, RunLine, VerdictLine
from referee.report import build
from referee.report.shape import Finding, Scale


def said(lines: list[Line]) -> list[Finding]:
    """What is said of groups."""
    return [finding for finding in build(lines).findings if finding.panel == "groups"]


def test_a_judge_that_goes_by_the_place_is_said_to() -> None:
    """With what it rests on; of few comparisons nothing is said, and of a fair judge neither."""
    everywhere = {"kind": "pairwise", "schedule": "all"}
    place, order = said(judged(everywhere, groups=8, near=10))
    assert (place.level, place.text) == (
        "bad",
        "The judge prefers what is shown first: it won 100 % of 96 comparisons.",
    )
    assert order.text.startswith("The judge answered otherwise in the other order in 100 % of the pairs")
    assert said(judged(everywhere, groups=8)) == []
    assert said(judged(everywhere, groups=1, near=10)) == []


def test_of_several_judges_it_is_said_by_name() -> None:
    """The other judge goes by what the responses say."""
    several = [{"kind": "pairwise", "name": "pair", "optional": True}, {"kind": "score", "name": "one"}]
    found = said(judged(several, groups=8, near=10))
    assert [finding.text.split(" ")[:2] for finding in found] == [["Judge", "pair"]] * 2


def test_numbers_are_the_judges() -> None:
    """Twelve pairs both ways, each counted by both; two of the pairs are close."""
    metrics = build(pairs()).metrics
    assert metrics["comparisons"] == 48
    assert metrics["order_changed_share"] == 1 / 6
    assert metrics["unscored/alone"] == 1
    found = build(lists())
    assert found.metrics["judge/list/chunked_share"] == 1.0
    assert found.metrics["judge/list/order_spread"] == 0.0
    assert found.metrics["judge/pair/comparisons"] == 32
    assert [judge.scale for judge in found.judges] == [Scale(0, 1.0, 10.0), Scale()]


def test_no_sibling_becomes_a_criterion() -> None:
    """Comparisons have names, too."""
    assert build(pairs()).criteria == []


def test_a_group_that_was_judged_again_counts_once() -> None:
    """As it ended last, with its comparisons."""
    lines = pairs()
    wall = max(line.wall for line in lines)
    again = [replace(line, wall=wall + 100 + line.wall - lines[0].wall) for line in lines]
    assert isinstance(again[0], RunLine)
    once, twice = build(lines), build([*lines, *again])
    names = ("comparisons", "tie_share", "first_shown_share", "order_changed_share", "scored", "unscored/alone")
    assert {name: once.metrics[name] for name in names} == {name: twice.metrics[name] for name in names}


def test_lines_hold_what_a_verdict_is_made_of() -> None:
    """Questions stand once, before the group's first sample; comparisons in every sample's line."""
    found = pairs(content=False)
    asks = [line for line in found if isinstance(line, AskLine)]
    assert len(asks) == 24
    assert {len(line.indexes) for line in asks} == {4}
    verdicts = [line for line in found if isinstance(line, VerdictLine) and line.value is not None]
    assert {len(line.parts) for line in verdicts} == {6}
    assert {name for line in verdicts for row in line.parts for name in row} == {
        *("name", "text", "verdict", "value", "unscored")
    }
    places = [line for line in lists() if isinstance(line, AskLine) and line.how == "listwise"]
    assert {row["name"] for line in places for row in line.parts} == {"1", "2", "3"}
    orders = [line for line in lists() if isinstance(line, JudgeLine) and line.how == "listwise"]
    assert {row["text"] for line in orders for row in line.parts} == {"in 2 chunks"}
