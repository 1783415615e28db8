"""What only the Responses API has; what all dialects promise is in tests/contracts/test_dialects.py."""

from __future__ import annotations

import json
from typing import Any

import pytest

from referee.config import EndpointConfig
from referee.errors import ConfigError
from referee.records import Ask, Message, Reply, Sampling
from referee.wire import RESPONSES


def body(*messages: Message, max_tokens: int = 64, **endpoint: Any) -> dict[str, Any]:
    asked = Ask(messages or (Message("user", "judge"),), Sampling(max_tokens=max_tokens), (), "n", 10)
    found: dict[str, Any] = json.loads(RESPONSES.encoder(EndpointConfig(**endpoint)).encode(asked))
    return found


def read(**fields: Any) -> Reply:
    found = RESPONSES.read(200, {}, json.dumps({"output": [], "status": "completed", **fields}).encode(), 0.0)
    assert isinstance(found, Reply)
    return found


def said(*parts: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"type": "message", "role": "assistant", "content": list(parts), **more}


def part(text: str, **more: Any) -> dict[str, Any]:
    return {"type": "output_text", "text": text, **more}


@pytest.mark.parametrize(
    "url",
    [
        "https://h/v1",
        "https://h",
        "https://h/v1/responses/",
        "https://h/v1/chat/completions",
        "https://h/v1/chat/completions/",
    ],
)
def test_the_url_of_the_same_servers_chat_leads_there_too(url: str) -> None:
    """The default endpoint.url is one of chat completions."""
    assert RESPONSES.url(EndpointConfig(url=url)) == "https://h/v1/responses"


def test_extra_is_added_and_never_overrides_a_setting() -> None:
    """Neither the token cap, which the budget goes by, nor the schema, beside which other fields of `text` stand."""
    asked = Ask((Message("user", "judge"),), Sampling(schema={"type": "object"}), (), "n", 10)
    extra = {"text": {"verbosity": "low"}, "reasoning": {"effort": "low"}}
    found = json.loads(RESPONSES.encoder(EndpointConfig(extra=extra)).encode(asked))
    assert found["text"]["verbosity"] == "low"
    assert found["text"]["format"]["type"] == "json_schema"
    assert found["reasoning"] == {"effort": "low"}
    assert body(extra=extra)["text"] == {"verbosity": "low"}
    for wrong in (
        *({"max_output_tokens": 9}, {"input": "x"}, {"instructions": "x"}, {"include": []}),
        *({"text": {"format": {"type": "text"}}}, {"text": "low"}),
    ):
        with pytest.raises(ConfigError, match=r"endpoint\.extra"):
            body(extra=wrong)


@pytest.mark.parametrize(("asked", "sent"), [(1, 16), (15, 16), (16, 16), (17, 17)])
def test_the_token_cap_is_at_least_what_the_api_takes(asked: int, sent: int) -> None:
    """A smaller one is refused with 400."""
    assert body(max_tokens=asked)["max_output_tokens"] == sent


def test_only_the_first_system_message_is_an_instruction() -> None:
    """Another one stays where it stands; without any there are no instructions."""
    found = body(Message("system", "one"), Message("system", "two"), Message("user", "judge"))
    assert found["instructions"] == "one"
    assert found["input"] == [{"role": "system", "content": "two"}, {"role": "user", "content": "judge"}]
    assert "instructions" not in body(Message("user", "judge"))
    assert body(Message("system", "alone"))["input"] == [{"role": "system", "content": "alone"}]


def test_storing_is_off_unless_it_is_asked_for() -> None:
    """What endpoint.extra says wins."""
    assert body()["store"] is False
    assert body(extra={"store": True})["store"] is True


@pytest.mark.parametrize(
    ("fields", "finish"),
    [
        ({"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}, "max_output_tokens"),
        ({"status": "incomplete", "incomplete_details": {"reason": "content_filter"}}, "content_filter"),
        ({"status": "incomplete", "incomplete_details": None}, "incomplete"),
        ({"status": "in_progress"}, "in_progress"),
        ({"status": "cancelled"}, "cancelled"),
        ({"status": None}, ""),
        ({"status": 7}, "7"),
    ],
)
def test_how_it_ended_is_read(fields: dict[str, Any], finish: str) -> None:
    """Why it is incomplete, where it is; a state that is no ending is passed on as it is."""
    assert read(**fields).finish == finish


def test_log_probabilities_with_a_gap_are_none() -> None:
    """One text without them would shift the places of the others."""
    token = {"token": "7", "logprob": -0.1, "top_logprobs": [{"token": "7", "logprob": -0.1}]}
    both = read(output=[said(part("7", logprobs=[token]), part("7", logprobs=[token]))])
    assert [choice.token for choice in both.choices] == ["7", "7"]
    assert read(output=[said(part("7", logprobs=[token]), part("7"))]).choices == ()


@pytest.mark.parametrize("output", [None, 7, "text", [None, 7], [{"type": "message", "content": "bare"}], [said(7)]])  # type: ignore[arg-type]
def test_output_of_another_shape_holds_no_text(output: Any) -> None:
    """It is read as empty, which no judge takes for a verdict."""
    assert read(output=output).text == ""


@pytest.mark.parametrize("name", ["output", "status", "error"])
def test_a_field_given_twice_says_two_things(name: str) -> None:
    """Neither is taken."""
    once = json.dumps({"output": [said(part("7"))], "status": "completed", "error": None})
    twice = f'{{"{name}": null, {once[1:]}'.encode()
    assert not isinstance(RESPONSES.read(200, {}, twice, 0.0), Reply)
