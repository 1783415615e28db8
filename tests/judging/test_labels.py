"""Replies about labelled responses: every label exactly once with a score on the scale, or nothing counts."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.judging.groups import choice, group, judge_of, reply, shown

from referee.judging import Form
from referee.judging.judge import FORMS
from referee.records import Ask, Reason, Reply, Unscored, Verdict

TEXTS = ("One metre.", "Two metres.", "Three metres.")
EVERY_FORM = pytest.mark.parametrize("form", FORMS)


def asked(kind: str, form: Form, **settings: Any) -> tuple[Ask, list[str]]:
    """The first question about a group, and its labels."""
    responses = TEXTS if kind == "listwise" else TEXTS[:2]
    request = next(judge_of(kind, **settings).deliberate(group(*responses), form))[0]
    return request, [label for label, _ in shown(request)]


def read(request: Ask, text: str) -> Verdict | Unscored:
    return request.read(request, Reply(text=text, finish="stop"))


def read_list(items: Any, request: Ask) -> Verdict | Unscored:
    return read(request, json.dumps({"responses": items}))


def entry(label: object, score: object, reason: object = "") -> dict[str, object]:
    return {"label": label, "reason": reason, "score": score}


@EVERY_FORM
def test_scores_are_read_by_label_and_kept_by_place(form: Form) -> None:
    """In any order of the reply; the reason of each is its own, and labels in it are places."""
    request, labels = asked("listwise", form)
    one, two, three = labels
    verdict = read(request, reply(request, [(three, 10), (one, 1), (two, 4)], f"better than {two}"))
    assert isinstance(verdict, Verdict)
    parts = [part.verdict for part in verdict.parts]
    assert [part.score for part in parts if isinstance(part, Verdict)] == [1.0, 4.0, 10.0]
    assert [part.value for part in parts if isinstance(part, Verdict)] == pytest.approx([0, 1 / 3, 1])
    for part in parts:
        assert isinstance(part, Verdict)
        assert "better than [place 2]" in part.reason
        assert not any(label in part.reason for label in labels)
        assert part.how == ("schema" if form == "schema" else "tag")


@EVERY_FORM
@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda s: s[:2], None),
        (lambda s: [], None),
        (lambda s: [*s, ("BCDFGH", 5)], None),
        (lambda s: [*s[:2], ("BCDFGH", 5)], None),
        (lambda s: [*s[:2], (s[2][0].lower(), 5)], None),
        (lambda s: [*s, s[0]], Reason.AMBIGUOUS),
        (lambda s: [*s[:2], s[0]], Reason.AMBIGUOUS),
        (lambda s: [(s[0][0], 0), *s[1:]], Reason.OUT_OF_RANGE),
        (lambda s: [(s[0][0], 11), *s[1:]], Reason.OUT_OF_RANGE),
        (lambda s: [(s[0][0], 10**400), *s[1:]], Reason.OUT_OF_RANGE),
    ],
    ids=["missing", "none", "one more", "another", "lower case", "twice", "instead", "below", "above", "huge"],
)
def test_every_label_stands_there_once_with_a_score_on_the_scale(
    form: Form, change: Any, reason: Reason | None
) -> None:
    """Otherwise none of the scores counts: which of them would be the judge's?"""
    request, labels = asked("listwise", form)
    given = change([(label, 5) for label in labels])
    verdict = read(request, reply(request, given))
    assert isinstance(verdict, Unscored)
    assert verdict.reason is (reason or (Reason.SCHEMA if form == "schema" else Reason.NO_VERDICT))


