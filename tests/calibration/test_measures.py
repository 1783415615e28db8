"""Measures against tables worked by hand, and against a simulated population whose errors are known."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from tests.calibration.population import calibrated, referee_with, rows_of, write, yes_and_no
from tests.contracts.group_judges import KIND, registered

from referee.calibration import Calibration, Row, as_data, calibrate, common_of, compare
from referee.calibration.checks import Evidence, length, level_of, position
from referee.calibration.findings import findings, legend
from referee.calibration.measures import Common, Measures, measure
from referee.calibration.ratings import Rater, Rating, raters
from referee.calibration.shape import Finding
from referee.calibration.shape import Part as ShownPart
from referee.calibration.truth import Kind, Truth
from referee.config import Config, JudgeConfig
from referee.records import Part, Reason, Reward, Settled, Term, Unscored, Verdict
from referee.stats import Estimate
from referee.testing import Question


def rater(kind: Kind, human: Sequence[float | None], judged: Sequence[float | None], **truth: Any) -> Rater:
    said = tuple(Rating(value, "" if value is not None else "timeout") for value in judged)
    return Rater(
        name="judge",
        what="judge",
        judge="judge",
        truth=Truth(kind=kind, values=tuple(human), **truth),
        said=said,
        keys=tuple((place, "") for place in range(len(said))),
    )


def alone(count: int) -> Common:
    return Common(range(count), range(count))


def table(*cells: tuple[float, float, int]) -> tuple[list[float], list[float]]:
    """Columns with as many rows of each (human, judged)."""
    return [a for a, _, n in cells for _ in range(n)], [b for _, b, n in cells for _ in range(n)]


def test_yes_and_no_by_a_table_worked_by_hand() -> None:
    """20 yes-yes, 5 yes-no, 10 no-yes, 15 no-no: accuracy 0.7, kappa 0.4, the textbook's."""
    human, judged = table((1, 0.9, 20), (1, 0.2, 5), (0, 0.8, 10), (0, 0.1, 15))
    found = measure(rater("binary", human, judged), alone(50), 0)
    assert found.accuracy.value == pytest.approx(0.7)
    assert found.kappa.value == pytest.approx(0.4)
    assert found.sensitivity.value == pytest.approx(0.8)
    assert found.specificity.value == pytest.approx(0.6)
    assert found.confusion is not None
    assert found.confusion.counts == ((15, 10), (5, 20))
    assert found.bias.value == pytest.approx((20 * -0.1 + 5 * -0.8 + 10 * 0.8 + 15 * 0.1) / 50)
    # Of 625 pairs of a yes and a no, the yes has the higher value in 20 * 25 + 5 * 15 of them.
    assert found.roc_auc.value == pytest.approx((20 * 25 + 5 * 15) / 625)
    for estimate in (found.accuracy, found.kappa, found.roc_auc, found.bias, found.spearman, found.kendall, found.ece):
        assert estimate.low is not None
        assert estimate.value is not None
        assert estimate.high is not None
        assert estimate.low <= estimate.value <= estimate.high


def test_scores_are_compared_on_their_scale() -> None:
    """Off by one counts little for kappa; the matrix is of the judge's own scores."""
    human, judged = table((0.0, 0.0, 5), (0.5, 0.75, 5), (1.0, 1.0, 5), (0.25, 0.25, 5))
    found = measure(rater("ordinal", human, judged, low=1.0, high=5.0, levels=(1, 2, 3, 4, 5)), alone(20), 0)
    assert found.accuracy.value == pytest.approx(0.75)
    assert found.within_one.value == 1.0
    assert found.kappa.value is not None
    assert found.kappa.value > 0.9
    assert found.confusion is not None
    assert found.confusion.labels == (1, 2, 3, 4, 5)
    assert found.confusion.counts[2][3] == 5


