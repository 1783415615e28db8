"""The dialect `anthropic`, beyond what the contract suite asks of all: other forms of a schema, the prompt cache's
marks, images, and replies of every shape."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.contracts.dialect_anthropic import error, message, text

from referee.config import EndpointConfig
from referee.errors import ConfigError
from referee.judging.read import json_object, visible
from referee.records import Ask, Failure, Message, Reason, Reply, Sampling, Unscored
from referee.sim.anthropic import ANTHROPIC as SERVER
from referee.wire import PLAIN, SCHEMA, adapt
from referee.wire.anthropic import ANTHROPIC, CACHED_FROM, OUTPUT_CONFIG

SHAPE: dict[str, Any] = {
    "type": "object",
    "properties": {
        "reason": {"type": "string", "maxLength": 400},
        "score": {"type": "integer", "minimum": 0, "maximum": 100},
        "parts": {"type": "array", "maxItems": 3, "items": {"type": "object", "properties": {"a": {"type": "null"}}}},
    },
    "required": ["reason", "score"],
}
PRICED = {"price_in": 3.0, "price_out": 15.0, "price_cached": 0.3, "price_cache_write": 3.75}


def body(*messages: Message, adaptation: frozenset[str] = PLAIN, nonce: str = "", **more: Any) -> dict[str, Any]:
    """The request for these messages; `more` is of the endpoint, but for `sampling`."""
    sampling = more.pop("sampling", Sampling())
    endpoint = EndpointConfig(url="https://a.test", model="m", api="anthropic", **more)
    sent = ANTHROPIC.encoder(endpoint).encode(Ask(messages, sampling, (), nonce, 10), adaptation)
    SERVER.request("/v1/messages", sent)  # the simulated server refuses what Anthropic would
    return dict(json.loads(sent))


def read(body: bytes, status: int = 200) -> Reply | Failure:
    return ANTHROPIC.read(status, {}, body, 1e9)


USER = Message("user", "Judge it.")


def test_the_version_is_a_header_and_no_beta_is_asked_for() -> None:
    """Structured outputs are generally available."""
    found = ANTHROPIC.headers(None)
    assert found["anthropic-version"] == "2023-06-01"
    assert not {"anthropic-beta", "authorization", "x-api-key"} & set(found)


def test_turns_alternate_and_the_system_prompt_is_apart() -> None:
    """However a judge splits its messages; what it calls developer is the system's too."""
    found = body(
        Message("system", "One."),
        Message("developer", "Two."),
        Message("user", "a"),
        Message("tool", "b"),
        Message("assistant", "c"),
        Message("user", "d"),
    )
    assert found["system"] == "One.\n\nTwo."
    assert [turn["role"] for turn in found["messages"]] == ["user", "assistant", "user"]
    assert found["messages"][0]["content"] == [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    assert "system" not in body(USER)


def test_a_schema_has_only_what_structured_outputs_take() -> None:
    """Bounds are left out, at any depth, and objects are closed; a reply off the scale is refused by its reader."""
    form = body(USER, sampling=Sampling(schema=SHAPE))["output_config"]["format"]
    assert form["type"] == "json_schema"
    assert form["schema"] == {
        "type": "object",
        "properties": {
            "reason": {"type": "string"},
            "score": {"type": "integer"},
            "parts": {
                "type": "array",
                "items": {"type": "object", "properties": {"a": {"type": "null"}}, "additionalProperties": False},
            },
        },
        "required": ["reason", "score"],
        "additionalProperties": False,
    }


def test_a_model_without_structured_outputs_must_use_a_tool() -> None:
    """The tool's input has the schema as it is; in text form there is neither."""
    asked = Sampling(schema=SHAPE, schema_name="grade")
    found = body(USER, sampling=asked, adaptation=frozenset({OUTPUT_CONFIG}))
    assert "output_config" not in found
    assert found["tools"] == [{"name": "grade", "input_schema": SHAPE}]
    assert found["tool_choice"] == {"type": "tool", "name": "grade"}
    found = body(USER, sampling=asked, adaptation=frozenset({OUTPUT_CONFIG, SCHEMA}))
    assert not {"output_config", "tools", "tool_choice"} & set(found)


def test_a_refused_schema_is_tried_as_a_tool_before_text() -> None:
    """One step for each refusal, and none after the last."""
    once = adapt(ANTHROPIC, PLAIN, SCHEMA)
    assert once == {OUTPUT_CONFIG}
    twice = adapt(ANTHROPIC, once, SCHEMA)
    assert twice == {OUTPUT_CONFIG, SCHEMA}
    assert adapt(ANTHROPIC, twice, SCHEMA) is None
    assert adapt(ANTHROPIC, PLAIN, "logprobs") is None


@pytest.mark.parametrize(
    ("said", "refused"),
    [
        ("output_config: Extra inputs are not permitted", SCHEMA),
        ("output_config.format.schema: For 'integer' type, properties maximum, minimum are not supported", SCHEMA),
        ("output_config.format.schema: 'additionalProperties' must be explicitly set to false", SCHEMA),
        ("'claude-3-5-haiku-20241022' does not support output format.", SCHEMA),
        ("output_format: This field is deprecated. Use 'output_config.format' instead.", SCHEMA),
        ("Thinking may not be enabled when tool_choice forces tool use.", SCHEMA),
        ("tools.0.custom.input_schema: JSON schema is invalid.", SCHEMA),
        ("Schema is too complex for compilation. Try reducing the number of tools.", SCHEMA),
        ("The compiled grammar is too large, which would cause performance issues.", SCHEMA),
        ("`temperature` is deprecated for this model.", "temperature"),
        ("`temperature` may only be set to 1 when thinking is enabled.", "temperature"),
        ("temperature: range: 0..1", ""),
        ("max_tokens: 100000 > 8192, which is the maximum allowed number of output tokens", ""),
        ("messages: at least one message is required", ""),
    ],
)
def test_what_a_400_refuses(said: str, refused: str) -> None:
    """In Anthropic's words. A temperature off the range is the user's to change, not ours to leave out."""
    found = read(error("invalid_request_error", said), 400)
    assert isinstance(found, Failure)
    assert (found.reason, found.unsupported) == (Reason.CONFIG, refused)


def test_extra_is_added_and_never_overrides_a_setting() -> None:
    """Effort stands beside the schema, in one table."""
    extra = {"output_config": {"effort": "low"}, "thinking": {"type": "adaptive"}}
    found = body(USER, sampling=Sampling(schema=SHAPE), extra=extra)
    assert set(found["output_config"]) == {"effort", "format"}
    assert found["thinking"] == {"type": "adaptive"}
    for wrong in ({"tools": []}, {"system": "x"}, {"output_config": {"format": {}}}, {"output_config": 1}):
        with pytest.raises(ConfigError, match=r"endpoint\.extra"):
            body(USER, extra=wrong)


TASK = f"The prompt:\n<<<prompt 0a1b\n{'word ' * CACHED_FROM}\n0a1b prompt>>>\n\n"
ANSWER = "The response to grade:\n<<<response f00d\nFine.\nf00d response>>>\n\nReply in JSON."
LONG = Message("system", "Be strict. " * CACHED_FROM)


def marked(found: dict[str, Any]) -> list[str]:
    """The texts that end at a mark."""
    blocks = [*found.get("system", []), *(b for turn in found["messages"] for b in turn["content"])]
    return [block["text"] for block in blocks if isinstance(block, dict) and "cache_control" in block]


def test_the_shared_beginning_is_marked_for_the_cache() -> None:
    """The system prompt, and the task up to the paragraph with the response's fence, if that saves money."""
    asked = (LONG, Message("user", TASK + ANSWER))
    found = body(*asked, nonce="f00d", **PRICED)
    assert marked(found) == [LONG.content, TASK]
    seen = SERVER.request("/v1/messages", json.dumps(found).encode())
    assert seen.cached_until == len(LONG.content) + len(TASK)
    assert "".join(block["text"] for block in found["messages"][0]["content"]) == TASK + ANSWER
    for prices in ({}, {**PRICED, "price_cached": 3.0}, {**PRICED, "price_cached": None}):
        assert marked(body(*asked, nonce="f00d", **prices)) == []
    together = body(*asked, nonce="f00d", **PRICED, prefix_cache="route")
    assert marked(together) == [LONG.content], "each of those sent together would pay for the write"


def test_a_response_with_several_questions_is_marked_too() -> None:
    """Up to its closing fence: what differs comes after."""
    asked = (Message("system", "Be strict."), Message("user", TASK + ANSWER))
    several = Ask(asked, Sampling(), (), "f00d", 10, prefixes=(("task", 5000), ("f00d", 5100)))
    endpoint = EndpointConfig(url="https://a.test", model="m", api="anthropic", **PRICED)
    found = json.loads(ANTHROPIC.encoder(endpoint).encode(several))
    assert marked(found) == [TASK, ANSWER.removesuffix("\n\nReply in JSON.")]
    assert "".join(block["text"] for block in found["messages"][0]["content"]) == TASK + ANSWER


def test_a_beginning_too_short_to_be_cached_is_not_marked() -> None:
    """Nor one whose end is not known."""
    brief = "The prompt:\n\n" + ANSWER
    assert marked(body(Message("system", "Be strict."), Message("user", brief), nonce="f00d", **PRICED)) == []
    assert marked(body(Message("user", TASK + ANSWER), nonce="", **PRICED)) == []
    assert marked(body(Message("user", TASK + ANSWER), nonce="absent", **PRICED)) == []
    assert marked(body(Message("user", "f00d" + TASK), nonce="f00d", **PRICED)) == []
    assert marked(body(Message("system", "Be strict."), Message("user", TASK + ANSWER), nonce="f00d", **PRICED)) == [
        TASK
    ]


@pytest.mark.parametrize(
    ("stop", "reason"),
    [
        ("end_turn", None),
        ("stop_sequence", None),
        ("tool_use", None),
        ("max_tokens", Reason.TRUNCATED),
        ("model_context_window_exceeded", Reason.TRUNCATED),
        ("pause_turn", Reason.TRUNCATED),
        ("refusal", Reason.REFUSED),
        ("a word of next year", Reason.TRUNCATED),
    ],
)
def test_every_stop_reason_is_an_ending_or_not(stop: str, reason: Reason | None) -> None:
    """Only those by which the model itself ended let the judge's reader look at the text."""
    found = read(message(text('{"score": 7}'), stop))
    assert isinstance(found, Reply)
    said = visible(found)
    assert (said.reason if isinstance(said, Unscored) else None) == reason


def test_a_refusal_is_told_with_its_reason() -> None:
    """Where Anthropic gives one."""
    details = {"type": "refusal", "category": "cyber", "explanation": "Not that."}
    found = read(message(text("I"), "refusal", stop_details=details))
    assert isinstance(found, Reply)
    assert found.refusal == "Not that."


def test_a_tools_input_is_read_as_strictly_as_text() -> None:
    """Two uses are two verdicts, a name twice is none, and a number that is none stays one."""
    used = {"type": "tool_use", "id": "t", "name": "verdict", "input": {"reason": "é", "score": 7}}
    found = read(message([used], "tool_use"))
    assert isinstance(found, Reply)
    assert json_object(found.text) == {"reason": "é", "score": 7}
    twice = read(message([used, used], "tool_use"))
    assert isinstance(twice, Reply)
    assert isinstance(json_object(twice.text), Unscored)
    doubled = read(message([used], "tool_use").replace(b'"score": 7', b'"score": 7, "score": 9'))
    assert isinstance(doubled, Failure)
    assert "'score' is given twice" in doubled.detail
    odd = read(message([used], "tool_use").replace(b'"score": 7', b'"score": NaN'))
    assert isinstance(odd, Reply)
    assert "NaN" in odd.text


@pytest.mark.parametrize("name", [b'"content"', b'"stop_reason"', b'"text"', b'"type"'])
def test_a_message_that_says_two_things_is_none(name: bytes) -> None:
    """Parsers differ in which of two they take."""
    whole = message(text('{"score": 7}'))
    found = read(whole.replace(name + b":", name + b': "x", ' + name + b":", 1))
    assert isinstance(found, Failure)
    assert found.reason is Reason.CONNECTION


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=8,
)
FIELDS = ("id", "model", "content", "stop_reason", "stop_details", "usage", "type", "error")


@given(st.dictionaries(st.sampled_from(FIELDS), ANYTHING), st.sampled_from([200, 400, 429, 529]))
def test_no_message_makes_it_raise(data: dict[str, Any], status: int) -> None:
    """Whatever stands in the fields that are read."""
    assert isinstance(read(json.dumps(data).encode(), status), Reply | Failure)


@given(st.lists(ANYTHING, max_size=3), ANYTHING)
def test_no_block_makes_it_raise(blocks: list[Any], given_input: Any) -> None:
    """Texts, tool uses and usage of any type."""
    odd = [
        {"type": kind, "text": value, "input": value} for value in blocks for kind in ("text", "tool_use", "thinking")
    ]
    found = read(json.dumps({"content": [*blocks, *odd], "usage": given_input}).encode())
    assert isinstance(found, Reply)


def test_no_depth_makes_it_raise() -> None:
    """Deeper than JSON can be written again."""
    deep = b"[" * 2000 + b"]" * 2000
    found = read(b'{"content": [{"type": "tool_use", "input": %b}]}' % deep)
    assert isinstance(found, Reply | Failure)
