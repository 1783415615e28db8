"""Prompts and completions in every shape trainers use become the same text."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from referee.trainers.rows import last_user, reference_of, text_of, to_sample, to_samples

TALK = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi?"}]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("plain", "plain"),
        (None, ""),
        ([], ""),
        (7, "7"),
        ([{"role": "assistant", "content": "yes"}], "yes"),
        ({"role": "assistant", "content": "yes"}, "yes"),
        (TALK, "system: Be brief.\n\nuser: Hi?"),
        ([SimpleNamespace(role="user", content="object")], "object"),
        ([{"role": "user", "content": [{"type": "text", "text": "see"}, {"type": "image"}]}], "see\n[image]"),
        ([{"role": "user", "content": {"type": "text", "text": "one part"}}], "one part"),
        ([{"role": "assistant", "content": None}], ""),
        (
            [{"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "add", "arguments": "{}"}}]}],
            "[calls add({})]",
        ),
        (["not", "messages"], "['not', 'messages']"),
    ],
)
def test_text_of(value: Any, text: str) -> None:
    """Text, messages as mappings or objects, parts, tool calls."""
    assert text_of(value) == text


def test_last_user() -> None:
    """The last question; the whole text where nobody is named."""
    assert last_user(TALK) == "Hi?"
    assert last_user("just text") == "just text"
    assert last_user([{"role": "system", "content": "alone"}]) == "alone"


def test_reference_of() -> None:
    """The first known column that holds something, as text."""
    assert reference_of({"ground_truth": "4", "label": "5"}) == "4"
    assert reference_of({"answer": 4}) == "4"
    assert reference_of({"reference": None, "solution": "x"}) == "x"
    assert reference_of({"difficulty": "hard"}) is None


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
