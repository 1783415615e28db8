"""Prompts, completions and columns in every shape trainers pass become samples, or are refused by name."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from referee.config import load
from referee.errors import ConfigError, InputError
from referee.records import Criterion, Media, Message, Tool, ToolCall
from referee.trainers.row_check import RowCheck
from referee.trainers.rows import (
    column_text,
    omitted,
    reference_of,
    reference_text,
    split,
    text_of,
    to_sample,
    to_samples,
    tools_of,
)

TALK = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi?"}]
CALL = {"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "add", "arguments": "{}"}}]}
SAID = (Message("assistant", "a"), Message("tool", "b"), Message("assistant", "c"))


@pytest.mark.parametrize(
    ("value", "read"),
    [
        ("plain", "plain"),
        (None, ""),
        ([], ""),
        (7, "7"),
        (0.5, "0.5"),
        ([{"role": "assistant", "content": "yes"}], "yes"),
        ({"role": "assistant", "content": "yes"}, "yes"),
        ([SimpleNamespace(role="user", content="object")], "object"),
        ([{"role": "assistant", "content": None}], ""),
        (TALK, (Message("system", "Be brief."), Message("user", "Hi?"))),
        ([CALL], (Message("assistant", "", tool_calls=(ToolCall("add", "{}"),)),)),
        (SAID, SAID),
    ],
)
def test_prompts_and_completions_are_text_or_messages(value: Any, read: Any) -> None:
    """Messages keep what they hold; nothing, numbers and single messages of text are text."""
    assert text_of(value) == read


@pytest.mark.parametrize(
    ("completions", "where"),
    [
        (["fine", ["not", "messages"]], r"completions\[1\]\[0\]"),
        (
            ["fine", [{"role": "assistant", "tool_calls": [{"function": {}}]}]],
            r"completions\[1\]\[0\].tool_calls\[0\].name",
        ),
        ([object(), "fine"], r"completions\[0\]"),
    ],
)
def test_what_cannot_be_read_names_row_and_argument(completions: Any, where: str) -> None:
    """An error before anything is spent, in the trainer's own words."""
    with pytest.raises(InputError, match=where + ": .* Nothing was spent") as caught:
        to_samples(["q", "q"], completions)
    assert caught.value.field.startswith("completions[")


@pytest.mark.parametrize(
    ("tools", "read"),
    [
        (None, ()),
        ([], ()),
        ("", ()),
        ([{"name": "add", "description": "Adds."}], (Tool("add", "Adds."),)),
        (['{"name": "add"}', "subtract"], (Tool("add"), Tool("subtract"))),
        ('[{"name": "add"}]', (Tool("add"),)),
    ],
)
def test_tools_come_as_lists_text_or_names(tools: Any, read: Any) -> None:
    """As datasets and trainers keep them."""
    assert tools_of(tools) == to_sample("q", "a", row={"tools": tools}).tools == read


def test_tools_that_are_none_name_their_row() -> None:
    """As messages do."""
    for tools in ([["add"], 5], [["add"], [{"description": "no name"}]]):
        with pytest.raises(InputError, match=r"^tools\[1\]"):
            to_samples(["q", "q"], ["a", "b"], None, {"tools": tools})


def test_a_reference_is_text() -> None:
    """The first known column that holds something; messages in words, other values as Python writes them."""
    assert reference_of({"ground_truth": "4", "label": "5"}) == "4"
    assert reference_of({"answer": 4}) == "4"
    assert reference_of({"reference": None, "solution": "x"}) == "x"
    assert reference_of({"difficulty": "hard"}) is None
    assert reference_text(TALK) == "system:\nBe brief.\n\nuser:\nHi?"
    assert reference_text({"numbers": [1, 2]}) == "{'numbers': [1, 2]}"
    assert reference_text(["a", "b"]) == "['a', 'b']"


