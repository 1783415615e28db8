"""What is sent: URL, headers, body."""

from __future__ import annotations

import json
from importlib.metadata import version
from typing import Any

import pytest

from referee.config import EndpointConfig, Secret
from referee.records import Ask, Message, Sampling
from referee.wire import CHAT, PLAIN, Adaptation, adapt

SCHEMA = {"type": "object", "properties": {"score": {"type": "integer"}}, "required": ["score"]}


def request(sampling: Sampling, text: str = "judge this") -> Ask:
    return Ask((Message("system", "be strict"), Message("user", text)), sampling, (), "n", 10)


def body(endpoint: EndpointConfig | None = None, **kwargs: Any) -> dict[str, Any]:
    sampling = kwargs.pop("sampling", Sampling())
    found: dict[str, Any] = json.loads(CHAT.encoder(endpoint or EndpointConfig()).encode(request(sampling), **kwargs))
    return found


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("https://h/v1/chat/completions", "https://h/v1/chat/completions"),
        ("https://h/v1/chat/completions/", "https://h/v1/chat/completions"),
        ("https://h/v1", "https://h/v1/chat/completions"),
        ("https://h/v1/", "https://h/v1/chat/completions"),
        ("https://h/v2", "https://h/v2/chat/completions"),
        ("https://h/v1beta/openai/", "https://h/v1beta/openai/chat/completions"),
        ("https://h", "https://h/v1/chat/completions"),
        ("https://h/", "https://h/v1/chat/completions"),
        ("http://127.0.0.1:8000", "http://127.0.0.1:8000/v1/chat/completions"),
    ],
)
def test_the_url_completes_what_is_given(given: str, expected: str) -> None:
    """A full URL stays, a base gets its tail, a bare host gets the usual path."""
    assert CHAT.url(EndpointConfig(url=given)) == expected
    assert CHAT.url(EndpointConfig(url=expected)) == expected


def test_headers_carry_the_key_and_refuse_compression() -> None:
    """The key goes in as a bearer token; no compressed answer is asked for."""
    found = CHAT.headers(Secret("sk-canary\n"))
    assert found["authorization"] == "Bearer sk-canary"
    assert found["accept-encoding"] == "identity"
    assert found["content-type"] == "application/json"
    assert "authorization" not in CHAT.headers(None)


def test_user_agent_names_this_version() -> None:
    """The version sent is the version released."""
    assert CHAT.headers(None)["user-agent"] == f"referee/{version('llm-referee')}"


def test_a_plain_request_holds_only_what_is_needed() -> None:
    """Model, messages, cap and temperature, and nothing a server might not know."""
    assert body() == {
        "model": "gpt-4o-mini",
        "messages": [{"role": "system", "content": "be strict"}, {"role": "user", "content": "judge this"}],
        "max_tokens": 512,
        "temperature": 0.0,
    }


def test_temperature_none_is_left_out() -> None:
    """A judge that takes no temperature is not sent one."""
    assert "temperature" not in body(sampling=Sampling(temperature=None))


def test_a_schema_becomes_a_strict_response_format() -> None:
    """Structured output is asked for strictly and by name."""
    found = body(sampling=Sampling(schema=SCHEMA, schema_name="grade"))["response_format"]
    assert found == {"type": "json_schema", "json_schema": {"name": "grade", "strict": True, "schema": SCHEMA}}


def test_logprobs_are_asked_for_in_both_fields() -> None:
    """top_logprobs without logprobs is refused by providers."""
    found = body(sampling=Sampling(top_logprobs=5))
    assert (found["logprobs"], found["top_logprobs"]) == (True, 5)


def test_max_tokens_can_be_raised_for_one_attempt() -> None:
    """A second try after a cut reply may use a larger cap."""
    assert body(max_tokens=1024)["max_tokens"] == 1024


def test_extra_fields_come_last() -> None:
    """The endpoint's own fields win over ours."""
    found = body(EndpointConfig(extra={"temperature": 0.7, "reasoning_effort": "low"}))
    assert (found["temperature"], found["reasoning_effort"]) == (0.7, "low")


def test_adaptations_leave_out_what_a_server_refuses() -> None:
    """Each learned refusal changes one thing in the body."""
    sampling = Sampling(schema=SCHEMA, top_logprobs=5)
    every = frozenset({"temperature", "response_format", "logprobs", "max_tokens"})
    found = body(sampling=sampling, adaptation=every)
    assert set(found) == {"model", "messages", "max_completion_tokens"}


@pytest.mark.parametrize("name", ["temperature", "response_format", "logprobs", "max_tokens"])
def test_adapt_goes_one_step_and_not_twice(name: str) -> None:
    """A refusal that is repeated after the adaptation cannot be helped."""
    once = adapt(CHAT, PLAIN, name)
    assert once is not None
    assert once != PLAIN
    assert adapt(CHAT, once, name) is None


@pytest.mark.parametrize("name", ["", "top_k", "max_completion_tokens", "messages"])
def test_adapt_declines_what_is_not_ours_to_leave_out(name: str) -> None:
    """Unknown parameters come from endpoint.extra or cannot be left out."""
    assert adapt(CHAT, PLAIN, name) is None


def test_half_a_surrogate_pair_does_not_stop_a_request() -> None:
    """A character cut in two by a tokenizer is replaced; a pair in two pieces becomes one character again."""
    raw = CHAT.encoder(EndpointConfig()).encode(request(Sampling(), "cut \ud83d here, whole \ud83d\ude00 there"))
    assert json.loads(raw)["messages"][1]["content"] == "cut \ufffd here, whole \U0001f600 there"


def test_the_dialect_is_named() -> None:
    """Cache keys hold it, so it must not change by accident."""
    assert CHAT.name == "openai-chat/1"


def test_an_encoder_notices_whatever_changes() -> None:
    """What requests have in common is encoded once; a change of any part of it is in the next body."""
    endpoint = EndpointConfig(model="m", extra={"seed": 7})
    encoder = CHAT.encoder(endpoint)
    text, schema = Sampling(max_tokens=9), Sampling(schema=SCHEMA, top_logprobs=3, temperature=None)
    bare = Ask((Message("user", "alone"),), text, (), "n", 10)
    other = Ask((Message("system", "be kind"), Message("user", "judge this")), text, (), "n", 10)
    steps: list[tuple[Ask, Adaptation, int | None]] = [
        (request(text), PLAIN, None),
        (request(text, 'another "one" \n é \ud800'), PLAIN, None),
        (request(text), PLAIN, 18),
        (request(schema), PLAIN, None),
        (request(schema), frozenset({"response_format", "logprobs"}), None),
        (bare, PLAIN, None),
        (other, PLAIN, None),
        (request(text), frozenset({"max_tokens"}), None),
    ]
    bodies = [encoder.encode(*step) for step in steps]
    assert bodies == [CHAT.encoder(endpoint).encode(*step) for step in steps]
    assert len(set(bodies)) == len(steps)
    for found, (asked, _, _) in zip(map(json.loads, bodies), steps, strict=True):
        assert [message["role"] for message in found["messages"]] == [message.role for message in asked.messages]
        assert (found["model"], found["seed"]) == ("m", 7)
    assert json.loads(bodies[1])["messages"][1]["content"] == 'another "one" \n é \ufffd'
