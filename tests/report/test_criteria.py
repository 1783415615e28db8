"""Criteria of rubrics in the report's data: counted once, bounded, and what each added to its score."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace
from tests.report.ledgers import CONFIG, RUBRIC, START, by_rubric, criteria, pair, part, rubric

from referee.judging.folding import RULES, Credit
from referee.ledger import JudgeLine, Line, RunLine, VerdictLine
from referee.report import build
from referee.report import criteria as module
from referee.report.criteria import shown_parts
from referee.report.shape import CriterionReport


def by_name(lines: list[Line]) -> dict[str, CriterionReport]:
    return {one.name: one for one in build(lines).criteria}


def test_a_sample_that_was_judged_again_counts_once() -> None:
    """Its criteria too: verdicts, steps, groups and lengths are of the later start."""
    again: list[Line] = [RunLine(wall=START + 500, config={**CONFIG, "judge": [RUBRIC]})]
    for step in range(1, 5):
        for index in range(8):
            again += by_rubric(step, index, criteria(step, index), wall=START + 600, batch=f"c{step}")
    once, twice = build(rubric()), build([*rubric(), *again])
    assert twice.again == 32
    for one, other in zip(once.criteria, twice.criteria, strict=True):
        assert replace_groups(one) == replace_groups(other)
    for name in ("density", "tone"):
        assert twice.metrics[f"criterion/{name}/pass_rate"] == once.metrics[f"criterion/{name}/pass_rate"]


def replace_groups(one: CriterionReport) -> CriterionReport:
    """A step that is repeated makes new groups, in which the sample is the same."""
    return replace(one, groups=0, flat_groups=0)


def test_each_of_several_judges_has_its_criteria() -> None:
    """The same name in two rubrics is two criteria; the line of both together has none."""
    lines: list[Line] = []
    for index in range(4):
        verdict, reward = pair(1, index, 5)
        assert isinstance(verdict, VerdictLine)
        for judge, value in (("a", 1.0), ("b", float(index % 2))):
            said = JudgeLine(
                judge=judge, batch="b1", index=index, value=value, how="rubric", parts=[part("x", value, 1)]
            )
            lines.append(said)
        lines += [replace(verdict, how="terms"), reward]
    report = build(lines)
    assert [(one.judge, one.name, one.judged, one.passed, one.flat_groups) for one in report.criteria] == [
        ("a", "x", 4, 4, 1),
        ("b", "x", 4, 2, 0),
    ]
    assert report.metrics["judge/b/criterion/x/pass_rate"] == 0.5


def test_what_differs_from_sample_to_sample_is_not_said() -> None:
    """Sentences, weights and polarity of criteria that are called by their place."""
    lines = [
        *by_rubric(1, 0, [part("criterion 1", 1.0, 2.0), part("same", 1.0, 1.0)]),
        *by_rubric(1, 1, [{**part("criterion 1", 1.0, 3.0, "bad"), "text": "Another."}, part("same", 1.0, 1.0)]),
        *by_rubric(1, 2, [part("criterion 1", 1.0, 2.0), part("same", 1.0, 1.0)]),
    ]
    first, same = by_name(lines)["criterion 1"], by_name(lines)["same"]
    assert (first.text, first.weight, first.true_is) == (None, None, "")
    assert (same.text, same.weight, same.true_is) == ("It is true of it: same.", 1.0, "good")


def test_names_and_steps_are_bounded() -> None:
    """A name for each sample and many steps: the frequent ones are listed, neighbouring steps share rows."""
    lines: list[Line] = []
    for number in range(3 * module.MOST_HELD):
        lines += by_rubric(number, 0, [part("shared", float(number % 2), 1.0), part(f"own {number}", 1.0, 1.0)])
    report = build(lines)
    assert len(report.criteria) == module.MOST_SHOWN
    assert 0 < report.more_criteria <= module.MOST_HELD
    shared = report.criteria[0]
    assert (shared.name, shared.judged, shared.passed) == ("shared", 1200, 600)
    assert len(shared.steps) <= module.MOST_STEPS
    assert sum(row.judged for row in shared.steps) == 1200
    assert {row.pass_rate for row in shared.steps} == {0.5}
    assert (shared.steps[0].first, shared.steps[0].last, shared.steps[1].first) == (0, 7, 8)
    assert sum(bool(one.steps) for one in report.criteria) <= module.MOST_DRAWN


GOOD_AND_BAD = [part("a", 1.0, 5.0), part("b", 0.0, 3.0), part("c", 1.0, 2.0, "bad"), part("late", None, 9.0)]
FAULTS = [part("a", 1.0, 1.0, "bad"), part("b", 0.0, 3.0, "bad")]


@pytest.mark.parametrize(
    ("parts", "combine", "expected"),
    [
        (GOOD_AND_BAD, "weighted", [0.5, 0.0, 0.0, None]),
        (GOOD_AND_BAD, "healthbench", [5 / 8, 0.0, -2 / 8, None]),
        (GOOD_AND_BAD, "signed", [0.5, 0.0, -0.2, None]),
        (GOOD_AND_BAD, "all", [None] * 4),
        (GOOD_AND_BAD, "any", [None] * 4),
        (FAULTS, "weighted", [0.0, 0.75]),
        (FAULTS, "healthbench", [0.0, 0.75]),
        (FAULTS, "signed", [-0.25, 0.0]),
    ],
)
def test_contributions_add_up_to_the_score(parts: list[dict[str, Any]], combine: str, expected: list[Any]) -> None:
    """By hand, and the sum is what the rule makes of them; without a known rule too. Clipped scores have them."""
    credits = [Credit(p["weight"], p["true_is"] == "good", p["value"]) for p in parts if p["value"] is not None]
    score = RULES[combine](credits)
    assert score is not None
    adds = [one["adds"] for one in shown_parts(parts, score, combine)]
    assert adds == [None if one is None else pytest.approx(one) for one in expected]
    if combine in module.ADDITIVE:
        assert sum(one or 0.0 for one in adds) == pytest.approx(score)
        assert [one["adds"] for one in shown_parts(parts, score, "")] == adds
        clipped = min(1.0, max(0.0, score))
        assert [one["adds"] for one in shown_parts(parts, clipped, combine)] == adds


def test_a_score_that_is_no_sum_has_no_contributions() -> None:
    """A threshold decides, a forged line claims something, a sample has no score: nothing is made up."""
    for score, combine in ((1.0, "threshold"), (0.9, "weighted"), (0.9, ""), (None, "weighted")):
        assert {one["adds"] for one in shown_parts(GOOD_AND_BAD, score, combine)} == {None}


def test_a_part_says_whether_it_passed() -> None:
    """True and good, or untrue and bad; nothing where there is no verdict, or it does not apply."""
    spared = {**part("tone", 0.0, 0.0), "verdict": "not applicable"}
    shown = shown_parts([*GOOD_AND_BAD, part("d", 0.0, 1.0, "bad"), spared], None, "")
    assert [one["passed"] for one in shown] == [True, False, False, None, True, None]