def test_rows_without_a_verdict_count_neither_for_nor_against() -> None:
    """They are counted with their reasons, and every measure is of the others."""
    human, judged = table((1, 0.9, 10), (0, 0.1, 10))
    whole = measure(rater("binary", human, judged), alone(20), 0)
    missing = measure(rater("binary", [*human, 1, 1, None], [*judged, None, None, 0.5]), alone(23), 0)
    assert (missing.labelled, missing.n, missing.unscored, missing.reasons) == (22, 20, 2, {"timeout": 2})
    assert missing.kappa == whole.kappa
    assert missing.accuracy == whole.accuracy


def test_preferences_are_pairs_with_ties_half() -> None:
    """Two contests: one right, one tie and one wrong pair."""
    human, judged = [1.0, 0.0, 0.0, 1.0, 0.0], [0.8, 0.2, 0.8, 0.1, 0.9]
    found = measure(rater("preference", human, judged), Common("aaabb", "aaabb"), 0)
    assert found.n == 3
    assert found.accuracy.value == pytest.approx(0.5)
    assert found.kappa.value == pytest.approx(0.0)
    assert found.best.value == 0.0  # a tie at the top is no win


def test_answers_to_one_prompt_count_as_one_draw() -> None:
    """The same rows in few prompts have a wider interval."""
    human, judged = table((1, 0.9, 30), (1, 0.2, 10), (0, 0.8, 10), (0, 0.1, 30))
    found = measure(rater("binary", human, judged), alone(80), 0)
    grouped = measure(rater("binary", human, judged), Common(range(80), [n // 5 for n in range(80)]), 0)
    assert grouped.prompts == 16
    assert _width(grouped) > _width(found)


def _width(found: Measures) -> float:
    assert found.accuracy.high is not None
    assert found.accuracy.low is not None
    return found.accuracy.high - found.accuracy.low


def test_the_same_seed_gives_the_same_intervals() -> None:
    """And another seed others."""
    human, judged = table((1, 0.9, 13), (1, 0.4, 8), (0, 0.7, 6), (0, 0.1, 15))
    first, again, other = (measure(rater("binary", human, judged), alone(42), seed) for seed in (3, 3, 4))
    assert first == again
    assert first.spearman != other.spearman


def test_one_label_only_is_said_and_not_a_number() -> None:
    """Kappa of nothing but yes is not defined."""
    found = measure(rater("binary", [1.0] * 8, [0.9] * 8), alone(8), 0)
    assert found.kappa.value is None
    assert found.kappa.reason == "one label only"


def by_check(found: Sequence[Finding]) -> dict[str, Finding]:
    return {finding.check: finding for finding in found}


def test_a_population_is_recovered(tmp_path: Path) -> None:
    """Sensitivity, specificity and the true share are within their intervals, and nothing else is found."""
    rows = yes_and_no(300, sensitivity=0.9, specificity=0.8, share=0.4)
    more = yes_and_no(400, sensitivity=0.9, specificity=0.8, share=0.4, seed=2)
    unlabelled = [
        {**row, "label": None, "prompt": f"other {n}", "response": f"{row['response']}u"} for n, row in enumerate(more)
    ]
    found, _ = calibrated(rows_of(write(tmp_path / "in.jsonl", [*rows, *unlabelled])), kind="yes_no")
    measures = found.measures
    assert (measures.n, measures.labelled, measures.unscored) == (300, 300, 0)
    for estimate, true in ((measures.sensitivity, 0.9), (measures.specificity, 0.8)):
        assert estimate.low is not None
        assert estimate.high is not None
        assert estimate.low <= true <= estimate.high
    corrected = found.corrected
    assert corrected is not None
    assert (corrected.labelled, corrected.unlabelled) == (300, 400)
    for mean in (corrected.prediction_powered, corrected.rogan_gladen):
        assert mean is not None
        assert mean.low is not None
        assert mean.high is not None
        assert mean.low <= 0.4 <= mean.high
        assert mean.high - mean.low < 0.2
    said = by_check(found.findings)
    assert said["agreement"].level == "good"
    assert not said.keys() & {"length", "position", "unscored"}
    assert found.cost_per_1000 is not None
    assert found.cost_per_1000 > 0


def test_a_judge_that_knows_nothing_is_no_better_than_chance(tmp_path: Path) -> None:
    """Whatever it says, half of it is wrong."""
    rows = yes_and_no(120, sensitivity=0.5, specificity=0.5)
    found, _ = calibrated(rows_of(write(tmp_path / "in.jsonl", rows)), kind="yes_no")
    finding = by_check(found.findings)["agreement"]
    assert finding.level == "bad"
    assert "chance" in finding.text


def test_a_generous_judge_is_called_generous(tmp_path: Path) -> None:
    """And the worst disagreements are rows it let pass, with both reasons."""
    rows = yes_and_no(160, sensitivity=1.0, specificity=0.4, why="it is wrong")
    found, _ = calibrated(rows_of(write(tmp_path / "in.jsonl", rows)), kind="yes_no")
    assert "Too generous" in by_check(found.findings)["bias"].text
    worst = found.disagreements[0]
    assert (worst.human, worst.judge > 0.5) == (0.0, True)
    assert worst.human_why == "it is wrong"
    assert worst.judge_why


def test_a_share_of_nothing_is_as_far_from_a_half_as_can_be() -> None:
    """A value of 0.0 is a value; without an interval nothing is called good."""
    assert level_of(Estimate(0.0, 0.0, 0.1), 0.5, 0.05, 0.15) == "bad"
    assert level_of(Estimate(0.5), 0.5, 0.05, 0.15) == "warn"


def test_preferences_say_nothing_of_length(tmp_path: Path) -> None:
    """Chosen or not is no value on the judge's scale."""
    rows = [
        {"prompt": f"p{n}", "chosen": f"[[quality=6]] {'long ' * (n % 9)}", "rejected": f"[[quality=5]] {n}"}
        for n in range(30)
    ]
    found, _ = calibrated(rows_of(write(tmp_path / "in.jsonl", rows)), kind="score")
    assert "length" not in by_check(found.findings)


def lengthy(count: int, gain: float, seed: int = 1) -> list[dict[str, Any]]:
    """Two answers to each prompt, one long; the judge adds `gain` points to the long one, people do not."""
    chance = random.Random(seed)
    found = []
    for number in range(count):
        true, long = chance.randint(2, 8), number % 2 == 1
        quality = max(1, min(10, round(true + gain * long + chance.gauss(0, 0.7))))
        text = f"[[quality={quality}]] n{number} " + "word " * (60 if long else 6)
        found.append({"prompt": f"q{number // 2}", "response": text, "label": true})
    return found


@pytest.mark.parametrize(("gain", "level"), [(0.0, "good"), (2.0, "bad")])
def test_length_that_earns_credit_is_found_and_only_that(tmp_path: Path, gain: float, level: str) -> None:
    """A judge that pays two points for length, and one that does not."""
    found, _ = calibrated(rows_of(write(tmp_path / "in.jsonl", lengthy(120, gain))), kind="score")
    assert by_check(found.findings)["length"].level == level


def test_a_cut_elsewhere_is_offered_where_order_is_right(tmp_path: Path) -> None:
    """People say yes from 8 on, the judge from 6: it orders well and draws the line too low."""
    rows = [
        {"prompt": f"q{n}", "response": f"[[quality={n % 10 + 1}]] n{n}", "label": n % 10 + 1 >= 8} for n in range(120)
    ]
    found, _ = calibrated(rows_of(write(tmp_path / "in.jsonl", rows)), kind="score")
    assert found.measures.roc_auc.value == 1.0
    assert "draws the line elsewhere" in by_check(found.findings)["cut"].text


def test_a_judge_of_groups_is_measured_by_order_within_prompts(tmp_path: Path) -> None:
    """Its value is relative to siblings, so labels of one prompt are compared with each other only."""
    rows = [
        {"prompt": f"q{n // 4}", "response": f"[[quality={n % 4 + 2}]] n{n}", "label": 100 + n % 4, "id": f"r{n}"}
        for n in range(40)
    ]
    with registered():
        found, _ = calibrated(rows_of(write(tmp_path / "in.jsonl", rows)), kind=KIND)
    assert found.measures.kind == "preference"
    assert (found.measures.n, found.measures.accuracy.value) == (60, 1.0)


def test_criteria_are_measured_one_by_one_and_together(tmp_path: Path) -> None:
    """The judge finds marks in a response; people agree on one criterion and not on the other."""
    rows = []
    for n in range(60):
        kind, brief = n % 2 == 0, n % 3 == 0
        response = f"{'#kind ' if kind else ''}{'#brief ' if brief else ''}n{n}"
        labels = {"kind": kind, "Is it #brief?": brief if n % 4 else not brief}
        rows.append({"prompt": f"q{n}", "response": response, "labels": labels})
    criteria = [{"text": "Is it #kind?", "name": "kind"}, {"text": "Is it #brief?", "name": "brief"}]
    found, _ = calibrated(rows_of(write(tmp_path / "in.jsonl", rows)), kind="rubric", criterion=criteria)
    parts = {part.name: part.measures for part in found.parts}
    assert parts["kind"].kappa.value == 1.0
    assert parts["Is it #brief?"].accuracy.value == pytest.approx(0.75)
    assert found.measures.n == 120
    assert found.measures.accuracy.value == pytest.approx(0.875)
    assert any(finding.check == "criterion" and "brief" in finding.text for finding in found.findings)


def test_by_a_column_each_value_has_its_own_agreement(tmp_path: Path) -> None:
    """A judge that is good at maths and useless at law."""
    maths = yes_and_no(60, sensitivity=1.0, specificity=1.0, topic="maths")
    law = [{**row, "prompt": f"law {n}"} for n, row in enumerate(yes_and_no(60, 0.5, 0.5, seed=5, topic="law"))]
    found, _ = calibrated(rows_of(write(tmp_path / "in.jsonl", [*maths, *law]), by=("topic",)), kind="yes_no")
    parts = {part.name: part.measures for part in found.parts}
    assert parts["maths"].accuracy.value == 1.0
    assert any("Worse at topic = law" in finding.text for finding in found.findings)


def comparisons(first_wins: float, count: int = 60) -> list[Settled]:
    """Pairs of samples, each compared in both orders; the one shown first wins with this chance."""
    chance = random.Random(2)
    found = []
    for number in range(count):
        won = [chance.random() < first_wins for _ in range(2)]
        for side in range(2):
            labels = ("won" if won[side] else "lost", "lost" if won[1 - side] else "won")
            parts = tuple(
                Part(name=f"{number}-{1 - side}", text=text, label=label, verdict=Verdict(score=1.0, value=1.0))
                for text, label in zip(("shown first", "shown second"), labels, strict=True)
            )
            found.append(Settled(verdict=Verdict(score=0.5, value=0.5, how="pairwise", parts=parts)))
    return found


@pytest.mark.parametrize(("chance", "level"), [(0.5, "good"), (0.85, "bad")])
def test_a_judge_that_favours_the_first_is_found(tmp_path: Path, chance: float, level: str) -> None:
    """From the parts of pairwise verdicts; a fair one is called fair."""
    settled = comparisons(chance)
    rows = rows_of(
        write(
            tmp_path / "in.jsonl",
            [
                {"id": f"{n // 2}-{n % 2}", "prompt": f"q{n // 2}", "response": f"r{n}", "label": n % 2}
                for n in range(120)
            ],
        )
    )
    with referee_with() as referee:
        evidence = Evidence(
            referee=referee,
            judge=0,
            rows=rows,
            settled=settled,
            rater=rater("preference", [row.label for row in rows], [0.5] * 120),  # type: ignore[misc]
            common=common_of(rows),
            seed=0,
        )
        (finding,) = position(evidence)
        assert finding.level == level
        assert all(found.level == "good" for found in length(evidence))


def test_the_cheapest_within_noise_of_the_best_is_marked(tmp_path: Path) -> None:
    """Of three judges the dear one is best by a hair, the cheap one as good within noise, the cheapest much worse."""
    rows = rows_of(write(tmp_path / "in.jsonl", yes_and_no(200, sensitivity=0.9, specificity=0.9)))
    found, whole = calibrated(rows, kind="yes_no")
    human = whole.truth.values

    def judge(name: str, wrong: set[int], price: float) -> Any:
        said = tuple(Rating((1.0 - (human[n] or 0.0)) if n in wrong else human[n], "", "") for n in range(len(human)))
        return replace(found, name=name, cost_per_1000=price), replace(whole, name=name, said=said)

    dear = judge("dear", set(range(0, 200, 20)), 9.0)
    cheap = judge("cheap", set(range(1, 200, 18)), 1.0)
    poor = judge("poor", set(range(0, 200, 2)), 0.1)
    comparison = compare([dear[0], cheap[0], poor[0]], [dear[1], cheap[1], poor[1]], common_of(rows), 0)
    assert comparison is not None
    assert comparison.best == "dear"
    assert comparison.cheapest == "cheap"
    assert {one.name: one.within_noise for one in comparison.others} == {"cheap": True, "poor": False}


def test_where_rows_show_nothing_a_judge_is_neither_worse_nor_within_noise(tmp_path: Path) -> None:
    """Four prompts: no interval of the difference, so that the cheaper judge is not recommended. Equal ones are
    equal."""
    rows = rows_of(write(tmp_path / "in.jsonl", yes_and_no(8, 1.0, 1.0)))
    found, whole = calibrated(rows, kind="yes_no")
    wrong = replace(whole, name="wrong", said=(Rating(0.0), *whole.said[1:-1], Rating(1.0)))
    same = replace(whole, name="same")
    judges = [replace(found, name=name, cost_per_1000=price) for name, price in (("judge", 9.0), ("wrong", 1.0))]
    comparison = compare(
        [*judges, replace(found, name="same", cost_per_1000=9.0)], [whole, wrong, same], common_of(rows), 0
    )
    assert comparison is not None
    assert {one.name: one.within_noise for one in comparison.others} == {"wrong": None, "same": True}
    assert comparison.cheapest != "wrong"


def test_judges_to_whom_labels_are_of_different_kinds_are_compared_by_order(tmp_path: Path) -> None:
    """Yes and no to one, an order to the other: their kappas are not one measure."""
    rows = rows_of(write(tmp_path / "in.jsonl", yes_and_no(80, 0.9, 0.9)))
    found, whole = calibrated(rows, kind="yes_no")
    other = replace(whole, name="list", truth=replace(whole.truth, kind="preference"))
    ordered = replace(found, name="list", measures=measure(other, common_of(rows), 0))
    comparison = compare([found, ordered], [whole, other], common_of(rows), 0)
    assert comparison is not None
    assert comparison.by == "order"
    [one] = comparison.others
    assert (one.difference.value, one.within_noise) == (0.0, True)
    assert ordered.measures.order.value == found.measures.order.value
    all_ = Calibration(
        rows=80,
        labelled=80,
        unlabelled=0,
        prompts=40,
        preferences=False,
        seed=0,
        judges=(found, ordered),
        comparison=comparison,
    )
    assert "Cohen's" in legend(all_)
    assert "2 * accuracy - 1" in legend(all_)
    assert "order_difference" in as_data(all_)["comparison"]["others"][0]


def test_labels_of_one_kind_measure_no_agreement() -> None:
    """Kappa would be 0 whatever the judge says, which is not chance."""
    whole = rater("binary", [1.0] * 30, [0.9] * 25 + [0.1] * 5)
    found = measure(whole, alone(30), 0)
    assert (found.kappa.value, found.kappa.reason) == (None, "one label only")
    first = next(iter(findings(whole, found, (), "yes_no")))
    assert "one label only" in first.text
    assert "chance" not in first.text


def test_a_check_of_ones_own_may_ask_the_referee(tmp_path: Path) -> None:
    """It is given the rows, what was said of them and the Referee, and what it returns is among the findings."""
    rows = rows_of(write(tmp_path / "in.jsonl", yes_and_no(10)))

    def again(evidence: Evidence) -> list[Finding]:
        rewards = evidence.referee.score([evidence.rows[0].sample])
        return [Finding(check="again", level="good", text=f"{rewards[0].scored} of {len(evidence.settled)}")]

    with referee_with(kind="yes_no") as referee:
        ((found, _),) = calibrate(referee, rows, checks=[again])
    assert by_check(found.findings)["again"].text == "True of 10"


def test_members_of_a_jury_are_measured_by_themselves(tmp_path: Path) -> None:
    """From the parts that have their names: one is always right, the other never."""
    rows = rows_of(write(tmp_path / "in.jsonl", yes_and_no(20)))
    members = tuple(JudgeConfig(name=name, kind="yes_no") for name in ("wise", "fool"))
    config = Config(judge=(JudgeConfig(name="panel", kind="yes_no", uses=members),))

    def parts(place: int) -> tuple[Part, ...]:
        right = rows[place].label is True
        return tuple(
            Part(name=name, verdict=Verdict(score=1.0, value=float(right == (name == "wise"))))
            for name in ("wise", "fool")
        )

    found = {one.name: one for one in raters(config, rows, said_by(rows, parts), None, str)}
    assert [one.what for one in found.values()] == ["judge", "juror", "juror"]
    assert measure(found["wise"], common_of(rows), 0, range(20)).accuracy.value == 1.0
    assert measure(found["fool"], common_of(rows), 0, range(20)).accuracy.value == 0.0


def said_by(rows: Sequence[Row], parts: Callable[[int], tuple[Part, ...]]) -> list[Reward]:
    """Rewards of one judge whose verdicts are made of these parts."""
    found = []
    for place, row in enumerate(rows):
        settled = Settled(verdict=Verdict(score=0.5, value=0.5, how="cascade", parts=parts(place)))
        term = Term("panel", 0.5, 1.0, settled)
        found.append(Reward(index=place, id=row.sample.id, group="", value=0.5, settled=settled, terms=(term,)))
    return found


def test_a_member_that_was_asked_about_few_rows_reads_labels_as_all_rows_do(tmp_path: Path) -> None:
    """Scores of 0 and 1 of ten are low ones, also where a cascade's last member was asked about no others."""
    rows = rows_of(
        write(
            tmp_path / "in.jsonl",
            [{"prompt": f"q{n}", "response": f"a{n}", "label": label} for n, label in enumerate([0, 1, 9, 10])],
        )
    )
    members = tuple(JudgeConfig(name=name, kind="score", low=0, high=10) for name in ("cheap", "strong"))
    config = Config(judge=(JudgeConfig(name="panel", kind="cascade", uses=members),))

    def parts(place: int) -> tuple[Part, ...]:
        given = Verdict(score=1.0, value=0.1)
        return tuple(Part(name=name, verdict=given) for name in ("cheap", "strong")[: 2 if place < 2 else 1])

    found = {one.name: one for one in raters(config, rows, said_by(rows, parts), None, str)}
    assert (found["strong"].truth.kind, found["strong"].truth.values) == ("ordinal", (0.0, 0.1))


def test_jurors_are_found_inside_repeats_and_cascades(tmp_path: Path) -> None:
    """What each said first; a criterion of the same name is none of them."""
    rows = rows_of(write(tmp_path / "in.jsonl", yes_and_no(20)))
    members = tuple(JudgeConfig(name=name, kind="yes_no") for name in ("wise", "fool"))
    config = Config(judge=(JudgeConfig(name="panel", kind="jury", uses=members),))

    def parts(place: int) -> tuple[Part, ...]:
        right = float(rows[place].label is True)
        jurors = (
            Part(name="wise", verdict=Verdict(score=right, value=right)),
            Part(name="fool", verdict=Verdict(score=0.0, value=1 - right)),
        )
        answers = [Verdict(score=0.5, value=0.5, how="jury", parts=order) for order in (jurors, jurors[::-1])]
        return tuple(Part(name=f"answer {number}", verdict=answer) for number, answer in enumerate(answers, 1))

    found = {one.name: one for one in raters(config, rows, said_by(rows, parts), None, str)}
    assert measure(found["wise"], common_of(rows), 0).accuracy.value == 1.0
    assert measure(found["fool"], common_of(rows), 0).accuracy.value == 0.0


def test_parts_have_every_measure() -> None:
    """Of a juror, a criterion or a value of a column nothing is called undefined that is not."""
    human, judged = table((1, 0.9, 20), (1, 0.2, 5), (0, 0.8, 10), (0, 0.1, 15))
    found = measure(rater("binary", human, judged), alone(50), 0, range(50))
    for estimate in (found.spearman, found.kendall, found.ece):
        assert (estimate.low is not None, estimate.reason) == (True, "")
    assert found.order.reason != "not defined for these labels"


def test_without_an_interval_nothing_is_called_agreement() -> None:
    """Four right answers to one prompt are one draw."""
    whole = rater("binary", [1.0, 0.0, 1.0, 0.0], [0.9, 0.1, 0.9, 0.1])
    found = measure(whole, Common(range(4), ["same"] * 4), 0)
    assert found.kappa.value == 1.0
    [first] = [one for one in findings(whole, found, (), "yes_no") if one.check == "agreement"]
    assert first.level == "warn"
    assert "Not known" in first.text


def test_a_wide_interval_is_not_called_good_agreement() -> None:
    """Kappa 0.97 of five scores: the interval begins at 0.16, far below what is called fair."""
    whole = rater("ordinal", [0.9, 0.1, 1.0, 0.5, 0.0], [0.8, 0.2, 0.9, 0.6, 0.0])
    found = measure(whole, Common(range(5), ["a", "a", "a", "b", "a"]), 0)
    assert found.kappa.value is not None
    assert found.kappa.low is not None
    assert found.kappa.value > 0.9
    assert 0.0 < found.kappa.low < 0.4
    [first] = [one for one in findings(whole, found, (), "score") if one.check == "agreement"]
    assert first.level == "warn"
    assert "too few labels" in first.text
    assert "labelled prompts would give" in first.advice


def test_rows_with_the_same_answer_are_no_disagreements(tmp_path: Path) -> None:
    """0.8 for what people call yes agrees with them; scores are apart by any distance."""
    rows = [*yes_and_no(20, 1.0, 1.0), {"prompt": "odd", "response": "[[quality=8]]", "label": "no"}]
    for given, shown in ((rows, ["[[quality=8]]"]), (rows[:-1], [])):
        judge, _ = calibrated(rows_of(write(tmp_path / "rows.jsonl", given)), kind="yes_no")
        assert [each.response for each in judge.disagreements] == shown


def test_a_member_that_judges_only_what_is_hard_is_not_called_worse() -> None:
    """The last one of a cascade is asked about rows of which the first was unsure."""
    whole = rater("binary", [1.0] * 50 + [0.0] * 50, [0.9] * 50 + [0.1] * 50)
    hard = measure(rater("binary", [1.0, 0.0] * 20, [0.9] * 40), alone(40), 0)
    juror = ShownPart(name="strong", what="juror", measures=hard)
    every = ShownPart(name="law", what="by", column="topic", measures=hard)
    found = findings(whole, measure(whole, alone(100), 0), (juror, every), "cascade")
    assert [one.check for one in found if one.text.startswith("Worse")] == ["by"]


def test_what_a_row_costs_is_of_rows_that_were_asked(tmp_path: Path) -> None:
    """Neither those that the end of the budget left out, nor as nothing what a cache does not tell."""
    rows = rows_of(write(tmp_path / "in.jsonl", yes_and_no(4)))
    with referee_with(kind="yes_no") as referee:
        config = referee.config
    unpaid = Settled(verdict=Unscored(reason=Reason.BUDGET))
    there = Verdict(score=1.0, value=1.0)

    def cost(*settled: Settled) -> float | None:
        terms = [(Term("judge", 1.0, 1.0, one),) for one in settled]
        rewards = [Reward(index=0, id="", group="", value=None, settled=one[0].settled, terms=one) for one in terms]
        ((found, _),) = calibrate(config, rows, rewards=rewards)
        return found.cost_per_1000

    paid = Settled(verdict=there, origin="call", cost=0.002)
    assert cost(paid, paid, unpaid, unpaid) == pytest.approx(2.0)
    assert cost(paid, Settled(verdict=there, origin="cache", saved=0.004), unpaid, unpaid) == pytest.approx(3.0)
    assert cost(paid, Settled(verdict=there, origin="cache"), unpaid, unpaid) is None


def likes_the_first(question: Question) -> str:
    """A pairwise judge that picks the clearly better response, and the one shown first where they are close."""
    shown = re.findall(r"Response ([A-Z]{6}):\n<<<.*?\[\[quality=(\d+)\]\]", question.messages[-1].text, re.DOTALL)
    (first, mine), (second, theirs) = shown
    best = second if int(theirs) > int(mine) + 1 else first
    return json.dumps({"reason": f"because of {best}", "verdict": best})


def test_pairs_of_a_pairwise_judge_are_measured_and_its_favour_found(tmp_path: Path) -> None:
    """Shown in both orders: close pairs become ties, the favour for the first is said, agreement is of pairs."""
    rows = [
        {"prompt": f"q{n}", "chosen": f"[[quality={5 + n % 3}]] a{n}", "rejected": f"[[quality=4]] b{n}"}
        for n in range(30)
    ]
    with referee_with(likes_the_first, kind="pairwise") as referee:
        ((found, _),) = calibrate(referee, rows_of(write(tmp_path / "in.jsonl", rows)))
    assert (found.measures.kind, found.measures.n) == ("preference", 30)
    assert found.measures.accuracy.value == pytest.approx((20 + 10 / 2) / 30)
    finding = by_check(found.findings)["position"]
    assert finding.level in ("warn", "bad")
    assert finding.estimate is not None
    assert finding.estimate.value == pytest.approx((20 + 2 * 10) / 60)


def by_place(bonus: int) -> Callable[[Question], str]:
    """A listwise judge that adds `bonus` points to the response shown first."""

    def answer(question: Question) -> str:
        shown = re.findall(r"Response ([A-Z]{6}):\n<<<.*?\[\[quality=(\d+)\]\]", question.messages[-1].text, re.DOTALL)
        scores = [int(quality) + bonus * (place == 0) for place, (_, quality) in enumerate(shown)]
        given = [{"label": name, "reason": "r", "score": score} for (name, _), score in zip(shown, scores, strict=True)]
        return json.dumps({"responses": given})

    return answer


@pytest.mark.parametrize(("bonus", "value"), [(0, 0.0), (2, -2 / 9)])
def test_what_a_place_in_a_list_is_worth_is_found(tmp_path: Path, bonus: int, value: float) -> None:
    """From the same responses in two orders: two points of nine for the first place, and nothing where it is fair."""
    rows = [
        {"prompt": f"q{n}", "chosen": f"[[quality={5 + n % 3}]] a{n}", "rejected": f"[[quality={2 + n % 3}]] b{n}"}
        for n in range(12)
    ]
    with referee_with(by_place(bonus), kind="listwise", permutations=2) as referee:
        ((found, _),) = calibrate(referee, rows_of(write(tmp_path / "in.jsonl", rows)))
    finding = by_check(found.findings)["position"]
    assert finding.level == ("bad" if bonus else "good")
    assert finding.estimate is not None
    assert finding.estimate.value == pytest.approx(value)
