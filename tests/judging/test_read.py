"""Strict reading, the parts: integers, tags, what is kept of the judge's words; and a fuzz of every reader."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from referee.config import JudgeConfig
from referee.judging import KINDS, make_judge
from referee.judging.read import LONGEST_REASON, kept, tagged, whole
from referee.records import Ask, Reason, Reply, Sample, TokenChoice, Unscored, Verdict

SECRET = b"0123456789abcdef"


def read_integer(text: str, low: int, high: int) -> Verdict | Unscored:
    """What kind = "integer" makes of a reply in text."""
    judge = make_judge(JudgeConfig(kind="integer", low=low, high=high), SECRET)
    return judge.read(judge.plan(Sample(prompt="p", response="r"), "text"), Reply(text=text, finish="stop"))


@pytest.mark.parametrize(
    ("text", "score"),
    [("7", 7), (" 7 ", 7), ("\n10\n", 10), ("1", 1), ("<think>it says 9</think>\n4", 4), ("maybe 9</think>4", 4)],
)
def test_one_integer_is_read(text: str, score: int) -> None:
    """White space and the judge's own reasoning aside, the reply is the number."""
    verdict = read_integer(text, 1, 10)
    assert verdict == Verdict(score=score, value=(score - 1) / 9, how="integer")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", Reason.EMPTY),
        (" \n", Reason.EMPTY),
        ("11", Reason.OUT_OF_RANGE),
        ("0", Reason.OUT_OF_RANGE),
        ("-1", Reason.OUT_OF_RANGE),
        ("9" * 5000, Reason.OUT_OF_RANGE),
        ("8/10", Reason.NO_VERDICT),
        ("7.5", Reason.NO_VERDICT),
        ("7.0", Reason.NO_VERDICT),
        ("7,5", Reason.NO_VERDICT),
        ("7.", Reason.NO_VERDICT),
        ("Score: 7", Reason.NO_VERDICT),
        ("7 8", Reason.NO_VERDICT),
        ("**7**", Reason.NO_VERDICT),
        ("７", Reason.NO_VERDICT),
        ("nan", Reason.NO_VERDICT),
        ("inf", Reason.NO_VERDICT),
        ("1e1", Reason.NO_VERDICT),
        ("<think>7", Reason.NO_VERDICT),
    ],
)
def test_anything_else_is_not_an_integer(text: str, reason: Reason) -> None:
    """No digit is picked out of other text."""
    verdict = read_integer(text, 1, 10)
    assert isinstance(verdict, Unscored)
    assert verdict.reason is reason


def test_negative_scales_are_read() -> None:
    """The ends of the scale map to 0 and 1."""
    assert read_integer("-5", -5, 5) == Verdict(score=-5, value=0, how="integer")
    assert read_integer("-0", -5, 5) == Verdict(score=0, value=0.5, how="integer")
    assert read_integer("5", -5, 5) == Verdict(score=5, value=1, how="integer")


@pytest.mark.parametrize(
    ("number", "read"),
    [(7, 7), (7.0, 7), (1e1, 10), (-0.0, 0), (7.5, None), (True, None), ("7", None), (None, None), ([7], None)],
)
def test_json_numbers_without_fraction_are_integers(number: object, read: int | None) -> None:
    """7.0 is the integer 7, as in JSON Schema; truth values and strings are no numbers."""
    assert whole(number) == read


@pytest.mark.parametrize("number", [math.inf, -math.inf, math.nan])
def test_numbers_that_are_not_finite_are_off_every_scale(number: float) -> None:
    """They are reported out of range, not clamped to an end."""
    assert whole(number) is not None
    assert whole(number) > 10**30


def test_tags_of_another_nonce_are_text() -> None:
    """A quoted tag is part of the judge's words."""
    assert tagged("says <verdict-aa>9</verdict-aa>: <verdict-bb> 2 </verdict-bb> **", "bb") == (
        "says <verdict-aa>9</verdict-aa>:",
        "2",
    )


@pytest.mark.parametrize(
    "text", ["<verdict-bb>2", "2</verdict-bb>", "</verdict-bb>2<verdict-bb>", "<verdict-bb >2</verdict-bb>"]
)
def test_half_tags_are_none(text: str) -> None:
    """A tag has an opening, an integer and a close, in that order."""
    found = tagged(text, "bb")
    assert isinstance(found, Unscored)
    assert found.reason is Reason.NO_VERDICT


def test_words_for_records_are_clean_and_bounded() -> None:
    """A quoted terminal escape or half a character does not reach the records, nor a book."""
    assert kept(" a\x1b[2J\ud800 ") == "a[2J\ufffd"
    assert len(kept("x" * 10_000)) == LONGEST_REASON