class Numpy:
    """As much of numpy's values as JSON needs."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def tolist(self) -> Any:
        return self.value


def test_only_columns_that_are_shown_are_taken() -> None:
    """Text as it is, anything else as JSON; a row without one has none."""
    columns = {"topic": ["sea", None], "level": [{"a": 1}, {"a": 2}], "other": ["x", "y"]}
    first, second = to_samples(["q", "q"], ["a", "b"], None, columns, shown=("topic", "level"))
    assert (first.columns, second.columns) == ({"topic": "sea", "level": '{"a":1}'}, {"level": '{"a":2}'})
    assert column_text([1, Numpy(2), Numpy([3])]) == "[1,2,[3]]"


def test_images_beside_a_prompt_are_part_of_it() -> None:
    """A column of them is not read past; where the messages hold them already, they are not counted twice."""
    made = to_sample("look", "a", row={"images": [object()], "videos": []})
    assert made.prompt == (Message("user", "look", media=(Media("images", at=4),)),)
    asked = [{"role": "user", "content": [{"type": "image"}, "look"]}]
    assert to_sample(asked, "a", row={"images": [object()]}).prompt == text_of(asked)


@pytest.mark.parametrize(
    ("talk", "prompt", "found"),
    [
        ([Message("user", "q"), *SAID], "q", ("q", SAID)),
        (SAID, "q", ("q", SAID)),
        (
            [Message("system", "s"), Message("user", "Q"), *SAID[:1]],
            "q",
            ((Message("system", "s"), Message("user", "Q")), "a"),
        ),
        ([Message("user", "q")], "q", ("q", "")),
        ("only text", "q", ("q", "only text")),
    ],
)
def test_a_conversation_is_split_behind_its_prompt(talk: Any, prompt: Any, found: Any) -> None:
    """Behind the prompt that is known; else before the first assistant message."""
    assert split(talk, prompt, "messages") == found


def test_what_is_left_out_is_said() -> None:
    """As a turn of its own."""
    assert omitted("2 other branches").role == "not shown: 2 other branches"


def checker(**judge: Any) -> RowCheck:
    return RowCheck(load({"judge": judge, "endpoint": {"url": "http://127.0.0.1:9/v1", "key_env": ""}}))


def test_a_column_that_no_row_has_is_an_error_once(tmp_path: Any) -> None:
    """It names what there is. Once a row had it, another without it is that row's matter."""
    (tmp_path / "t").write_text("{{columns.topic}} {{prompt}} {{response}}")
    check = checker(prompt_file=str(tmp_path / "t"))
    assert check.shown == ("topic",)
    with pytest.raises(ConfigError, match=r"columns.topic.*they have: level\)"):
        check.check({"level"}, False, "x")
    check.check({"topic"}, False, "x")
    check.check({"level"}, False, "x")


def test_bookkeeping_is_never_named(caplog: pytest.LogCaptureFixture) -> None:
    """Only columns of the user's own, and fields of messages that are not read."""
    caplog.set_level(logging.INFO, "referee.trainers")
    message = {"role": "user", "content": "x", "mood": "good", "trainable": True, "status": "done"}
    names = ["trainer_state", "uid", "tools", "images", "answer", "_ng_task", "level", "reference_answer"]
    check = checker()
    for _ in range(2):
        check.check(names, True, "x", [("prompts", [message])])
    assert [record.getMessage().partition(".")[0] for record in caplog.records] == [
        "not read: reference_answer",
        "not read: level, prompts[]",
    ]
    assert "prompts[].mood" in caplog.text
    assert [record.levelname for record in caplog.records] == ["WARNING", "INFO"]


def test_to_sample_counts_tokens() -> None:
    """Length from token ids, or as given; none otherwise."""
    assert to_sample("q", "a", ids=[1, 2, 3]).length == 3
    assert to_sample("q", "a", length=5).length == 5
    assert to_sample("q", "a").length is None


def test_to_samples_groups_by_prompt_and_keeps_order() -> None:
    """Interleaved prompts: rows stay in place, equal prompts share a group."""
    made = to_samples(["x", "y", "x"], ["1", "2", "3"], [[1], [2, 2], [3]], {"ground_truth": ["a", "b", None]}, 9)
    assert [sample.response for sample in made] == ["1", "2", "3"]
    assert made[0].group == made[2].group != made[1].group
    assert [sample.reference for sample in made] == ["a", "b", None]
    assert [sample.length for sample in made] == [1, 2, 1]
    assert {sample.step for sample in made} == {9}


def groups(*batch: Any, **more: Any) -> list[str]:
    return [sample.group for sample in to_samples(*batch, **more)]