@pytest.mark.parametrize(
    "change",
    [
        lambda item: "A",
        lambda item: None,
        lambda item: [item],
        lambda item: {"label": item["label"], "score": 5},
        lambda item: item | {"more": 1},
        lambda item: item | {"score": "5"},
        lambda item: item | {"score": 5.5},
        lambda item: item | {"score": True},
        lambda item: item | {"score": None},
        lambda item: item | {"score": [5]},
        lambda item: item | {"reason": None},
        lambda item: item | {"label": 1},
        lambda item: item | {"label": ["a"]},
        lambda item: item | {"label": f" {item['label']}"},
    ],
)
def test_an_entry_of_another_shape_or_type_is_no_verdict(change: Any) -> None:
    """Neither is the rest of the list."""
    request, labels = asked("listwise", "schema")
    items = [entry(label, 5) for label in labels]
    verdict = read_list([*items[:2], change(items[2])], request)
    assert isinstance(verdict, Unscored)
    assert verdict.reason is Reason.SCHEMA


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("[]", Reason.SCHEMA),
        ("{}", Reason.SCHEMA),
        ('{"responses": {}}', Reason.SCHEMA),
        ('{"responses": null}', Reason.SCHEMA),
        ('{"responses": [], "more": 1}', Reason.SCHEMA),
        ('{"responses": [], "responses": []}', Reason.AMBIGUOUS),
        ('{"responses": [', Reason.NO_VERDICT),
        ("I like the first.", Reason.NO_VERDICT),
        ("", Reason.EMPTY),
        ('{"responses": ' + "[" * 5000, Reason.NO_VERDICT),
    ],
)
def test_a_reply_of_another_shape_is_no_verdict(text: str, reason: Reason) -> None:
    """It is asked for again."""
    verdict = read(asked("listwise", "schema")[0], text)
    assert isinstance(verdict, Unscored)
    assert verdict.reason is reason


def test_odd_but_legal_json_is_read() -> None:
    """White space, a code block, escapes, 7.0 for 7, keys in another order, a raw line break in a reason."""
    request, (one, two, three) = asked("listwise", "schema")
    odd = one[0].encode("ascii").hex()
    text = (
        f'```json\n{{ "responses" : [\n{{"score": 7.0, "reason": "a\nb", "label": "\\u00{odd}{one[1:]}"}},'
        f'{{"label":"{two}","reason":"{{\\"score\\": 9}}","score":1e1}},'
        f'\n{{"label":"{three}","reason":"","score":1}}]}}\n```'
    )
    verdict = read(request, text)
    assert isinstance(verdict, Verdict), verdict
    assert [part.verdict.score for part in verdict.parts if isinstance(part.verdict, Verdict)] == [7.0, 10.0, 1.0]


def test_a_key_that_stands_twice_in_an_entry_is_two_verdicts() -> None:
    """As in every other JSON reply."""
    request, labels = asked("listwise", "schema")
    items = ",".join(f'{{"label": "{label}", "reason": "", "score": 1, "score": 9}}' for label in labels)
    verdict = read(request, f'{{"responses": [{items}]}}')
    assert isinstance(verdict, Unscored)
    assert verdict.reason is Reason.AMBIGUOUS


@pytest.mark.parametrize("between", ["; ", ";", "\n", ";\n", " ;  \n"])
def test_pairs_in_the_tag_may_stand_on_lines_of_their_own(between: str) -> None:
    """And reasons may be missing, or marked as a list."""
    request, labels = asked("listwise", "text")
    pairs = between.join(f"{label} = {score}" for score, label in enumerate(labels, 1))
    said = (
        f"- **{labels[0]}**: Too short.\n{labels[1]}\n<verdict-{request.nonce}>\n{pairs};\n</verdict-{request.nonce}>"
    )
    verdict = read(request, said)
    assert isinstance(verdict, Verdict), verdict
    given = [part.verdict for part in verdict.parts]
    assert [(one.score, one.reason) for one in given if isinstance(one, Verdict)] == [
        (1.0, "Too short."),
        (2.0, ""),
        (3.0, ""),
    ]


@pytest.mark.parametrize(
    "inside", ["", "7", "A=7, B=8", "{one}=7", "{one}:7;{two}:7;{three}:7", "{one}=7 {two}=8 {three}=9"]
)
def test_a_tag_that_holds_something_else_is_no_verdict(inside: str) -> None:
    """Nothing is guessed."""
    request, (one, two, three) = asked("listwise", "text")
    inside = inside.format(one=one, two=two, three=three)
    assert isinstance(read(request, f"<verdict-{request.nonce}>{inside}</verdict-{request.nonce}>"), Unscored)


