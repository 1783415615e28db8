"""Criteria as questions, and replies read back: each criterion once, with a verdict that was offered."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from referee.judging import statements
from referee.records import Ask, Criterion, Sampling, Unscored, Verdict

RUBRIC = (
    Criterion("Names the capital.", 2.0, "capital"),
    Criterion("Is rude.", 1.0, "rude", true_is="bad"),
    Criterion("How clear is it?", 1.0, "clear", choices=("muddled", "passable", "clear")),
    Criterion("Cites the source.", 1.0, "cites", may_not_apply=True),
)
NONCE = "5a9d0c1e7b3f2a64"
GOOD = {"c1": "yes", "c2": "no", "c3": 2, "c4": "na"}


def ask(schema: bool) -> Ask:
    return Ask((), Sampling(schema=statements.schema(RUBRIC) if schema else None), (), NONCE, 0)


def as_json(verdicts: dict[str, Any]) -> str:
    return json.dumps({name: {"reason": f"on {name}", "verdict": value} for name, value in verdicts.items()})


def as_text(verdicts: dict[str, Any]) -> str:
    words = "\n".join(f"{name}: on {name}" for name in verdicts)
    pairs = "; ".join(f"{name}={value}" for name, value in verdicts.items())
    return f"{words}\n<verdict-{NONCE}>{pairs}</verdict-{NONCE}>"


def read(verdicts: dict[str, Any], schema: bool) -> Verdict | Unscored:
    return statements.read(RUBRIC, as_json(verdicts) if schema else as_text(verdicts), ask(schema))


@pytest.mark.parametrize("schema", [True, False])
def test_a_whole_reply_is_read(schema: bool) -> None:
    """Label, worth, reason, weight and polarity of each, in the rubric's order, whatever the reply's is."""
    for given_order in (GOOD, dict(reversed(GOOD.items()))):
        found = read(given_order, schema)
        assert isinstance(found, Verdict)
        assert [(part.name, part.label, part.weight, part.good) for part in found.parts] == [
            ("capital", "yes", 2.0, True),
            ("rude", "no", 1.0, False),
            ("clear", "clear", 1.0, True),
            ("cites", "not applicable", 0.0, True),
        ]
        values = [part.verdict for part in found.parts]
        assert [value.value for value in values if isinstance(value, Verdict)] == [1.0, 0.0, 1.0, 0.0]
        assert [value.reason for value in values if isinstance(value, Verdict)] == [f"on c{n}" for n in (1, 2, 3, 4)]


@pytest.mark.parametrize("schema", [True, False])
@pytest.mark.parametrize(
    "change",
    [
        {"c1": None},
        {"c5": "yes"},
        {"c1": "maybe"},
        {"c1": "na"},
        {"c1": 1},
        {"c3": 3},
        {"c3": -1},
        {"c3": "clear"},
        {"c3": "yes"},
        {"c4": "n/a"},
        {"C1": "yes"},
    ],
)
def test_anything_else_is_no_credit_and_no_guess(schema: bool, change: dict[str, Any]) -> None:
    """Missing, unknown, not offered: nothing of the reply counts."""
    verdicts = {name: value for name, value in {**GOOD, **change}.items() if value is not None}
    assert isinstance(read(verdicts, schema), Unscored)


def test_twice_is_ambiguous() -> None:
    """In a tag and in JSON."""
    reply = as_json(GOOD)
    doubled = reply[:-1] + ', "c1": {"reason": "", "verdict": "yes"}}'
    assert isinstance(statements.read(RUBRIC, doubled, ask(True)), Unscored)
    text = as_text(GOOD).replace("c2=no", "c2=no; c1=yes")
    assert isinstance(statements.read(RUBRIC, text, ask(False)), Unscored)


def test_values_of_choices_are_the_criterions_own() -> None:
    """Evenly spaced unless it says otherwise."""
    assert [statements.worth(RUBRIC[2], n) for n in range(3)] == [0.0, 0.5, 1.0]
    own = Criterion("x", choices=("a", "b", "c"), values=(0.0, 0.1, 1.0))
    assert statements.worth(own, 1) == 0.1


def test_what_is_asked_names_every_answer() -> None:
    """The words are the trainer's; control characters are not."""
    text = statements.written((*RUBRIC, Criterion("Two\nlines\0.")))
    assert "c3. How clear is it?\n   Verdict: a number: 0 (muddled), 1 (passable), 2 (clear)." in text
    assert "c4. Cites the source.\n   Verdict: yes, no or na if the statement cannot apply to this response." in text
    assert "c5. Two\n   lines." in text
    assert "bad" not in text


@given(st.text(max_size=200))
def test_any_reply_is_read_or_not(text: str) -> None:
    """Nothing raises."""
    for schema in (True, False):
        statements.read(RUBRIC, text, ask(schema))
        statements.read(RUBRIC, f"<verdict-{NONCE}>{text}</verdict-{NONCE}>", ask(schema))
