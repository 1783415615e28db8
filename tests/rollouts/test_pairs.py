"""Rows of two files that answer the same prompt are found, in order, and what has no partner is named."""

from __future__ import annotations

from referee.records import Message, Sample, Text
from referee.rollouts.pairs import AnswerRow, match_answers, prompt_key, two_prompts


def rows(*prompts: Text) -> list[AnswerRow]:
    return [AnswerRow(line, Sample(prompt=prompt, response=f"{line}")) for line, prompt in enumerate(prompts, 1)]


def lines(a: list[AnswerRow], b: list[AnswerRow]) -> list[tuple[int, int, int, int]]:
    return [(pair.a.line, pair.b.line, pair.prompt, pair.ordinal) for pair in match_answers(a, b, prompt_key).pairs]


def test_rows_are_matched_by_prompt_wherever_they_stand() -> None:
    """The order of pairs is a's."""
    assert lines(rows("x", "y", "z"), rows("z", "x", "y")) == [(1, 2, 0, 0), (2, 3, 1, 0), (3, 1, 2, 0)]


def test_several_answers_to_a_prompt_are_matched_in_their_order() -> None:
    """First with first, second with second; pairs of one prompt share its number."""
    assert lines(rows("x", "x", "y"), rows("x", "y", "x")) == [(1, 1, 0, 0), (2, 3, 0, 1), (3, 2, 1, 0)]


def test_rows_without_a_partner_are_given_back() -> None:
    """On both sides, also what is one answer too many."""
    found = match_answers(rows("x", "x", "y"), rows("x", "z"), prompt_key)
    assert [row.line for row in found.only_a] == [2, 3]
    assert [row.line for row in found.only_b] == [2]


def test_text_and_one_user_message_are_the_same_prompt() -> None:
    """Two exports of one dataset often differ in that, and in white space at the ends."""
    message = Message("user", "What?")
    assert lines(rows("What?\n"), rows((message,))) == [(1, 1, 0, 0)]
    assert lines(rows("What?"), rows((Message("system", "Be brief."), message))) == []
    assert lines(rows((message, Message("assistant", "a"))), rows((message, Message("assistant", "a")))) != []


def test_a_key_that_stands_for_two_prompts_is_found() -> None:
    """It would pair answers to different questions."""
    assert two_prompts(rows("x", "y"), lambda sample: "same") is not None
    assert two_prompts(rows("x", "x "), lambda sample: "same") is None
