"""Judges on a decision model: one request with typed questions, and probabilities read strictly."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from referee.config import JudgeConfig
from referee.judging import make_judge
from referee.records import Ask, Criterion, Failure, Reason, Reply, Sample, Unscored, Verdict
from referee.wire.decision import DECISION

SECRET = b"0123456789abcdef"
SAMPLE = Sample(prompt="What is 2 + 2?", response="<think>Easy.</think>It is 4.")
CRITERIA = (
    Criterion("It names the sum."),
    Criterion("It is rude.", weight=3.0, true_is="bad", name="rude"),
    Criterion("How short is it?", choices=("long", "fair", "short"), values=(0.0, 0.8, 1.0)),
    Criterion("The code runs.", may_not_apply=True),
)


def ask(sample: Sample = SAMPLE, **settings: Any) -> Ask:
    judge = make_judge(JudgeConfig(**{"api": "decision", "kind": "yes_no", **settings}), SECRET)
    [request] = next(judge.deliberate((sample,), "schema"))
    return request


def judged(answers: Any, sample: Sample = SAMPLE, **settings: Any) -> Verdict | Unscored:
    judge = make_judge(JudgeConfig(**{"api": "decision", "kind": "yes_no", **settings}), SECRET)
    deliberation = judge.deliberate((sample,), "schema")
    [request] = next(deliberation)
    text = answers if isinstance(answers, str) else json.dumps(answers)
    try:
        deliberation.send([request.read(request, Reply(text=text))])
    except StopIteration as stop:
        [verdict] = stop.value
        return verdict
    raise AssertionError("it asks more")


def noul(p: float) -> dict[str, Any]:
    return {"type": "noul", "noul": p}


def test_a_question_is_asked_about_the_texts_alone() -> None:
    """No instructions, no fences, no reasoning; the question is in words for records, and typed for the model."""
    request = ask(criteria="Is it right?")
    assert [(message.role, message.content) for message in request.messages[1:]] == [
        ("prompt", "What is 2 + 2?"),
        ("response", "It is 4."),
    ]
    [query] = request.queries
    assert "Is it right?" in query.text
    assert query.text in request.messages[0].content
    assert query.levels == ()


@given(st.floats(0, 1))
def test_a_yes_is_worth_its_probability(p: float) -> None:
    """And the entropy says how unsure it is."""
    verdict = judged({"answer": noul(p)})
    assert isinstance(verdict, Verdict)
    assert verdict.value == pytest.approx(p)
    assert verdict.uncertainty == pytest.approx(-sum(q * math.log(q) for q in (p, 1 - p) if q > 0), abs=1e-9)


def test_a_score_is_the_mean_of_its_levels() -> None:
    """On the judge's own scale, with the deviation of the value; each level has a description of its own."""
    request = ask(kind="score", low=1, high=5)
    assert len(request.queries[0].levels) == 5
    assert len(set(ask(kind="score").queries[0].levels)) == 10
    verdict = judged(
        {"score": {"type": "score", "probabilities": {"0": 0, "1": 0, "2": 0.5, "3": 0.5, "4": 0}}},
        kind="score",
        low=1,
        high=5,
    )
    assert isinstance(verdict, Verdict)
    assert (verdict.score, verdict.value, verdict.uncertainty) == (3.5, 0.625, 0.125)


def test_a_whole_rubric_is_one_request() -> None:
    """Values are probabilities or means of what choices are worth; what cannot apply does not count."""
    request = ask(kind="rubric", criterion=CRITERIA)
    assert [query.id for query in request.queries] == ["c1", "c2", "c3", "c4"]
    answers = {
        "c1": noul(0.9),
        "c2": noul(0.2),
        "c3": {"type": "score", "probabilities": {"0": 0.0, "1": 0.4, "2": 0.6}},
        "c4": {"type": "choice", "probabilities": {"yes": 0.1, "no": 0.1, "na": 0.8}},
    }
    verdict = judged(answers, kind="rubric", criterion=CRITERIA)
    assert isinstance(verdict, Verdict)
    assert [part.label for part in verdict.parts] == ["yes", "no", "short", "not applicable"]
    values = [part.verdict.value for part in verdict.parts[:3] if isinstance(part.verdict, Verdict)]
    assert values == pytest.approx([0.9, 0.2, 0.92])
    assert verdict.parts[3].weight == 0
    assert verdict.value == pytest.approx((0.9 + 3 * 0.8 + 0.92) / 5)
    assert verdict.uncertainty is not None
    answers["c4"] = {"type": "choice", "probabilities": {"yes": 0.3, "no": 0.6, "na": 0.1}}
    counted = judged(answers, kind="rubric", criterion=CRITERIA)
    assert isinstance(counted, Verdict)
    assert isinstance(counted.parts[3].verdict, Verdict)
    assert counted.parts[3].verdict.value == pytest.approx(1 / 3)


