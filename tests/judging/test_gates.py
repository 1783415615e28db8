"""Gates: what is settled without a judge, in which order, and what is left alone."""

from __future__ import annotations

import pytest

from referee.config import Gates
from referee.judging.gates import settle
from referee.records import Reason, Sample, Unscored, Verdict

OFF = Gates(empty="off", no_alphanumerics="off", echo="off", truncated="off")


def gate(response: str, gates: Gates | None = None, lowest: float = 1.0, **more: object) -> Verdict | Unscored | None:
    sample = Sample(**{"prompt": "What is two plus two?", "response": response, **more})
    return settle(sample, response, sample.prompt, Gates() if gates is None else gates, lowest)


def closed(result: Verdict | Unscored | None) -> str:
    assert isinstance(result, Verdict)
    assert (result.score, result.value, result.how) == (1.0, 0.0, "gate")
    return result.reason.split(":")[0].removeprefix("gate ")


@pytest.mark.parametrize(
    ("response", "name"),
    [
        ("", "empty"),
        (" \n\t ", "empty"),
        (".", "no_alphanumerics"),
        (",", "no_alphanumerics"),
        (":", "no_alphanumerics"),
        ("...!?", "no_alphanumerics"),
        ("$$ __ **", "no_alphanumerics"),
        ("。", "no_alphanumerics"),
        ("⠀⠀", "no_alphanumerics"),
        ("What is two plus two?", "echo"),
        ("  what IS  two\nplus two? ", "echo"),
    ],
)
def test_gates_close(response: str, name: str) -> None:
    """Empty, mere punctuation and an echo get the bottom of the scale, and the verdict says which gate it was."""
    assert closed(gate(response)) == name


@pytest.mark.parametrize(
    "response", ["4", "四", "∞", "✓", "👍", "x", "٤", "What is two plus two? Four.", "two plus two"]
)
def test_gates_let_answers_pass(response: str) -> None:
    """Anything that might be an answer goes to the judge."""
    assert gate(response) is None


def test_truncated_comes_first() -> None:
    """A rollout that was cut is settled as cut, whatever it holds."""
    assert closed(gate("", truncated=True)) == "truncated"
    assert closed(gate("A fine answer", truncated=True)) == "truncated"


def test_off_asks_anyway() -> None:
    """A gate that is off lets everything through."""
    for response in ("", "...", "What is two plus two?"):
        assert gate(response, OFF, truncated=True) is None


def test_an_open_gate_leaves_the_next_one_in_place() -> None:
    """With `empty` off, a blank response still has no letters."""
    assert closed(gate(" ", Gates(empty="off"))) == "no_alphanumerics"


@pytest.mark.parametrize(
    ("name", "response", "truncated", "reason"),
    [
        ("empty", "", False, Reason.EMPTY),
        ("no_alphanumerics", "...", False, Reason.NO_VERDICT),
        ("echo", "What is two plus two?", False, Reason.NO_VERDICT),
        ("truncated", "4", True, Reason.TRUNCATED),
    ],
)
def test_unscored_gates_name_themselves(name: str, response: str, truncated: bool, reason: Reason) -> None:
    """With "unscored" there is no number, a reason of the closed set, and the gate's name."""
    result = gate(response, Gates(**{name: "unscored"}), truncated=truncated)
    assert isinstance(result, Unscored)
    assert result.reason is reason
    assert f"gate {name}" in result.detail


def test_a_reference_of_punctuation_opens_its_gate() -> None:
    """When the right answer is punctuation, punctuation is an answer; a blank reference says nothing."""
    assert gate("...", reference="?!") is None
    assert closed(gate("...", reference="four")) == "no_alphanumerics"
    assert closed(gate("...", reference=" ")) == "no_alphanumerics"


def test_a_reference_equal_to_the_prompt_opens_the_echo_gate() -> None:
    """When repeating is the task, an echo is an answer."""
    assert gate("What is two plus two?", reference="what is two plus two?") is None
    assert closed(gate("What is two plus two?", reference="4")) == "echo"


def test_an_empty_prompt_has_no_echo() -> None:
    """Nothing cannot be repeated."""
    assert gate("x", prompt="") is None
    assert gate("", OFF, prompt="") is None


def test_long_words_are_compared_to_their_end() -> None:
    """The short first look does not decide equality."""
    assert closed(gate("好" * 100, prompt="好" * 100)) == "echo"
    assert gate("好" * 100 + "吗", prompt="好" * 100) is None
