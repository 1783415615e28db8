"""reference: compare with a known answer, by a label of two."""

from __future__ import annotations

import pytest

from referee.config import JudgeConfig
from referee.judging import Form, make_judge
from referee.records import Ask, Reason, Reply, Sample, Unscored, Verdict

JUDGE = make_judge(JudgeConfig(kind="reference"), b"0123456789abcdef")
SAMPLE = Sample(prompt="What is 2 + 2?", response="It is four.", reference="4")


def ask(form: Form) -> Ask:
    request = JUDGE.plan(SAMPLE, form)
    assert isinstance(request, Ask)
    return request


def test_question_and_known_answer_come_before_the_response() -> None:
    """Order: prompt, reference, response, how to reply; the judge is told to compare, not to solve."""
    system, user = (message.content for message in ask("schema").messages)
    places = [user.index(name) for name in ("<<<prompt", "<<<reference", "<<<response", '{"reason"')]
    assert places == sorted(places)
    assert "Do not solve the prompt yourself" in system


@pytest.mark.parametrize("missing", [None, "", " \n"])
@pytest.mark.parametrize("response", ["It is four.", ""])
def test_a_sample_without_reference_is_unscored(missing: str | None, response: str) -> None:
    """There is nothing to compare with: no call, no number, not even from a gate, and the detail names the field."""
    result = JUDGE.plan(Sample(prompt="p", response=response, reference=missing), "schema")
    assert isinstance(result, Unscored)
    assert result.reason is Reason.CONFIG
    assert "`reference`" in result.detail


@pytest.mark.parametrize(("label", "value"), [("correct", 1.0), ("incorrect", 0.0)])
def test_labels_are_read(label: str, value: float) -> None:
    """Both labels, in both forms."""
    schema, text = ask("schema"), ask("text")
    said = JUDGE.read(schema, Reply(text=f'{{"reason": "r", "verdict": "{label}"}}'))
    assert said == Verdict(score=value, value=value, reason="r", how="schema")
    tagged = JUDGE.read(text, Reply(text=f"r\n<verdict-{text.nonce}>{label.title()}</verdict-{text.nonce}>"))
    assert tagged == Verdict(score=value, value=value, reason="r", how="tag")


@pytest.mark.parametrize(
    "label", ["not correct", "partially correct", "correct.", "1", "yes", "CORRECT or incorrect", ""]
)
def test_other_labels_are_no_verdict(label: str) -> None:
    """The set is closed."""
    schema, text = ask("schema"), ask("text")
    said = JUDGE.read(schema, Reply(text=f'{{"reason": "r", "verdict": "{label}"}}'))
    tagged = JUDGE.read(text, Reply(text=f"<verdict-{text.nonce}>{label}</verdict-{text.nonce}>"))
    assert isinstance(said, Unscored)
    assert said.reason is Reason.SCHEMA
    assert isinstance(tagged, Unscored)
    assert tagged.reason is Reason.NO_VERDICT


def test_the_schema_offers_the_labels() -> None:
    """A closed enum, reason first."""
    schema = ask("schema").sampling.schema
    assert schema is not None
    assert list(schema["properties"]) == ["reason", "verdict"]
    assert schema["properties"]["verdict"]["enum"] == ["correct", "incorrect"]
