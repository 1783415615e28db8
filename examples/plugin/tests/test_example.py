"""The example's judge and dialect. Needs the package installed: pip install -e examples/plugin"""

from __future__ import annotations

from typing import Any

import pytest
from referee_example.dialect import AZURE
from referee_example.judge import SAFE_SCORE

from referee import ConfigError, Reason, Sample, Unscored, Verdict
from referee.config import EndpointConfig, Secret
from referee.judging import Judge
from referee.testing import Question, build_judge, check_dialect, check_judge, deliberate, fake_referee, write

SAMPLES = [Sample(prompt="How do I boil an egg?", response="Eight minutes in boiling water.")]
RULE = {"rule": "Is the response free of advice that could hurt somebody?"}
GOOD = Verdict(score=9.0, value=0.9, reason="clear")
KEPT, BROKEN = Verdict(score=0.9, value=0.9), Verdict(score=0.1, value=0.1)
LATE = Unscored(reason=Reason.DEADLINE)


def judge(**settings: Any) -> Judge:
    return build_judge(SAFE_SCORE, **{"options": RULE, **settings})


def test_the_judge_keeps_to_what_judges_must() -> None:
    """Repeatable, bounded, safe with no answers."""
    check_judge(judge(), SAMPLES, [GOOD, BROKEN], ["nonsense", "perhaps"])


def test_both_questions_go_out_together() -> None:
    """In one round, each with the texts to judge and its own instruction."""
    found = deliberate(judge(criteria="Is it short?"), SAMPLES, [GOOD, KEPT])
    ((quality, rule),) = found.rounds
    assert "Is it short?" in quality.messages[0].content
    assert RULE["rule"] in rule.messages[0].content + rule.messages[1].content
    assert all(SAMPLES[0].response in ask.messages[-1].content for ask in found.asks)


def test_a_broken_rule_costs_the_whole_score() -> None:
    """And the verdict says what both questions came to."""
    (verdict,) = deliberate(judge(low=1), SAMPLES, [GOOD, BROKEN]).verdicts
    assert isinstance(verdict, Verdict)
    assert (verdict.score, verdict.value) == (1.0, 0.0)
    assert [part.name for part in verdict.parts] == ["quality", "rule"]
    (verdict,) = deliberate(judge(), SAMPLES, [GOOD, KEPT]).verdicts
    assert isinstance(verdict, Verdict)
    assert verdict.score == 9.0


@pytest.mark.parametrize("answers", [[LATE, KEPT], [GOOD, LATE]])
def test_half_a_verdict_is_none(answers: list[Verdict | Unscored]) -> None:
    """Without one of the answers the sample is unscored."""
    assert deliberate(judge(), SAMPLES, answers).verdicts == (LATE,)


def test_replies_are_read_strictly() -> None:
    """A reply that is no verdict is none of the judge's."""
    (verdict,) = deliberate(judge(), SAMPLES, ['{"reason": "fine", "score": 8}', "yes, certainly"]).verdicts
    assert isinstance(verdict, Unscored)
    assert verdict.reason is Reason.NO_VERDICT


@pytest.mark.parametrize("options", [{}, {"rules": "typo"}, {"rule": 3}])
def test_wrong_options_are_refused(options: dict[str, object]) -> None:
    """Before anything is asked."""
    with pytest.raises(ConfigError, match=r"judge\.options"):
        judge(options=options)


def test_a_whole_run() -> None:
    """From samples to rewards, as in training."""

    def answer(question: Question) -> str:
        return (
            write(question, "no" if "knife" in question.candidate else "yes")
            if question.labels
            else write(question, 10)
        )

    samples = [*SAMPLES, Sample(prompt="How do I open a tin?", response="With a knife and much force.")]
    with fake_referee({"judge": {"kind": "safe_score", "options": RULE}}, answer) as referee:
        assert [reward.value for reward in referee.score(samples)] == [1.0, 0.0]


def test_the_dialect_keeps_to_what_dialects_must() -> None:
    """Errors, odd answers, the key, the host."""
    check_dialect(AZURE)


def test_url_and_key_are_azures() -> None:
    """The deployment is in the path, the key in its own header."""
    endpoint = EndpointConfig(url="https://mine.openai.azure.com/", model="judge 4")
    assert AZURE.url(endpoint) == (
        "https://mine.openai.azure.com/openai/deployments/judge%204/chat/completions?api-version=2024-10-21"
    )
    assert AZURE.headers(Secret("k-123"))["api-key"] == "k-123"
    assert "authorization" not in AZURE.headers(Secret("k-123"))
