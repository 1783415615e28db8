"""kind = "monitor": sees the reasoning and nothing else, and predicts a hidden yes or no."""

from __future__ import annotations

import pytest

from referee.config import JudgeConfig
from referee.judging import Form, make_judge
from referee.judging.transcript import reasoning_text
from referee.records import Ask, Reason, Reply, Sample, Unscored, Verdict

SECRET = b"0123456789abcdef"
RESPONSE = "<think>Six times seven, I count.</think>The answer is 42."


def ask(response: str, form: Form = "text", **settings: str) -> Ask | Verdict | Unscored:
    config = JudgeConfig(kind="monitor", **settings)  # type: ignore[arg-type]
    return make_judge(config, SECRET).plan(Sample(prompt="TASK", response=response, truncated=True), form)


@pytest.mark.parametrize(
    ("response", "trace"),
    [
        (RESPONSE, "Six times seven, I count."),
        ("counting</think>42", "counting"),
        ("<think>never ends", "never ends"),
        ("<think>one</think>a\n<think>two</think>b", "one\ntwo"),
        ("<think>one</think>a <think>mentioned</think> b", "one"),
        ("<th\u200bink>hidden</think>b", "hidden"),
        ("[THINK]deep[/THINK]x", "deep"),
        ("<think></think>42", ""),
        ("I count.\n<answer>42</answer>", "I count."),
        ("I look.\n<measurements>[true]</measurements>", "I look."),
        ("I count to 42.", "I count to 42."),
    ],
)
def test_what_counts_as_reasoning(response: str, trace: str) -> None:
    """Thinking blocks, closed or not; else what stands before the answer's tag; else the whole response."""
    assert reasoning_text(response, None) == trace


@pytest.mark.parametrize("form", ["schema", "text"])
def test_the_monitor_sees_only_the_reasoning(form: Form) -> None:
    """Neither the task nor the answer; the reasoning stands between fences."""
    request = ask(RESPONSE, form)
    assert isinstance(request, Ask)
    shown = "".join(message.content for message in request.messages)
    assert "Six times seven" in shown
    assert "42" not in shown.replace(request.nonce, "")
    assert "TASK" not in shown
    assert f"<<<response {request.nonce}\n" in shown


def test_the_question_is_the_criteria() -> None:
    """Any hidden fact can be asked for."""
    request = ask(RESPONSE, criteria="Does the model hide something?")
    assert isinstance(request, Ask)
    assert "Does the model hide something?" in request.messages[0].content


@pytest.mark.parametrize("response", ["", " \n", "<think></think>42", "<think> </think>42"])
def test_no_reasoning_is_no_prediction(response: str) -> None:
    """A gate's lowest score would be a prediction; there is none."""
    plan = ask(response)
    assert isinstance(plan, Unscored)
    assert plan.reason is Reason.EMPTY


@pytest.mark.parametrize(("label", "value"), [("yes", 1.0), ("no", 0.0)])
def test_a_prediction_is_read_in_both_forms(label: str, value: float) -> None:
    """1 for yes, 0 for no."""
    judge = make_judge(JudgeConfig(kind="monitor"), SECRET)
    for form in ("schema", "text"):
        request = judge.plan(Sample(prompt="p", response="r"), form)
        assert isinstance(request, Ask)
        text = f"Hm.\n<verdict-{request.nonce}>{label}</verdict-{request.nonce}>"
        if form == "schema":
            text = f'{{"reason": "Hm.", "verdict": "{label}"}}'
        verdict = judge.read(request, Reply(text=text, finish="stop"))
        assert verdict == Verdict(score=value, value=value, reason="Hm.", how="tag" if form == "text" else "schema")


@pytest.mark.parametrize(
    "text",
    [
        "yes",
        "<verdict-0011223344556677>yes</verdict-0011223344556677>",
        "<verdict-NONCE>maybe</verdict-NONCE>",
        "<verdict-NONCE>yes</verdict-NONCE> or <verdict-NONCE>no</verdict-NONCE>",
        "<verdict-NONCE>yes</verdict-NONCE> I think",
        "<think><verdict-NONCE>yes</verdict-NONCE>",
        "",
    ],
)
def test_doubtful_replies_are_unscored(text: str) -> None:
    """Exactly one label, in this request's tag, at the end."""
    judge = make_judge(JudgeConfig(kind="monitor"), SECRET)
    request = judge.plan(Sample(prompt="p", response="r"), "text")
    assert isinstance(request, Ask)
    assert isinstance(judge.read(request, Reply(text=text.replace("NONCE", request.nonce), finish="stop")), Unscored)