@pytest.mark.parametrize(
    ("answers", "reason"),
    [
        ({}, Reason.SCHEMA),
        ({"c1": noul(0.5)}, Reason.SCHEMA),
        ({"c1": noul(0.5), "c2": noul(0.5), "c3": noul(0.5)}, Reason.SCHEMA),
        ({"c1": noul(0.5), "c2": {"type": "noul"}}, Reason.SCHEMA),
        ({"c1": noul(0.5), "c2": 0.5}, Reason.SCHEMA),
        ({"c1": noul(0.5), "c2": noul(1.01)}, Reason.OUT_OF_RANGE),
        ({"c1": noul(0.5), "c2": noul(-0.5)}, Reason.OUT_OF_RANGE),
        ({"c1": noul(0.5), "c2": noul(math.nan)}, Reason.OUT_OF_RANGE),
        ({"c1": noul(0.5), "c2": noul(math.inf)}, Reason.OUT_OF_RANGE),
        ({"c1": noul(0.5), "c2": {"type": "noul", "noul": True}}, Reason.OUT_OF_RANGE),
        ({"c1": noul(0.5), "c2": {"type": "noul", "noul": "0.5"}}, Reason.OUT_OF_RANGE),
        ('{"c1": {"noul": 0.5}, "c1": {"noul": 0.5}, "c2": {"noul": 0.5}}', Reason.AMBIGUOUS),
        ('{"c1": {"noul": 0.1, "noul": 0.9}, "c2": {"noul": 0.5}}', Reason.AMBIGUOUS),
        ("[]", Reason.SCHEMA),
        ("", Reason.NO_VERDICT),
    ],
)
def test_an_answer_that_is_not_whole_is_unscored(answers: Any, reason: Reason) -> None:
    """Every question exactly once, every probability finite and from 0 to 1. One bad answer spoils them all."""
    verdict = judged(answers, kind="rubric", criterion=CRITERIA[:2])
    assert isinstance(verdict, Unscored)
    assert verdict.reason is reason


@pytest.mark.parametrize(
    ("shares", "reason"),
    [
        ({"0": 0.5, "1": 0.5}, Reason.SCHEMA),
        ({"0": 0.2, "1": 0.2, "2": 0.2, "3": 0.4}, Reason.SCHEMA),
        ({"0": 0.2, "1": 0.2, "2": 0.2}, Reason.SCHEMA),
        ({"0": 0.9, "1": 0.9, "2": 0.9}, Reason.SCHEMA),
        ({"0": 1.5, "1": -0.5, "2": 0.0}, Reason.OUT_OF_RANGE),
        ([0.2, 0.2, 0.6], Reason.SCHEMA),
        (None, Reason.SCHEMA),
    ],
)
def test_levels_must_be_those_that_were_offered(shares: Any, reason: Reason) -> None:
    """No other, none missing, and together 1 but for rounding."""
    verdict = judged({"score": {"type": "score", "probabilities": shares}}, kind="score", low=1, high=3)
    assert isinstance(verdict, Unscored)
    assert verdict.reason is reason


def test_rounded_probabilities_are_a_distribution() -> None:
    """Two decimals of ten levels may add up to 1.03."""
    shares = {str(number): 0.1 for number in range(10)} | {"0": 0.13}
    verdict = judged({"score": {"type": "score", "probabilities": shares}}, kind="score")
    assert isinstance(verdict, Verdict)
    assert 0 < verdict.value < 0.5


def test_many_answers_without_probability_are_no_distribution() -> None:
    """What rounding may make of a hundred answers is bounded: nothing is divided by a sum of 0."""
    grades = Criterion("How good is it?", choices=tuple(f"{number} of 100" for number in range(101)))
    sample = Sample(prompt="p", response="r", rubric=(grades,))
    verdict = judged({"c1": {"probabilities": {str(n): 0.0 for n in range(101)}}}, sample, kind="rubric")
    assert isinstance(verdict, Unscored)
    assert verdict.reason is Reason.SCHEMA


def test_the_key_holds_questions_and_worths() -> None:
    """Another sentence, choice or worth is another question; the guard's secret is not in it."""
    one = Criterion("How short?", choices=("long", "short"))
    others = [
        ask(kind="rubric", criterion=(Criterion("How long?", choices=("long", "short")),)),
        ask(kind="rubric", criterion=(Criterion("How short?", choices=("long", "brief")),)),
        ask(kind="rubric", criterion=(Criterion("How short?", choices=("long", "short"), values=(0.0, 0.5)),)),
        ask(kind="rubric", criterion=(one,), criteria="Be strict."),
        ask(Sample(prompt="p", response="r"), kind="rubric", criterion=(one,)),
    ]
    first = ask(kind="rubric", criterion=(one,))
    assert len({first.facets, *(other.facets for other in others)}) == len(others) + 1
    judge = make_judge(JudgeConfig(api="decision", kind="rubric", criterion=(one,)), b"another secret of 16")
    assert next(judge.deliberate((SAMPLE,), "schema"))[0].facets == first.facets


def test_gates_and_rules_need_no_question() -> None:
    """An empty answer is settled before anything is asked."""
    judge = make_judge(JudgeConfig(api="decision", kind="yes_no"), SECRET)
    with pytest.raises(StopIteration) as stop:
        next(judge.deliberate((Sample(prompt="p", response=" "),), "schema"))
    assert stop.value.value[0].how == "gate"


def test_an_answer_without_answers_keeps_its_request_id() -> None:
    """The provider's support asks for it."""
    found = DECISION.read(200, {"x-typesafe-request-id": "req-77"}, b"{}", 0.0)
    assert isinstance(found, Failure)
    assert found.request_id == "req-77"
