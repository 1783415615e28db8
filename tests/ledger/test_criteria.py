"""Criteria of rubrics in the metrics: pass rates worked out by hand, a bounded number of names, forged parts."""

from __future__ import annotations

from typing import Any

import pytest

from referee.ledger import JudgeLine, RunLine, Tally, VerdictLine
from referee.ledger import criteria as module
from referee.ledger.criteria import Criteria, results_in
from referee.ledger.metrics import metrics
from referee.records import Part, Reason, Settled, Unscored, Verdict


def part(name: str, value: float | None, true_is: str = "good", **more: Any) -> dict[str, Any]:
    return {"name": name, "weight": 1.0, "true_is": true_is, "verdict": "yes" if value else "no", "value": value} | more


def rates(found: dict[str, float]) -> dict[str, float]:
    return {name: rate for name, rate in found.items() if name.endswith("/pass_rate")}


def test_pass_rates_worked_out_by_hand() -> None:
    """True and good, or untrue and bad; half is not passed. What does not apply or has no verdict is not counted."""
    spared = part("clear", 0.0, weight=0.0, verdict="not applicable")
    lines = [
        VerdictLine(value=1.0, how="rubric", parts=[part("clear", 1.0), part("rude", 0.0, "bad"), part("late", None)]),
        VerdictLine(value=1.0, how="rubric", parts=[part("clear", 0.5), part("rude", 1.0, "bad")]),
        VerdictLine(value=1.0, how="rubric", parts=[part("clear", 0.75), part("rude", 0.25, "bad")]),
        VerdictLine(value=1.0, how="rubric", parts=[spared, part("rude", 0.0, "bad")]),
        VerdictLine(unscored="timeout"),
    ]
    assert rates(metrics(lines)) == {
        "criterion/rude/pass_rate": 0.75,
        "criterion/clear/pass_rate": pytest.approx(2 / 3),
    }
    assert rates(metrics([VerdictLine(value=1.0), RunLine()])) == {}


def test_several_judges_have_names_of_their_own() -> None:
    """The same name in two rubrics is two criteria."""
    lines = [
        JudgeLine(judge="a", value=1.0, how="rubric", parts=[part("clear", 1.0)]),
        JudgeLine(judge="b", value=1.0, how="rubric", parts=[part("clear", 0.0)]),
        VerdictLine(value=1.0, how="terms"),
    ]
    assert rates(metrics(lines)) == {
        "judge/a/criterion/clear/pass_rate": 1.0,
        "judge/b/criterion/clear/pass_rate": 0.0,
    }


def test_live_verdicts_count_as_their_lines_do() -> None:
    """A Verdict's parts, without a ledger; those of other kinds are no criteria."""
    parts = (
        Part(name="clear", verdict=Verdict(score=1.0, value=1.0), label="yes"),
        Part(name="late", verdict=Unscored(reason=Reason.TIMEOUT)),
    )
    tally = Tally()
    tally.made_of("", Settled(verdict=Verdict(score=1.0, value=1.0, how="rubric", parts=parts)))
    tally.made_of("", Settled(verdict=Verdict(score=1.0, value=1.0, how="schema", parts=parts)))
    tally.made_of("", Settled(verdict=Unscored(reason=Reason.TIMEOUT)))
    tally.judged("b", Settled(verdict=Verdict(score=1.0, value=1.0, how="rubric", parts=parts)))
    assert rates(tally.metrics()) == {"criterion/clear/pass_rate": 1.0, "judge/b/criterion/clear/pass_rate": 1.0}


def test_the_most_frequent_names_stay() -> None:
    """A name of its own in each of many samples: metrics and memory are bounded, and what all share is there."""
    tally = Tally()
    for number in range(3 * module.MOST_COUNTED):
        tally.add(
            VerdictLine(value=1.0, how="rubric", parts=[part("shared", float(number % 2)), part(f"own {number}", 1.0)])
        )
    found = rates(tally.metrics())
    assert len(found) == module.MOST_NAMES
    assert next(iter(found)) == "criterion/shared/pass_rate"
    assert found["criterion/shared/pass_rate"] == pytest.approx(0.5)
    counted = Criteria()
    for number in range(3 * module.MOST_COUNTED):
        counted.add(results_in([part(f"own {number}", 1.0)]))
    assert len(counted) <= module.MOST_COUNTED
    assert counted.dropped
    assert counted.all.judged == 3 * module.MOST_COUNTED


def test_a_sample_that_was_judged_again_is_subtracted() -> None:
    """What comes in and is taken back leaves nothing; a name that was dropped since does no harm."""
    tally, held = Tally(), results_in([part("clear", 1.0), part("late", None)])
    tally.add(VerdictLine(value=1.0, how="rubric", parts=[part("clear", 1.0), part("late", None)]))
    tally.add(VerdictLine(value=1.0, how="rubric", parts=[part("clear", 0.0)]))
    tally.take_back(1.0, "", None, criteria=[("", held), ("", results_in([part("unknown", 1.0)]))])
    assert rates(tally.metrics()) == {"criterion/clear/pass_rate": 0.0}


@pytest.mark.parametrize(
    "forged",
    [{}, {"name": 3}, {"name": "x", "value": "high"}, {"name": "x", "weight": None}, {"name": ["x"], "value": 1.0}],
)
def test_forged_parts_are_left_out(forged: dict[str, Any]) -> None:
    """They are no criteria; the others count. A name that stands twice in a sample counts once."""
    line = VerdictLine(
        value=1.0, how="rubric", parts=[forged, part("clear", 1.0), part("clear", 0.0), part("far", 1e300)]
    )
    assert rates(metrics([line])) == {"criterion/clear/pass_rate": 1.0, "criterion/far/pass_rate": 1.0}