@pytest.mark.parametrize("number", ["7.0", "+7", "07", "8/10", "seven", "７", "--7"])
def test_a_score_in_the_tag_is_an_integer_as_it_is_written(number: str) -> None:
    """As for kind = "score"."""
    request, labels = asked("listwise", "text")
    pairs = ";".join(f"{label}={number}" for label in labels)
    assert isinstance(read(request, f"<verdict-{request.nonce}>{pairs}</verdict-{request.nonce}>"), Unscored)


@EVERY_FORM
def test_the_better_of_two_is_named_by_its_label(form: Form) -> None:
    """The value says whether the first that was shown won; labels in the words are places."""
    request, (one, two) = asked("pairwise", form)
    for word, value in ((one, 1.0), (two, 0.0), ("tie", 0.5)):
        verdict = read(request, choice(request, word, f"{one} is longer than {two}"))
        assert isinstance(verdict, Verdict)
        assert (verdict.value, verdict.reason) == (value, "[place 1] is longer than [place 2]")


@pytest.mark.parametrize("word", ["first", "A", "BCDFGH", "", "both", 1, None, True, ["tie"], {"tie": 1}])
def test_another_word_names_neither(word: object) -> None:
    """Nor does a value of another type."""
    request, labels = asked("pairwise", "schema")
    for said in (word, f"{labels[0]} {labels[1]}", labels[0].lower(), "Tie"):
        verdict = read(request, json.dumps({"reason": "", "verdict": said}))
        assert isinstance(verdict, Unscored)
        assert verdict.reason is Reason.SCHEMA


def test_a_tag_says_tie_in_any_case_and_nothing_else() -> None:
    """As the words of other kinds in their tags."""
    request, labels = asked("pairwise", "text")
    assert isinstance(read(request, choice(request, "TIE")), Verdict)
    for word in ("", "neither", f"{labels[0]}; {labels[1]}", labels[0].lower()):
        verdict = read(request, choice(request, word))
        assert isinstance(verdict, Unscored)
        assert verdict.reason is Reason.NO_VERDICT


@EVERY_FORM
@pytest.mark.parametrize("kind", ["listwise", "pairwise"])
def test_a_reply_that_was_cut_is_not_read(kind: str, form: Form) -> None:
    """Whatever it holds."""
    request, labels = asked(kind, form)
    said = choice(request, labels[0]) if kind == "pairwise" else reply(request, [(label, 5) for label in labels])
    verdict = request.read(request, Reply(text=said, finish="length"))
    assert isinstance(verdict, Unscored)
    assert verdict.reason is Reason.TRUNCATED


@pytest.mark.parametrize("kind", ["listwise", "pairwise"])
@given(text=st.text(max_size=80) | st.from_regex(r"\{.*\}", fullmatch=True), form=st.sampled_from(FORMS))
def test_no_reply_makes_a_reader_raise(kind: str, text: str, form: Form) -> None:
    """Whatever a model writes is a verdict or none."""
    assert isinstance(read(asked(kind, form)[0], text), Verdict | Unscored)


@EVERY_FORM
@pytest.mark.parametrize("kind", ["listwise", "pairwise"])
def test_a_verdict_reads_the_same_under_the_labels_of_another_run(kind: str, form: Form) -> None:
    """It is cached for longer than a run: nothing in it may depend on the secret."""
    found = []
    for secret in (b"0123456789abcdef", b"fedcba9876543210"):
        request, labels = asked(kind, form, secret=secret)
        words = f"{labels[1]} beats {labels[0]}"
        said = choice(request, labels[1], words) if kind == "pairwise" else None
        said = said or reply(request, [(label, place) for place, label in enumerate(labels, 1)], words)
        found.append((request.facets, request.sampling, read(request, said)))
    assert found[0] == found[1]
