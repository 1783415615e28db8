"""Sentences at the head of the report: each rests on enough, says on how much, and is not made by one odd sample."""

from __future__ import annotations

import random
from typing import Any

import pytest
from tests.report.ledgers import CONFIG, JUDGES, RUN, START, judged, pair, several

from referee.ledger import BatchLine, Line, RunLine, VerdictLine
from referee.report import build
from referee.report.shape import Finding

GATE: dict[str, Any] = {"origin": "gate", "how": "gate", "attempts": 0, "cost": 0.0}


def found(lines: list[Line], panel: str) -> list[Finding]:
    """What is said under one panel."""
    return [finding for finding in build(lines).findings if finding.panel == panel]


def answers(count: int, group: str = "", seed: int = 7) -> list[Line]:
    """Answers of about the same length, whose scores have nothing to do with it."""
    chance = random.Random(seed)
    return [
        line
        for n in range(count)
        for line in pair(None, n, chance.randint(5, 9), length=chance.randint(18, 24), group=group and f"{n // 4}")
    ]


@pytest.mark.parametrize("gated", [True, False])
@pytest.mark.parametrize("group", ["", "g"])
def test_one_odd_answer_is_no_trend(gated: bool, group: str) -> None:
    """One short answer with the lowest score among forty, settled by a gate or by the judge itself."""
    odd = pair(None, 39, 1, length=1, group=group and "9", **(GATE if gated else {}))
    assert found([RUN, *answers(39, group), *odd], "length") == []


def test_what_a_gate_settled_is_not_in_the_length_chart() -> None:
    """It is not the judge's opinion of the answer."""
    lengths = build([RUN, *answers(39), *pair(None, 39, 1, length=1, **GATE)]).lengths
    assert lengths.samples == len(lengths.points) == 39


def test_a_sample_that_lost_its_score_leaves_the_chart() -> None:
    """A later start judged it again and found none: its point is gone from the picture too."""
    again = [RunLine(wall=START + 1000, config=CONFIG), *pair(None, 0, None, group="", wall=START + 1001)]
    lengths = build([RUN, *answers(10), *again]).lengths
    assert lengths.samples == len(lengths.points) == 9
    assert [point.row for point in lengths.points] == list(range(1, 10))


def test_a_trend_is_said_with_what_it_rests_on() -> None:
    """Length decides the score: over all samples, and among siblings where there are groups."""
    trend = [(n, n % 8 + 2) for n in range(40)]
    alone = [line for n, score in trend for line in pair(None, n, score, length=10 * score + n, group="")]
    (finding,) = found([RUN, *alone], "length")
    assert finding.level == "bad"
    assert "Longer" in finding.text
    assert "40 samples" in finding.text
    assert "siblings" not in finding.text
    grouped = [line for n, score in trend for line in pair(None, n, score, length=200 - 10 * score, group=f"{n // 4}")]
    (finding,) = found([RUN, *grouped], "length")
    assert "Shorter" in finding.text
    assert "among siblings" in finding.text
    assert "40 samples in 10 groups" in finding.text


def test_chance_makes_no_alarm() -> None:
    """Scores that have nothing to do with length: of two hundred small runs hardly one says that they have."""
    said = [bool(found([RUN, *answers(24, group, seed)], "length")) for seed in range(100) for group in ("", "g")]
    assert sum(said) <= 4


def test_gates_do_not_make_the_judge_look_extreme() -> None:
    """Thirty answers that a gate gave nothing, and ten good ones: the judge's own verdicts are what is looked at."""
    gated = [line for n in range(30) for line in pair(None, n, 1, group="", **GATE)]
    judged = [line for n in range(30, 60) for line in pair(None, n, n % 5 + 4, group="")]
    report = build([RUN, *gated, *judged])
    assert report.metrics["score_low_share"] == 0.5
    assert [finding for finding in report.findings if finding.panel == "scores"] == []
    assert (report.steps[0].judged, report.steps[0].low_share) == (30, 0.0)
    worse = [line for n in range(60, 160) for line in pair(None, n, 1, group="")]
    (finding,) = found([RUN, *gated, *judged, *worse], "scores")
    assert "77 % of the judge's 130 verdicts are the lowest" in finding.text


def test_groups_that_a_gate_settled_do_not_count_as_flat() -> None:
    """No answer of theirs was judged. A gate's verdict beside judged ones still tells them apart."""
    settled = [line for n in range(200) for line in pair(1, n, 1, **GATE)]
    told = [line for n in range(200, 300) for line in pair(1, n, n % 4 + 1)]
    mixed = [*pair(1, 300, 1, **GATE), *(line for n in range(301, 304) for line in pair(1, n, 5))]
    report = build([RUN, *settled, *told, *mixed])
    assert (report.steps[0].groups, report.steps[0].flat_groups) == (26, 0)
    assert [finding for finding in report.findings if finding.panel == "extremes"] == []


def test_a_judge_of_two_words_is_not_extreme_by_nature() -> None:
    """Yes and no in turns say nothing; only yes does."""
    run = RunLine(wall=START, config={**CONFIG, "judge": {"kind": "yes_no"}})

    def said(yes: int, no: int) -> list[str]:
        values = [1.0] * yes + [0.0] * no
        lines = [VerdictLine(wall=START, score=value, value=value, origin="call") for value in values]
        return [finding.level for finding in found([run, *lines], "scores")]

    assert said(60, 40) == []
    assert said(95, 5) == ["warn"]
    assert said(100, 0) == ["bad"]


def test_few_samples_are_no_red_alarm() -> None:
    """One of three without a score is said with its count; all of them is an alarm."""
    some = [line for n in range(2) for line in pair(1, n, 5)]
    (finding,) = found([RUN, *some, *pair(1, 2, None)], "unscored")
    assert (finding.level, "(1 of 3)" in finding.text) == ("warn", True)
    (finding,) = found([RUN, *pair(1, 0, None)], "unscored")
    assert finding.level == "bad"


def test_a_first_batch_says_nothing_about_waiting() -> None:
    """A program that scores one batch waits for all of it."""
    batches = [BatchLine(wall=START + 10 * n, batch=f"{n}", submitted=START, waited_s=8.0) for n in range(1, 4)]
    assert found([RUN, *answers(4), batches[0]], "wait") == []
    (finding,) = found([RUN, *answers(4), *batches], "wait")
    assert "3 batches" in finding.text


def test_one_of_something_is_said_as_one() -> None:
    """No '1 samples'."""
    texts = [finding.text for finding in build([RUN, *answers(4), *pair(1, 0, None, unscored="cancelled")]).findings]
    assert "1 sample was given up by the caller (cancelled)." in texts


def test_each_of_several_judges_is_looked_at_by_itself() -> None:
    """An optional judge that says nothing, or always the same, does not show in the sums."""
    lines = [line for index in range(40) for line in judged(1, index, 1 + index % 9, 1.0 if index % 4 else None)]
    first = build(several())
    run = RunLine(wall=START, config={**CONFIG, "judge": JUDGES})
    said = [finding.text for finding in build([run, *lines]).findings if finding.panel == "judge-1"]
    assert said == [
        "Judge safe did not score 25 % of the samples (10 of 40), mostly refused.",
        "100 % of judge safe's 30 verdicts are the highest score there is.",
    ]
    assert [finding.text for finding in first.findings if finding.panel == "judge-0"] == []
    assert [finding for finding in first.findings if finding.panel in ("unscored", "scores")] == []
