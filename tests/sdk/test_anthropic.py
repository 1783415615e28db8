"""Anthropic's SDK against our simulated server, and against the bytes of our encoder: neither is ours to define."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import urlsplit

import anthropic
import pytest
from anthropic.types import Message, MessageParam
from pydantic import TypeAdapter
from tests.contracts.dialect_anthropic import ANTHROPIC
from tests.contracts.dialect_suite import IMAGE_ASK, SYSTEM, USER, ask
from tests.sdk.conftest import Serve
from tests.sdk.recorder import recording

from referee.config import EndpointConfig, Secret
from referee.records import Ask, Sampling
from referee.records import Message as Said
from referee.wire import PLAIN
from referee.wire.anthropic import CACHED_FROM, OUTPUT_CONFIG

KEY = "sk-ant-of-the-test-0123456789"
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"reason": {"type": "string"}, "score": {"type": "integer", "enum": [1, 2, 3]}},
    "required": ["reason", "score"],
    "additionalProperties": False,
}
TEXT = "[[quality=3]] Two plus two is four."
MESSAGES: list[Any] = [{"role": "user", "content": TEXT}]
FORMAT: Any = {"format": {"type": "json_schema", "schema": SCHEMA}}
TOOL: dict[str, Any] = {
    "tools": [{"name": "verdict", "input_schema": SCHEMA}],
    "tool_choice": {"type": "tool", "name": "verdict"},
}
FAULTS = {
    "throttle_none": anthropic.RateLimitError,
    "quota": anthropic.BadRequestError,
    "auth": anthropic.AuthenticationError,
    "forbidden": anthropic.PermissionDeniedError,
    "unknown_model": anthropic.NotFoundError,
    "too_long": anthropic.BadRequestError,
    "policy": anthropic.BadRequestError,
    "http_500": anthropic.InternalServerError,
    "http_529": anthropic.InternalServerError,
}


def client(url: str) -> anthropic.Anthropic:
    return anthropic.Anthropic(base_url=url, api_key=KEY, max_retries=0)


def create(url: str, **more: Any) -> Message:
    """A message, every field of which is checked by the SDK's own model."""
    wanted = {"model": "m", "max_tokens": 64, "messages": MESSAGES, "system": "Grade it.", **more}
    with client(url) as sdk:
        raw = sdk.messages.with_raw_response.create(**wanted)
        return Message.model_validate(json.loads(raw.text()))


def test_messages_are_what_the_sdk_expects(serve: Serve) -> None:
    """A verdict by schema after a thought, with usage."""
    found = create(serve(api="anthropic", key=KEY), output_config=FORMAT)
    assert [block.type for block in found.content] == ["thinking", "text"]
    (said,) = [block.text for block in found.content if block.type == "text"]
    assert json.loads(said)["score"] == 3
    assert (found.stop_reason, found.model) == ("end_turn", "m")
    assert found.usage.input_tokens > 0
    assert (found.usage.cache_read_input_tokens, found.usage.cache_creation_input_tokens) == (0, 0)


def test_a_forced_tool_is_used(serve: Serve) -> None:
    """The same verdict, as the tool's input."""
    found = create(serve(api="anthropic"), **TOOL)
    (used,) = [block for block in found.content if block.type == "tool_use"]
    assert (used.name, used.input["score"], found.stop_reason) == ("verdict", 3, "tool_use")


@pytest.mark.parametrize(
    ("fault", "stop"), [("refusal", "refusal"), ("content_filter", "refusal"), ("length", "max_tokens")]
)
def test_messages_that_are_no_answer(serve: Serve, fault: str, stop: str) -> None:
    """Refused, filtered and cut ones are told apart by the SDK's own fields."""
    found = create(serve(api="anthropic", faults={fault: 1.0}))
    assert found.stop_reason == stop
    assert (found.stop_details is not None) == (stop == "refusal")


@pytest.mark.parametrize("fault", FAULTS)
def test_errors_are_the_sdks_exceptions(serve: Serve, fault: str) -> None:
    """Each fault is the exception that a user of the SDK would catch, with a type that Anthropic documents."""
    with pytest.raises(FAULTS[fault]) as caught:
        create(serve(api="anthropic", faults={fault: 1.0}))
    assert str(caught.value.type).endswith("_error")


