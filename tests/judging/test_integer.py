"""kind = "integer": the documents' contract. Any system prompt, the bare response, one integer as the whole reply."""

from __future__ import annotations

import pytest

from referee.config import JudgeConfig, load
from referee.errors import ConfigError
from referee.judging import Form, make_judge
from referee.records import Ask, Reason, Reply, Sample, Unscored, Verdict

SECRET = b"0123456789abcdef"
PROMPT = "You grade texts. Answer with 1 to 10, digits only.\n[user]\n{{response}} stays as it is."


def ask(config: JudgeConfig, response: str, form: Form = "text", rule: float = 0.0) -> Ask:
    plan = make_judge(config, SECRET).plan(Sample(prompt="p", response=response, rule_score=rule), form)
    assert isinstance(plan, Ask), plan
    return plan


def read(text: str, form: Form = "text", finish: str = "stop", refusal: str = "") -> Verdict | Unscored:
    judge = make_judge(JudgeConfig(kind="integer"), SECRET)
    request = judge.plan(Sample(prompt="p", response="r"), form)
    assert isinstance(request, Ask)
    return judge.read(request, Reply(text=text, finish=finish, refusal=refusal))


@pytest.mark.parametrize("form", ["schema", "text"])
def test_the_messages_are_the_system_prompt_and_the_response(form: Form) -> None:
    """Nothing is added: no fence, no rules, no reply format. Placeholders and headings in the prompt are its text."""
    request = ask(JudgeConfig(kind="integer", system_prompt=PROMPT), "two plus two is four", form)
    assert [(m.role, m.content) for m in request.messages] == [("system", PROMPT), ("user", "two plus two is four")]


def test_the_shipped_prompt_names_the_scale_and_takes_criteria() -> None:
    """Without a system prompt of one's own, ours is complete."""
    system = ask(JudgeConfig(kind="integer", high=5, criteria="Be brief."), "r").messages[0].content
    assert "from 1 to 5" in system
    assert "Be brief." in system
    assert "{{" not in system


def test_reasoning_is_shown_as_it_was_written_when_asked_for() -> None:
    """A judge of reasoning and tool calls needs their tags; control tokens of chat models are still broken."""
    text = "<think>I call it.</think>\n<tool_call>{}</tool_call><|im_end|>"
    shown = ask(JudgeConfig(kind="integer", view="full"), text).messages[1].content
    assert shown == "<think>I call it.</think>\n<tool_call>{}</tool_call>< |im_end|>"


@pytest.mark.parametrize(
    ("text", "score"), [("7", 7), (" 7\n", 7), ("10", 10), ("1", 1), ("<think>10? no</think>\n3", 3), ("\ufeff8", 8)]
)
@pytest.mark.parametrize("form", ["schema", "text"])
def test_an_integer_is_the_verdict(text: str, score: int, form: Form) -> None:
    """White space and the judge's own reasoning aside, the reply is the integer."""
    assert read(text, form) == Verdict(score=score, value=(score - 1) / 9, how="integer")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("7/10", Reason.NO_VERDICT),
        ("7.5", Reason.NO_VERDICT),
        ("7.0", Reason.NO_VERDICT),
        ("+7", Reason.NO_VERDICT),
        ("07", Reason.NO_VERDICT),
        ("７", Reason.NO_VERDICT),
        ("七", Reason.NO_VERDICT),
        ("**7**", Reason.NO_VERDICT),
        ("7.", Reason.NO_VERDICT),
        ("Score: 7", Reason.NO_VERDICT),
        ("最终评分 7", Reason.NO_VERDICT),
        ("The text claims 10.\n2", Reason.NO_VERDICT),
        ("7 8", Reason.NO_VERDICT),
        ("7\n8", Reason.NO_VERDICT),
        ("I cannot grade this.", Reason.NO_VERDICT),
        ("NaN", Reason.NO_VERDICT),
        ("0", Reason.OUT_OF_RANGE),
        ("11", Reason.OUT_OF_RANGE),
        ("-7", Reason.OUT_OF_RANGE),
        ("9" * 5000, Reason.OUT_OF_RANGE),
        ("", Reason.EMPTY),
        ("<think>7", Reason.NO_VERDICT),
    ],
)
@pytest.mark.parametrize("form", ["schema", "text"])
def test_anything_else_is_unscored(text: str, reason: Reason, form: Form) -> None:
    """No number is searched for in prose, none is rounded, none is clamped."""
    verdict = read(text, form)
    assert isinstance(verdict, Unscored)
    assert verdict.reason is reason or (form == "schema" and verdict.reason is Reason.SCHEMA)


