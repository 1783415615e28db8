"""Edges of the strict reader that the tables of kinds do not reach."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from referee.config import Gates
from referee.judging import read
from referee.judging.gates import settle
from referee.judging.read import fields, json_object, kept, scaled, tagged
from referee.records import Reason, Sample, Unscored

NONCE = "0123456789abcdef"
OPEN, CLOSE = f"<verdict-{NONCE}>", f"</verdict-{NONCE}>"


@pytest.mark.parametrize(
    "said",
    [
        f"{OPEN}{OPEN}7{CLOSE}",
        f"{OPEN}7{CLOSE}{CLOSE}",
        f"{OPEN}7{CLOSE} {OPEN}8{CLOSE}",
        f"{OPEN}{OPEN}{OPEN}7{CLOSE}",
    ],
)
def test_any_tag_twice_is_ambiguous(said: str) -> None:
    """Two openings with one end, or one opening with two ends, are as unclear as two whole tags."""
    found = tagged(said, NONCE)
    assert isinstance(found, Unscored)
    assert found.reason is Reason.AMBIGUOUS


@pytest.mark.parametrize(
    ("number", "shown"),
    [
        (11, "11 is"),
        (-3, "-3 is"),
        (999_999_999, "999999999 is"),
        (10**9, "a huge number is"),
        (-(10**9), "a huge number is"),
        (10**40, "a huge number is"),
    ],
)
def test_the_number_off_the_scale_is_named(number: int, shown: str) -> None:
    """Whoever reads the record sees what the judge said, unless it would fill the line."""
    found = scaled(number, 1, 10, "", "integer")
    assert isinstance(found, Unscored)
    assert found.detail == f"{shown} outside 1 to 10"


def test_a_raw_line_break_in_the_reason_is_read() -> None:
    """Models write JSON with line breaks inside strings; the verdict beside it is none the worse."""
    assert fields('{"reason": "first\nsecond\tthird", "score": 7}', "score") == ("first\nsecond\tthird", 7)


def test_nothing_is_no_echo_of_nothing() -> None:
    """Where empty answers go to the judge, an empty prompt does not turn them into an echo."""
    off = Gates(truncated="off", empty="off", no_alphanumerics="off", echo="lowest")
    sample = Sample(prompt="", response="", reference="Because.")
    assert settle(sample, "", "", off, 1.0) is None
    assert settle(sample, "Why?", "", off, 1.0) is None
    assert settle(sample, "why  IS it?", "Why is it?", off, 1.0) is not None


@pytest.mark.parametrize(
    "said",
    [
        '{"reason": "a", "score": 7, "score": 8}',
        '{"score": 8, "reason": "a", "score": 7}',
        '{"reason": "a", "reason": "b", "score": 7}',
        '{"reason": "a", "score": 7, "sc\\u006fre": 8}',
    ],
)
def test_a_key_twice_is_two_verdicts_however_it_is_written(said: str) -> None:
    """Also where the plain way of reading would keep the last and be content."""
    found = fields(said, "score")
    assert isinstance(found, Unscored)
    assert found.reason is Reason.AMBIGUOUS


_VALUES = st.one_of(
    st.integers(-12, 12), st.sampled_from([7.0, 7.5, True, None, "yes", "7", [], {}, 10**30]), st.text(max_size=5)
)
_PAIRS = st.tuples(st.sampled_from(["reason", "score", "verdict", "score "]), _VALUES)


@given(st.lists(_PAIRS, max_size=4), st.booleans(), st.sampled_from(["", " ", "\n", "x", "{}", "```json\n"]))
@settings(max_examples=300, deadline=None)
def test_the_fast_way_reads_as_the_patient_one(pairs: list[tuple[str, object]], ascii_only: bool, tail: str) -> None:
    """Whatever an object holds, in whatever spelling: both ways give the same, or the fast one gives up."""
    inside = ", ".join(f"{json.dumps(k)}: {json.dumps(v, ensure_ascii=ascii_only)}" for k, v in pairs)
    said = f"{{{inside}}}{tail}"
    fast, read._plain_object = read._plain_object, lambda _: None
    try:
        patient = json_object(said)
    finally:
        read._plain_object = fast
    assert json_object(said) == patient
    quick = fast(said)
    assert quick is None or quick == patient


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        ("plain words", "plain words"),
        ("a\x07b\x1b[0m", "ab[0m"),
        ("a\u3164b", "ab"),
        ("naïve — ✓", "naïve — ✓"),
        ("a\nb", "a\nb"),
    ],
)
def test_what_is_kept_of_the_judges_words_has_nothing_hidden_in_it(words: str, shown: str) -> None:
    """Control characters and letters nobody can see are gone, whether the rest is ASCII or not."""
    assert kept(words) == shown
