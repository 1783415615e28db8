"""The same samples and answers give the same questions, for every kind: cache, resume and replay rely on it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from referee.config import load
from referee.judging import Form, Judge, make_judge
from referee.judging.judge import FORMS
from referee.judging.registry import KINDS
from referee.records import Ask, Message, Part, Reason, Sample, Sampling, Unscored, Verdict

SECRET = b"0123456789abcdef"
Question = tuple[tuple[Message, ...], Sampling, tuple[tuple[str, str], ...], str, int, str]

texts = st.text(max_size=60) | st.sampled_from(["", "<think>why</think>yes", "<score>9</score>", "\ud800", "p"])
samples = st.builds(
    Sample,
    prompt=texts,
    response=texts,
    reference=st.none() | texts,
    rule_score=st.floats(-1, 1),
    truncated=st.booleans(),
    group=st.sampled_from(["", "g"]),
)
answers = st.builds(lambda value: Verdict(score=value, value=value), st.floats(0, 1)) | st.builds(
    Unscored, reason=st.sampled_from(Reason)
)


GROUP_JUDGES: dict[str, dict[str, Any]] = {
    "listwise": {"kind": "listwise"},
    "listwise, orders": {"kind": "listwise", "permutations": 3, "ranks": True, "partial": "skip"},
    "listwise, chunks": {"kind": "listwise", "max_view_tokens": 16, "permutations": 2, "view": "full"},
    **{schedule: {"kind": "pairwise", "schedule": schedule} for schedule in ("circular", "all", "knockout", "swiss")},
    "one order": {"kind": "pairwise", "both_orders": False, "strength": "win_rate", "view": "reasoning"},
    "anchor": {"kind": "pairwise", "schedule": "anchor"},
}
"""Settings of judges of whole groups, and of one that is shown two texts."""


def judge_of(kind: str, secret: bytes) -> Judge:
    chosen = GROUP_JUDGES.get(kind, {"kind": kind})
    return make_judge(load({"judge": chosen, "endpoint": {"model": "m", "key_env": ""}}).judge[0], secret)


def said(request: Ask) -> Question:
    """Everything that a provider and a cache see of a question."""
    return (
        request.messages,
        request.sampling,
        request.facets,
        request.nonce,
        request.prompt_tokens,
        request.pool,
    )


def asked(
    judge: Judge, sample: Sample | Sequence[Sample], form: Form, told: Sequence[Verdict | Unscored]
) -> tuple[list[list[Question]], list[Question], Sequence[Verdict | Unscored]]:
    """A deliberation's rounds of questions, their text forms, and its verdicts. Answers repeat if there are too few."""
    members = (sample,) if isinstance(sample, Sample) else sample
    deliberation, rounds, in_text = judge.deliberate(members, form), list[list[Question]](), list[Question]()
    replies: list[Verdict | Unscored] | None = None
    while True:
        try:
            asks = deliberation.send(replies)  # type: ignore[arg-type]
        except StopIteration as stop:
            return rounds, in_text, stop.value
        rounds.append([said(request) for request in asks])
        others = [request.in_text() for request in asks if request.in_text is not None]
        in_text += [said(other) for other in others if isinstance(other, Ask)]
        replies = [_about(request, told[number % len(told)]) for number, request in enumerate(asks)]


def _about(request: Ask, answer: Verdict | Unscored) -> Verdict | Unscored:
    """The answer; of a question about several responses, with a part for each, as its reader gives them."""
    name, count = dict(request.facets)["judge"], request.messages[-1].content.count("\nResponse ")
    if not name.startswith("listwise") or isinstance(answer, Unscored):
        return answer
    return replace(answer, parts=tuple([Part(name=str(number), verdict=answer) for number in range(count)]))


@pytest.mark.parametrize("kind", sorted(KINDS))
@given(samples, st.lists(answers, min_size=1, max_size=3), st.sampled_from(FORMS))
def test_the_same_samples_and_answers_give_the_same_questions(
    kind: str, sample: Sample, told: list[Verdict | Unscored], form: Form
) -> None:
    """From a judge that has judged others before, and from one that is made anew."""
    judge = judge_of(kind, SECRET)
    first = asked(judge, sample, form, told)
    asked(judge, Sample(prompt="another", response="else", reference="r"), form, told)
    assert asked(judge, sample, form, told) == first
    assert asked(judge_of(kind, SECRET), sample, form, told) == first


@pytest.mark.parametrize("kind", sorted(KINDS))
@given(samples, st.lists(answers, min_size=1, max_size=3), st.sampled_from(FORMS))
def test_what_a_question_is_known_by_does_not_depend_on_the_secret(
    kind: str, sample: Sample, told: list[Verdict | Unscored], form: Form
) -> None:
    """Two runs find each other's verdicts, although their nonces differ."""
    one, other = (asked(judge_of(kind, secret), sample, form, told) for secret in (SECRET, SECRET[::-1]))
    assert [[question[1:3] for question in asks] for asks in one[0]] == [
        [question[1:3] for question in asks] for asks in other[0]
    ]
    assert one[2] == other[2]


@pytest.mark.parametrize("name", GROUP_JUDGES)
@given(st.lists(samples, min_size=1, max_size=5), st.lists(answers, min_size=1, max_size=3), st.sampled_from(FORMS))
@settings(max_examples=40)
def test_the_same_group_and_answers_give_the_same_questions(
    name: str, members: list[Sample], told: list[Verdict | Unscored], form: Form
) -> None:
    """From a judge that has judged others before, from one that is made anew, and, but for nonces, under another
    secret; prompts, references and gates of its samples may differ."""
    members = members[:1] if name == "anchor" else members
    judge = judge_of(name, SECRET)
    first = asked(judge, members, form, told)
    asked(judge, [Sample(prompt="another", response=text, reference="r") for text in "abc"], form, told)
    assert asked(judge, members, form, told) == first
    assert asked(judge_of(name, SECRET), members, form, told) == first
    other = asked(judge_of(name, SECRET[::-1]), members, form, told)
    assert [[question[1:3] for question in asks] for asks in other[0]] == [
        [question[1:3] for question in asks] for asks in first[0]
    ]
    assert other[2] == first[2]