def test_cut_and_refused_replies_are_unscored() -> None:
    """An integer in a cut reply may be the beginning of another."""
    cut, refused = read("1", finish="length"), read("7", refusal="Sorry.")
    assert isinstance(cut, Unscored)
    assert isinstance(refused, Unscored)
    assert (cut.reason, refused.reason) == (Reason.TRUNCATED, Reason.REFUSED)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"score": 7}', 7.0),
        ('{"score": 7.0}', 7.0),
        ('{"score": "7"}', Reason.SCHEMA),
        ('{"score": 7.5}', Reason.SCHEMA),
        ('{"score": true}', Reason.SCHEMA),
        ('{"score": 11}', Reason.OUT_OF_RANGE),
        ('{"score": 7, "reason": "x"}', Reason.SCHEMA),
        ('{"score": 1, "score": 10}', Reason.AMBIGUOUS),
        ('{"grade": 7}', Reason.SCHEMA),
        ('[{"score": 7}]', Reason.SCHEMA),
        ('Here: {"score": 7}', Reason.NO_VERDICT),
    ],
)
def test_a_schema_reply_is_read_as_strictly(text: str, expected: float | Reason) -> None:
    """One key, one integer; in text form a JSON object is no integer."""
    verdict = read(text, "schema")
    assert (verdict.score if isinstance(verdict, Verdict) else verdict.reason) == expected
    assert isinstance(read(text, "text"), Unscored)


def test_the_cache_key_knows_prompt_scale_and_text() -> None:
    """Another system prompt, scale or response is another request; the task's prompt, which is not shown, is not."""
    base = ask(JudgeConfig(kind="integer"), "r").facets
    assert base == ask(JudgeConfig(kind="integer"), "r").facets
    for other in (
        ask(JudgeConfig(kind="integer", system_prompt=PROMPT), "r"),
        ask(JudgeConfig(kind="integer", high=5), "r"),
        ask(JudgeConfig(kind="integer"), "other"),
        ask(JudgeConfig(kind="integer"), "r", "schema"),
    ):
        assert other.facets != base
    two = [ask(JudgeConfig(kind="integer", system_prompt=p), "r").facets for p in ("One.", "Two.")]
    assert two[0] != two[1]


def test_settings_that_do_not_go_together_are_refused() -> None:
    """A system prompt that nobody would see is an error, not a surprise."""
    for config in (
        JudgeConfig(kind="score", system_prompt="x"),
        JudgeConfig(kind="integer", system_prompt="x", criteria="y"),
        JudgeConfig(kind="integer", low=5, high=5),
    ):
        with pytest.raises(ConfigError):
            make_judge(config, SECRET)
    with pytest.raises(ConfigError, match="system_prompt"):
        make_judge(JudgeConfig(kind="integer", system_prompt="x"), SECRET, "{{response}}")
    assert load({"judge": {"kind": "integer", "system_prompt": "x"}}).judge[0].system_prompt == "x"


@pytest.mark.parametrize(("rule", "asked"), [(0.0, False), (-1.0, False), (0.1, True), (1.0, True)])
def test_only_samples_above_a_rule_score_are_asked(rule: float, asked: bool) -> None:
    """ask_above = 0: a wrong answer costs no call, and the judge adds nothing to it."""
    judge = make_judge(JudgeConfig(kind="integer", ask_above=0.0), SECRET)
    plan = judge.plan(Sample(prompt="p", response="r", rule_score=rule), "text")
    assert isinstance(plan, Ask) == asked
    if isinstance(plan, Verdict):
        assert (plan.score, plan.value, plan.how) == (0.0, 0.0, "gate")
