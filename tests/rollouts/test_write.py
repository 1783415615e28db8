"""What records keep of a sample is read back as the same sample."""

from __future__ import annotations

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from referee.records import Criterion, Media, Message, Sample, Tool, ToolCall
from referee.rollouts import more_of, plain, read_rubric, read_text, read_tools
from referee.rollouts.row import read_row

WORDS = st.text(st.characters(codec="utf-8", exclude_characters="\r\n"), min_size=1, max_size=20)
MESSAGES = st.builds(
    Message,
    role=st.sampled_from(["user", "assistant", "tool", "system"]),
    content=WORDS,
    name=st.sampled_from(["", "search"]),
    reasoning=st.sampled_from(["", "I think."]),
    tool_calls=st.sampled_from([(), (ToolCall("search", '{"q": 1}'),)]),
)


@given(st.lists(MESSAGES, min_size=2, max_size=4).map(tuple))
def test_messages_come_back_as_they_were(messages: tuple[Message, ...]) -> None:
    """Roles, names, reasoning and tool calls."""
    kept = more_of(Sample(prompt="p", response=messages))
    assert read_text(kept["response"]) == messages


def test_what_is_not_text_comes_back_at_its_place() -> None:
    """Between, before and after pieces of text."""
    for message in (
        Message("user", "a\nb", media=(Media("image_url", "data:x", 1),)),
        Message("user", "ab", media=(Media("image_url", "u", 0), Media("document", "v", 2))),
        Message("user", media=(Media("input_audio", "", 0),)),
    ):
        kept = more_of(Sample(prompt=(message, Message("user", "so?")), response="r"))
        assert read_text(kept["prompt"]) == (message, Message("user", "so?"))


def test_tools_criteria_and_columns_come_back() -> None:
    """In a line of a file of rollouts."""
    tools = (Tool("search", "Finds pages.", '{"type":"object"}'), Tool("stop"))
    rubric = (
        Criterion("Says 4.", 2.0, "says"),
        Criterion("Is rude.", 1.0, "rude", true_is="bad", may_not_apply=True),
        Criterion("How long?", 1.0, "long", choices=("short", "long"), values=(0.0, 1.0)),
        Criterion("", 1.0, "words", check="max_words", parameters='{"most":5}'),
    )
    sample = Sample(
        prompt="p",
        response=(Message("user", "a"), Message("assistant", "b")),
        tools=tools,
        rubric=rubric,
        columns={"topic": "tides"},
    )
    kept = more_of(sample)
    assert read_tools(kept["tools"]) == tools
    assert read_rubric(kept["rubric"][:3]) == rubric[:3]
    columns = kept.pop("columns")
    line = msgspec.json.encode({**columns, "prompt": plain(sample.prompt), "id": "", **kept, "rubric": None})
    assert read_row(line, 1, ["topic"]) == msgspec.structs.replace(sample, rubric=())


def test_plain_text_needs_nothing_more() -> None:
    """Most ledgers are of such samples."""
    assert more_of(Sample(prompt="p", response="r")) == {}