def test_rows_of_one_size_are_groups_whatever_their_prompts_say() -> None:
    """Two groups with the same prompt stay two, and an environment may have changed the prompts inside of one."""
    texts = ["q"] * 4 + ["r"] * 2
    first, second, third = (groups(texts, list("abcdef"), size=2)[row] for row in (0, 2, 4))
    assert groups(texts, list("abcdef"), size=2) == [first, first, second, second, third, third]
    assert len({first, second, third}) == 3
    assert len({*groups(["q", "q too"], ["a", "b"], size=2)}) == 1
    assert len({*groups(texts, list("abcdef"))}) == 2


def test_a_rank_that_starts_inside_a_group_keeps_the_trainers_borders() -> None:
    """Rows 3 to 5 of a batch with groups of two: the first belongs to the group before."""
    one, two, three = groups(["q", "q", "q"], list("abc"), size=2, offset=3)
    assert one != two == three


def test_group_names_are_of_one_batch_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another step, rank, prompt or answer, or another order: other names. The same batch again: the same names."""
    batch = (["q", "q", "r"], ["a", "b", "c"], None, None)
    names = groups(*batch, 3)
    assert groups(*batch, 3) == names
    others = [
        groups(*batch, 4),
        groups(["q", "q", "s"], ["a", "b", "c"], None, None, 3),
        groups(["q", "q", "r"], ["a", "b", "d"], None, None, 3),
        groups(["r", "q", "q"], ["c", "a", "b"], None, None, 3),
    ]
    monkeypatch.setenv("RANK", "1")
    others.append(groups(*batch, 3))
    assert len({name for row in [names, *others] for name in row}) == 2 * 6


def test_columns_of_another_length_are_not_columns() -> None:
    """A setting that happens to be named like a column is left alone."""
    (made,) = to_samples(["x"], ["1"], None, {"label": "positive", "answer": ["a", "b"]})
    assert made.reference is None


def test_a_missing_completion_is_an_error_of_the_trainer() -> None:
    """Rows that do not match are never paired by chance."""
    with pytest.raises(ValueError, match="zip"):
        to_samples(["x", "y"], ["1"])


def test_rubrics_are_read_from_the_columns_they_come_in() -> None:
    """As TRL and verl hand them over; only where a judge has rubrics; a wrong one is named before anything is spent."""
    hub = {
        "reward_model": {"rubrics": [{"criterion": "Is kind.", "points": 3}, {"criterion": "Is rude.", "points": -2}]}
    }
    read = (Criterion("Is kind.", 3.0, "criterion 1"), Criterion("Is rude.", 2.0, "criterion 2", "bad"))
    assert to_sample("q", "a", row=hub, polarity="by_phrase").rubric == read
    assert to_sample("q", "a", row=hub).rubric == ()
    columns = {"rubric": [["Is kind."], ["Is short.", "Is kind."]]}
    found = to_samples(["q", "q"], ["a", "b"], columns=columns, polarity="by_phrase")
    assert [[criterion.text for criterion in sample.rubric] for sample in found] == [
        ["Is kind."],
        ["Is short.", "Is kind."],
    ]
    with pytest.raises(InputError, match=r"rubric\[0\].*Nothing was spent"):
        to_sample("q", "a", row={"rubric": [5]}, polarity="by_phrase")


def test_a_rubric_in_place_of_the_answer_is_no_answer() -> None:
    """open-instruct keeps it there; a judge that compares has nothing to compare with."""
    row = {"ground_truth": '{"rubrics": [{"description": "Is short.", "weight": 1}]}'}
    sample = to_sample("p", "r", row=row, polarity="by_phrase")
    assert [criterion.text for criterion in sample.rubric] == ["Is short."]
    assert sample.reference is None
    assert to_sample("p", "r", row={**row, "answer": "4"}, polarity="by_phrase").reference == "4"
    assert to_sample("p", "r", row=row).reference == row["ground_truth"]


class Made(Sequence[Any]):
    """Makes its rows when they are asked for, as datasets do."""

    def __len__(self) -> int:
        return 40

    def __getitem__(self, place: Any) -> Any:
        if place >= len(self):
            raise IndexError
        return [{"name": f"tool {place}"}]


def test_tools_of_a_column_that_is_made_row_by_row() -> None:
    """Each row has its own, though a list that is gone leaves its id to the next."""
    samples = to_samples(["p"] * 40, ["r"] * 40, columns={"tools": Made()})
    assert [sample.tools[0].name for sample in samples] == [f"tool {row}" for row in range(40)]
