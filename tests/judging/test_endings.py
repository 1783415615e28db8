"""How a reply ended: only one that is known to be whole is read, in every kind and form."""

from __future__ import annotations

import pytest

from referee.config import JudgeConfig
from referee.judging import KINDS, Form, make_judge
from referee.records import Ask, Reason, Reply, Sample, Unscored, Verdict
from referee.wire import CHAT

CUT = [
    *("length", "LENGTH", "Length", "max_tokens", "MAX_TOKENS", "FinishReason.MAX_TOKENS", "model_length"),
    *("max_output_tokens", "abort", "aborted", "error", "insufficient_system_resource", "network_error", "cancelled"),
    *(
        "timeout",
        "time_limit",
        "not_finished",
        "preempted",
        "OTHER",
        "MALFORMED_FUNCTION_CALL",
        "null",
        "none",
        "unknown",
    ),
    *("load", "limit", "pause_turn", "incomplete", "stopped_early", "nonstop", "...", "x" * 10_000, "\x1b[2J", "2"),
]
REFUSED = [
    *("content_filter", "CONTENT_FILTER", "content-filter", "content_filtered", "refusal", "SAFETY", "safety"),
    *("RECITATION", "BLOCKLIST", "PROHIBITED_CONTENT", "SPII", "FinishReason.SAFETY", "guardrail_intervened"),
    "sensitive",
]
WHOLE = [
    *("stop", "STOP", "Stop", " stop ", "FinishReason.STOP", "FINISH_REASON_STOP", "eos", "eos_token", "end_turn"),
    *("stop_sequence", "STOP_SEQUENCE", "COMPLETE", "completed", "normal", "tool_calls"),
]
FORMS: tuple[Form, ...] = ("schema", "text")
ASKED = [(kind, form) for kind in KINDS for form in FORMS]
BARE = [("yes_no", "schema"), ("yes_no", "text"), ("integer", "text")]


def read(kind: str, form: Form, finish: str, *, bare: bool = False, tokens_out: int = 0) -> Verdict | Unscored:
    """A right reply of this kind that ended so. `bare`: for kind = "integer" in schema form, the number alone."""
    judge = make_judge(JudgeConfig(kind=kind, ask_again=0), b"0123456789abcdef")
    request = judge.plan(Sample(prompt="p", response="<think>r</think>r", reference="r"), form)
    assert isinstance(request, Ask)
    value = {"reference": '"correct"', "monitor": '"yes"'}.get(kind, "1")
    name = "score" if kind in ("score", "integer") else "verdict"
    text = f'{{"reason": "It is.", "{name}": {value}}}'
    if kind == "integer":
        text = "1" if bare or form == "text" else '{"score": 1}'
    elif kind == "yes_no":
        text = "yes"
    elif form == "text":
        inside = value.strip('"')
        text = f"It is.\n<verdict-{request.nonce}>{inside}</verdict-{request.nonce}>"
    return judge.read(request, Reply(text=text, finish=finish, tokens_out=tokens_out))


@pytest.mark.parametrize("finish", CUT, ids=lambda finish: finish[:20])
@pytest.mark.parametrize(("kind", "form"), ASKED)
def test_a_reply_that_was_cut_is_no_score(kind: str, form: Form, finish: str) -> None:
    """Whatever the provider calls it: also an ending that nobody here has heard of. The record names it."""
    verdict = read(kind, form, finish)
    assert isinstance(verdict, Unscored)
    assert verdict.reason is Reason.TRUNCATED
    assert finish[:40].lstrip("\x1b") in verdict.detail
    assert "\x1b" not in verdict.detail
    assert len(verdict.detail) < 200


@pytest.mark.parametrize("finish", REFUSED)
@pytest.mark.parametrize(("kind", "form"), ASKED)
def test_a_reply_that_was_filtered_is_refused(kind: str, form: Form, finish: str) -> None:
    """A filter's ending is a refusal, whoever's filter it is."""
    verdict = read(kind, form, finish)
    assert isinstance(verdict, Unscored)
    assert verdict.reason is Reason.REFUSED
    assert finish in verdict.detail


@pytest.mark.parametrize("finish", WHOLE)
@pytest.mark.parametrize(("kind", "form"), ASKED)
def test_a_reply_that_ended_by_itself_is_read(kind: str, form: Form, finish: str) -> None:
    """In the words of OpenAI, vLLM, TGI, Anthropic, Gemini, Cohere, Qianfan and proxies before them."""
    assert isinstance(read(kind, form, finish), Verdict)


@pytest.mark.parametrize(("kind", "form"), [asked for asked in ASKED if asked not in BARE])
def test_a_reply_that_shows_its_own_end_needs_no_other(kind: str, form: Form) -> None:
    """Honest servers leave finish_reason out; a closed JSON object or tag is whole all the same."""
    assert isinstance(read(kind, form, ""), Verdict)


@pytest.mark.parametrize(("kind", "form"), [*BARE, ("integer", "schema")])
def test_a_bare_answer_without_an_ending_needs_a_token_count(kind: str, form: Form) -> None:
    """1 may be half of 10: without finish_reason it counts only if fewer tokens were generated than allowed."""
    limit = 16 if kind == "yes_no" else 512
    for tokens_out, whole in ((0, False), (1, True), (limit - 1, True), (limit, False), (limit + 1, False)):
        verdict = read(kind, form, "", bare=True, tokens_out=tokens_out)
        assert isinstance(verdict, Verdict) == whole, tokens_out
        if isinstance(verdict, Unscored):
            assert verdict.reason is Reason.TRUNCATED
            assert "finish_reason" in verdict.detail


@pytest.mark.parametrize("finish", ["2", '{"type": "length"}', "[]", "false", "0"])
def test_an_ending_that_is_no_text_is_not_an_absent_one(finish: str) -> None:
    """A proxy that passes on a number or an object has said something, and it is not known to be good."""
    choice = f'{{"message": {{"content": "1"}}, "finish_reason": {finish}}}'
    body = f'{{"choices": [{choice}], "usage": {{"completion_tokens": 1}}}}'
    reply = CHAT.read(200, {}, body.encode(), 0.0)
    assert isinstance(reply, Reply)
    judge = make_judge(JudgeConfig(kind="integer"), b"0123456789abcdef")
    request = judge.plan(Sample(prompt="p", response="r"), "text")
    assert isinstance(request, Ask)
    verdict = judge.read(request, reply)
    assert isinstance(verdict, Unscored)
    assert verdict.reason is Reason.TRUNCATED


def test_old_verdicts_of_bare_replies_are_not_found_in_a_cache() -> None:
    """A cut number may lie there as a score; replies that show their own end were read as they are now."""
    names = {kind: make_judge(JudgeConfig(kind=kind), b"0123456789abcdef").plan(SAMPLE, "text") for kind in KINDS}
    versions = {kind: dict(request.facets)["judge"].split()[0] for kind, request in names.items()}  # type: ignore[union-attr]
    assert {kind for kind, name in versions.items() if name.endswith("/1")} == {"score", "reference", "monitor"}


SAMPLE = Sample(prompt="p", response="<think>r</think>r", reference="r")
