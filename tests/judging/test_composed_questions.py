"""Judges made of others: the same samples and answers give the same questions, whatever is inside what."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.judging.made_of_judges import SAMPLE, SECRET, built, member
from tests.judging.test_same_questions import answers, asked, samples

from referee.judging import Form
from referee.judging.judge import FORMS
from referee.records import Sample, Unscored, Verdict
from referee.testing import check_judge

YES_NO = member("one", kind="yes_no")
PANEL = {"name": "panel", "kind": "jury", "members": ["one", "two"]}
STAIRS = {"name": "stairs", "kind": "cascade", "members": ["one", "two"], "until": {"uncertainty": 0.2}}
OF_SAMPLES: dict[str, list[dict[str, Any]]] = {
    "jury": [PANEL, YES_NO, member("two")],
    "jury with a quorum": [{**PANEL, "quorum": 1, "combine": "min"}, YES_NO, member("two", reply="text")],
    "one juror": [{**PANEL, "ask": "one"}, YES_NO, member("two")],
    "cascade": [STAIRS, YES_NO, member("two")],
    "repeat": [member("one", kind="reference", repeat=5)],
    "all of them": [
        {**STAIRS, "members": ["panel", "three"], "partial": "skip", "repeat": 3, "abstain_above": 0.4},
        {**PANEL, "repeat": 2},
        {**YES_NO, "repeat": 3, "abstain_above": 0.3},
        member("two", low=1, high=5, expected=True),
        member("three", kind="reference", repeat=2),
    ],
}
OF_GROUPS: dict[str, list[dict[str, Any]]] = {
    "jury": [PANEL, member("one", kind="pairwise"), member("two")],
    "one juror": [{**PANEL, "ask": "one"}, member("one", kind="pairwise"), member("two")],
    "cascade": [{**STAIRS, "until": {"outside": [0.4, 0.6]}}, member("one"), member("two", kind="pairwise")],
    "repeat": [member("one", kind="pairwise", repeat=3)],
}


@pytest.mark.parametrize("judges", OF_SAMPLES.values(), ids=OF_SAMPLES)
@given(samples, st.lists(answers, min_size=1, max_size=3), st.sampled_from(FORMS))
def test_the_same_samples_and_answers_give_the_same_questions(
    judges: list[dict[str, Any]], sample: Sample, told: list[Verdict | Unscored], form: Form
) -> None:
    """From one judge twice, and from one that is made anew; known by the same, whatever the secret is."""
    judge = built(*judges)
    first = asked(judge, sample, form, told)
    assert asked(judge, sample, form, told) == first
    other = asked(built(*judges, secret=SECRET[::-1]), sample, form, told)
    known = [[question[1:3] for question in asks] for asks in first[0]]
    assert [[question[1:3] for question in asks] for asks in other[0]] == known
    assert other[2] == first[2]


@pytest.mark.parametrize("judges", OF_SAMPLES.values(), ids=OF_SAMPLES)
def test_they_keep_to_what_every_judge_must(judges: list[dict[str, Any]]) -> None:
    """Rounds end, different questions have different facets, no answer at all is survived."""
    check_judge(built(*judges), (SAMPLE,))


@pytest.mark.parametrize("judges", OF_GROUPS.values(), ids=OF_GROUPS)
def test_those_of_groups_too(judges: list[dict[str, Any]]) -> None:
    """With four responses, of which two are equal."""
    judge = built(*judges)
    assert judge.unit == "group"
    group = [replace(SAMPLE, response=f"It is {number}.", id=str(number)) for number in (1, 2, 3, 3)]
    check_judge(judge, group)
