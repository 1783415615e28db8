"""Messages of every common format become the same records; what has an unknown shape is named by its place."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from referee.records import Media, Message, Sample, Tool, ToolCall
from referee.rollouts import (
    MessageError,
    ReadError,
    last_user,
    media_in,
    own_words,
    plain,
    read_rubric,
    read_text,
    read_tools,
)
from referee.rollouts.messages import unread_fields
from referee.rollouts.rubric import unread_rubric

CALL = ToolCall("search", '{"q":"tides"}')
AGENT = (
    Message("assistant", "Let me look.", reasoning="I do not know.", tool_calls=(CALL,)),
    Message("tool", "Two a day.", "search"),
    Message("assistant", "Two."),
)
"""One trajectory, as all formats below tell it."""
OPENAI = [
    {
        "role": "assistant",
        "content": "Let me look.",
        "reasoning_content": "I do not know.",
        "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "search", "arguments": '{"q":"tides"}'}}],
    },
    {"role": "tool", "tool_call_id": "c1", "content": "Two a day."},
    {"role": "assistant", "content": "Two."},
]
ANTHROPIC = [
    {
        "role": "assistant",
        "content": [
            {"type": "thinking", "thinking": "I do not know.", "signature": "x"},
            {"type": "text", "text": "Let me look."},
            {"type": "tool_use", "id": "c1", "name": "search", "input": {"q": "tides"}},
        ],
    },
    {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c1", "content": "Two a day."}]},
    {"role": "assistant", "content": [{"type": "text", "text": "Two."}]},
]
RESPONSES = [
    {"type": "reasoning", "summary": [{"type": "summary_text", "text": "I do not know."}]},
    {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Let me look."}]},
    {"type": "function_call", "call_id": "c1", "name": "search", "arguments": '{"q":"tides"}'},
    {"type": "function_call_output", "call_id": "c1", "output": "Two a day."},
    {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Two."}]},
]


@pytest.mark.parametrize("given", [OPENAI, ANTHROPIC], ids=["openai", "anthropic"])
def test_chat_formats_tell_the_same(given: Any) -> None:
    """Roles, names of tools, calls, results and reasoning survive; results are matched with their call by id."""
    assert read_text(given) == AGENT


def test_responses_items_keep_their_order() -> None:
    """OpenAI's Responses API keeps reasoning and calls beside the messages, and so do we."""
    assert read_text(RESPONSES) == (
        Message("assistant", reasoning="I do not know."),
        Message("assistant", "Let me look."),
        Message("assistant", tool_calls=(CALL,)),
        Message("tool", "Two a day.", "search"),
        Message("assistant", "Two."),
    )


def test_an_mcp_call_carries_its_result() -> None:
    """Both are in one item, and neither is lost."""
    item = {"type": "mcp_call", "id": "m", "name": "search", "arguments": "{}", "output": "Two a day.", "error": None}
    assert read_text([item]) == (
        Message("assistant", tool_calls=(ToolCall("search", "{}"),)),
        Message("tool", "Two a day.", "search"),
    )


@pytest.mark.parametrize(
    ("given", "read"),
    [
        ("text", "text"),
        ({"role": "assistant", "content": "yes"}, "yes"),
        ([{"role": "user", "content": "Hi"}], "Hi"),
        ([{"from": "human", "value": "Hi"}], "Hi"),
        ([{"role": "user", "content": ["a", {"type": "text", "text": "b"}]}], "a\nb"),
        ([{"role": "assistant", "content": None, "tool_calls": []}], ""),
        ([{"role": "assistant", "content": "", "refusal": "I can't."}], "I can't."),
        ([SimpleNamespace(role="user", content="object")], "object"),
        ([{"role": "assistant", "content": "42", "thinking": "hm"}], (Message("assistant", "42", reasoning="hm"),)),
        ([{"role": "assistant", "channel": "analysis", "content": "hm"}], (Message("assistant", reasoning="hm"),)),
        ([{"role": "tool", "name": "add", "content": "5"}], (Message("tool", "5", "add"),)),
        (
            [{"from": "function_call", "value": "add(2, 3)"}],
            (Message("assistant", tool_calls=(ToolCall("", "add(2, 3)"),)),),
        ),
        (
            [{"role": "assistant", "content": None, "function_call": {"name": "add", "arguments": {"b": 1, "a": 2}}}],
            (Message("assistant", tool_calls=(ToolCall("add", '{"a":2,"b":1}'),)),),
        ),
        (
            [{"role": "user", "content": ["see ", {"type": "image_url", "image_url": {"url": "http://x/y"}}, "this"]}],
            (Message("user", "see \nthis", media=(Media("image_url", "http://x/y", 4),)),),
        ),
        (
            [{"role": "user", "content": "hear", "audio": {"id": "a"}}],
            (Message("user", "hear", media=(Media("audio", "", 4),)),),
        ),
    ],
)
def test_every_shape_is_read(given: Any, read: Any) -> None:
    """One message of nothing but text is that text; everything else keeps what it holds."""
    assert read_text(given) == read