def ours(request: Ask, adaptation: frozenset[str] = PLAIN, **more: Any) -> dict[str, Any]:
    """What our encoder makes of a request."""
    endpoint = EndpointConfig(url="https://a.test", api="anthropic", model="m", **more)
    return dict(json.loads(ANTHROPIC.dialect.encoder(endpoint).encode(request, adaptation)))


def theirs(**given: Any) -> tuple[dict[str, Any], dict[str, str], str]:
    """What the SDK sends for the same, with headers and path. It has no argument for the temperature any more."""
    with recording(ANTHROPIC.reply) as (url, sent), client(url) as sdk:
        sdk.messages.create(model="m", max_tokens=64, **given)
    return sent[0].body, sent[0].headers, sent[0].path


PLAIN_ASK: dict[str, Any] = {"system": SYSTEM, "messages": [{"role": "user", "content": USER}]}


@pytest.mark.parametrize(
    ("sampling", "adaptation", "given"),
    [
        (Sampling(max_tokens=64, temperature=None), PLAIN, {}),
        (Sampling(max_tokens=64), PLAIN, {"extra_body": {"temperature": 0.0}}),
        (Sampling(max_tokens=64, temperature=None, top_logprobs=5), PLAIN, {}),
        (Sampling(max_tokens=64, temperature=None, schema=SCHEMA), PLAIN, {"output_config": FORMAT}),
        (Sampling(max_tokens=64, temperature=None, schema=SCHEMA), frozenset({OUTPUT_CONFIG}), TOOL),
    ],
    ids=["text", "temperature", "no log-probabilities", "schema", "tool"],
)
def test_our_requests_are_the_sdks(sampling: Sampling, adaptation: frozenset[str], given: dict[str, Any]) -> None:
    """The same JSON to the same path. The SDK is one version of the API ahead, and sends the key as a bearer token."""
    body, headers, path = theirs(**PLAIN_ASK, **given)
    assert ours(ask(sampling), adaptation) == body
    mine = ANTHROPIC.dialect.headers(Secret(KEY))
    assert {name: headers[name] for name in ("content-type", "accept")}.items() <= mine.items()
    assert headers["authorization"] == f"Bearer {mine['x-api-key']}"
    assert headers["anthropic-version"] >= mine["anthropic-version"]
    assert urlsplit(ANTHROPIC.posts_to).path == path


def test_the_marks_of_the_cache_are_the_sdks() -> None:
    """Of the system prompt and of the task."""
    system, task, answer = "Be strict. " * CACHED_FROM, "task " * CACHED_FROM + "\n\n", "The response n:\nfine"
    mark: Any = {"type": "ephemeral"}
    content: Any = [{"type": "text", "text": task, "cache_control": mark}, {"type": "text", "text": answer}]
    body, _, _ = theirs(
        system=[{"type": "text", "text": system, "cache_control": mark}],
        messages=[{"role": "user", "content": content}],
    )
    request = Ask(
        (Said("system", system), Said("user", task + answer)),
        Sampling(max_tokens=64, temperature=None),
        (),
        "response n",
        10,
    )
    assert ours(request, price_in=3.0, price_out=15.0, price_cached=0.3) == body


def test_the_same_verdict_in_both(serve: Serve) -> None:
    """Our reader and the SDK's see the same text, model and usage in one reply."""
    with client(serve(api="anthropic")) as sdk:
        raw = sdk.messages.with_raw_response.create(model="m", max_tokens=64, output_config=FORMAT, messages=MESSAGES)
    found, read = raw.parse(), ANTHROPIC.dialect.read(200, {}, raw.text().encode(), 1e9)
    assert read.text == "".join(block.text for block in found.content if block.type == "text")  # type: ignore[union-attr]
    assert read.tokens_in == found.usage.input_tokens  # type: ignore[union-attr]


def test_images_are_of_the_sdks_own_types() -> None:
    """By URL and in the request."""
    body = ours(IMAGE_ASK)
    adapter = TypeAdapter(list[MessageParam])
    (turn,) = adapter.validate_python(body["messages"])  # content is checked when it is looked at
    assert [block["type"] for block in turn["content"]] == ["text", "image", "text", "image", "text"]  # type: ignore[index]