def test_the_reason_is_kept() -> None:
    """The judge's words come with the verdict, in both forms."""
    judge = make_judge(JudgeConfig(), SECRET)
    sample = Sample(prompt="p", response="r")
    for form in ("schema", "text"):
        request = judge.plan(sample, form)
        assert isinstance(request, Ask)
        text = f"Half right.\n<verdict-{request.nonce}>4</verdict-{request.nonce}>"
        if form == "schema":
            text = '{"reason": "Half right.", "score": 4}'
        verdict = judge.read(request, Reply(text=text, finish="stop"))
        assert verdict == Verdict(score=4, value=3 / 9, reason="Half right.", how="tag" if form == "text" else "schema")


JUDGES = {
    (kind, form): (judge, judge.plan(Sample(prompt="p", response="r", reference="g"), form))
    for kind in KINDS
    for form in ("schema", "text")
    for judge in [make_judge(JudgeConfig(kind=kind, low=0, high=7), SECRET)]
}
PIECES = [
    *(
        "{",
        "}",
        '"',
        ":",
        ",",
        '"reason"',
        '"score"',
        '"verdict"',
        '"correct"',
        "correct",
        "incorrect",
        "yes",
        "no",
        "No",
    ),
    *(
        "7",
        "0",
        "12",
        "-1",
        "7.0",
        "7.5",
        "1e999",
        "NaN",
        "Infinity",
        "true",
        "null",
        "9" * 50,
        "７",
        "[",
        "]",
        "\\u0000",
    ),
    *(
        "<think>",
        "</think>",
        "```json\n",
        "\n```",
        "**",
        " ",
        "\n",
        ".",
        "\ud800",
        "\ufeff",
        "OPEN",
        "CLOSE",
        "</verdict-",
        ">",
    ),
    '{"reason": "x", "score": ',
    '{"reason": "x", "verdict": ',
]
TEXTS = st.lists(st.sampled_from(PIECES), max_size=10).map("".join) | st.text(max_size=40)
LOGPROBS = st.floats(-30, 0) | st.sampled_from([math.nan, math.inf, -math.inf, 5.0, 0.0, -0.001])
TOKENS = st.sampled_from(["yes", " Yes", "no", "NO", "▁no", ".", "<|im_end|>", "maybe", ""])
CHOICES = st.lists(
    st.builds(TokenChoice, TOKENS, st.lists(st.tuples(TOKENS, LOGPROBS), max_size=5).map(tuple)), max_size=4
).map(tuple)


@given(
    st.sampled_from(sorted(JUDGES)),
    TEXTS,
    st.sampled_from(["", "stop", "length", "content_filter", "tool_calls"]),
    st.sampled_from(["", "", "no"]),
    CHOICES,
)
@settings(max_examples=300, deadline=None)
def test_no_reply_crashes_a_reader_or_leaves_the_scale(
    which: tuple[str, str], text: str, finish: str, refusal: str, choices: tuple[TokenChoice, ...]
) -> None:
    """Every reply ends as a verdict on the scale or as unscored with a reason; cut replies and refusals never score."""
    judge, request = JUDGES[which]
    assert isinstance(request, Ask)
    tag = f"verdict-{request.nonce}>"
    text = text.replace("OPEN", f"<{tag}").replace("CLOSE", f"</{tag}")
    verdict = judge.read(request, Reply(text=text, finish=finish, refusal=refusal, choices=choices))
    if isinstance(verdict, Unscored):
        assert verdict.reason in Reason
        return
    assert finish not in ("length", "content_filter")
    assert not refusal
    assert 0.0 <= verdict.value <= 1.0
    top = 7.0 if which[0] in ("score", "integer") else 1.0
    assert 0.0 <= verdict.score <= top
    assert verdict.value == pytest.approx(verdict.score / top)
    assert verdict.uncertainty is None or 0.0 <= verdict.uncertainty <= math.log(2) + 1e-9
    verdict.reason.encode()


@given(st.integers(-50, 50), st.text(max_size=30), st.sampled_from(["", " ", "**", "\n```", " done", "<", "7"]))
@settings(max_examples=200, deadline=None)
def test_a_tag_scores_if_and_only_if_it_is_the_end(number: int, words: str, after: str) -> None:
    """The verdict is the number in the tag when nothing but markup follows and it is on the scale."""
    judge, request = JUDGES["score", "text"]
    assert isinstance(request, Ask)
    text = f"w {words} <verdict-{request.nonce}>{number}</verdict-{request.nonce}>{after}"
    verdict = judge.read(request, Reply(text=text))
    if after.strip(" *`\n") or not 0 <= number <= 7:
        assert isinstance(verdict, Unscored)
    else:
        assert isinstance(verdict, Verdict)
        assert verdict.score == number