@pytest.mark.parametrize(
    ("given", "where"),
    [
        (5, "response"),
        (None, "response"),
        ([], "response"),
        (["not", "messages"], "response[0]"),
        ([{"content": "x"}], "response[0].role"),
        ([{"role": 5, "content": "x"}], "response[0].role"),
        ([{"role": "user", "content": 5}], "response[0].content"),
        ([{"role": "user", "content": [{}]}], "response[0].content[0]"),
        ([{"role": "model", "parts": [{"text": "Gemini's"}]}], "response[0].parts"),
        ([{"role": "assistant", "tool_calls": [{"function": {}}]}], "response[0].tool_calls[0].name"),
        ([{"role": "assistant", "tool_calls": "search"}], "response[0].tool_calls"),
        ([{"type": "web_search_call"}], "response[0]"),
    ],
)
def test_an_unknown_shape_is_named_by_its_place(given: Any, where: str) -> None:
    """Nothing is guessed and nothing is dropped."""
    with pytest.raises(MessageError) as caught:
        read_text(given, "response")
    assert caught.value.where == where


def test_tools_of_both_apis_are_read() -> None:
    """OpenAI's with a function inside, Anthropic's flat, and JSON text of either, as datasets keep them."""
    schema = {"type": "object", "properties": {"q": {"type": "string"}}}
    openai = [{"type": "function", "function": {"name": "search", "description": "Looks up.", "parameters": schema}}]
    anthropic = [{"name": "search", "description": "Looks up.", "input_schema": schema}]
    expected = (Tool("search", "Looks up.", '{"properties":{"q":{"type":"string"}},"type":"object"}'),)
    assert read_tools(openai) == read_tools(anthropic) == expected
    assert read_tools('[{"name": "search"}]') == (Tool("search"),)
    for wrong in ("not JSON", 5, [{}]):
        with pytest.raises(MessageError, match="tools"):
            read_tools(wrong)


def test_people_read_all_of_it() -> None:
    """The plain text of a trajectory, as ledger and report show it."""
    assert plain(AGENT) == (
        "assistant, reasoning:\nI do not know.\n\nassistant:\nLet me look.\n\nassistant calls search:\n"
        '{"q":"tides"}\n\nresult of search:\nTwo a day.\n\nassistant:\nTwo.'
    )
    assert own_words(AGENT) == 'I do not know.\nLet me look.\n{"q":"tides"}\nTwo.'
    assert last_user((Message("user", "a"), Message("assistant", "b"), Message("user", "c"))) == "c"


def test_what_is_not_text_keeps_its_place() -> None:
    """A line says what stood there, between the texts it stood between."""
    seen = (Message("user", "before\nafter", media=(Media("image_url", "u", 6),)), Message("assistant", "ok"))
    assert plain(seen).startswith("user:\nbefore\n[image_url, not shown]\nafter\n\nassistant")
    assert media_in(Sample(prompt=seen, response="r")) == ("prompt[0]", "image_url")
    assert media_in(Sample(prompt="p", response="r")) is None


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["role", "content", "type", "text", "tool_calls", "function", "name", "id"]), inner
        )
    ),
    max_leaves=12,
)


@given(json_values)
def test_any_json_is_read_or_refused(value: Any) -> None:
    """Nothing raises anything but a MessageError, and what is read is read the same again."""
    try:
        found = read_text(value)
    except MessageError:
        return
    assert read_text(found) == found
    plain(found)


class Array:
    """Like numpy's: it has a length and no truth value, and is compared element by element."""

    def __init__(self, *items: Any) -> None:
        self._items = items

    def __len__(self) -> int:
        return len(self._items)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._items)

    def __bool__(self) -> bool:
        raise ValueError("The truth value of an array with more than one element is ambiguous.")

    def __eq__(self, other: object) -> Any:
        return Array(*[item == other for item in self._items])

    __hash__ = None  # type: ignore[assignment]


def test_arrays_are_read_like_lists() -> None:
    """Trainers keep columns as arrays: fields that hold one, or an empty one, stop nothing."""
    calls = Array({"function": {"name": "f", "arguments": "{}"}}, {"function": {"name": "g", "arguments": "{}"}})
    message = {
        "role": "assistant",
        "content": "Hm.",
        "tool_calls": calls,
        "images": Array(),
        "thinking": Array("a", "b"),
    }
    [read] = read_text([message])
    assert isinstance(read, Message)
    assert [call.name for call in read.tool_calls] == ["f", "g"]
    assert read.reasoning == "a\nb"
    assert read.media == ()
    assert unread_fields([{**message, "more": Array(1, 2), "none": Array()}]) == {"more"}
    item = {"criterion": "Is short.", "points": 1, "category": Array("x", "y"), "check": Array(), "more": Array(1, 2)}
    [criterion] = read_rubric([item])
    assert criterion.text == "Is short."
    assert unread_rubric({"rubric": [item]}) == ({"rubric"}, ["rubric[].more"])
    with pytest.raises(ReadError, match="true_is"):
        read_rubric([{"criterion": "Is short.", "true_is": Array("good", "bad")}])


def test_thoughts_may_be_a_list_of_parts() -> None:
    """Anthropic's blocks in a field of their own."""
    [read] = read_text([{"role": "assistant", "content": "4", "reasoning_content": [{"thinking": "2 + 2"}]}])
    assert isinstance(read, Message)
    assert read.reasoning == "2 + 2"
