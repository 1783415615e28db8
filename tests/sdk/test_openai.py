"""OpenAI's SDK against our simulated servers, and against the bytes of our encoders: neither is ours to define."""

from __future__ import annotations

import json
from typing import Any

import openai
import pytest
from openai.types.chat import ChatCompletion
from openai.types.chat.completion_create_params import CompletionCreateParamsNonStreaming
from openai.types.responses import Response
from openai.types.responses.response_create_params import ResponseCreateParamsNonStreaming
from pydantic import TypeAdapter
from tests.contracts.dialect_chat import CHAT
from tests.contracts.dialect_responses import RESPONSES
from tests.contracts.dialect_suite import IMAGE_ASK, Case, ask
from tests.sdk.conftest import Serve

from referee.config import EndpointConfig
from referee.records import Sampling

KEY = "sk-of-the-test-0123456789"
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"reason": {"type": "string"}, "score": {"type": "integer", "minimum": 1, "maximum": 10}},
    "required": ["reason", "score"],
    "additionalProperties": False,
}
TEXT = "[[quality=8]] Two plus two is four."
MESSAGES: list[Any] = [{"role": "system", "content": "Grade it."}, {"role": "user", "content": TEXT}]
FAULTS = {
    "throttle_none": openai.RateLimitError,
    "quota": openai.RateLimitError,
    "auth": openai.AuthenticationError,
    "forbidden": openai.PermissionDeniedError,
    "unknown_model": openai.NotFoundError,
    "too_long": openai.BadRequestError,
    "policy": openai.BadRequestError,
    "http_500": openai.InternalServerError,
    "http_503": openai.InternalServerError,
}


def client(url: str) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{url}/v1", api_key=KEY, max_retries=0)


def test_chat_completions_are_what_the_sdk_expects(serve: Serve) -> None:
    """A verdict by schema with log-probabilities, and every required field of the SDK's own model."""
    form: Any = {"type": "json_schema", "json_schema": {"name": "verdict", "strict": True, "schema": SCHEMA}}
    raw = client(serve(key=KEY)).chat.completions.with_raw_response.create(
        model="m", messages=MESSAGES, response_format=form, logprobs=True, top_logprobs=3, max_tokens=50
    )
    found = ChatCompletion.model_validate(json.loads(raw.text))
    assert json.loads(found.choices[0].message.content or "")["score"] == 8
    assert found.choices[0].logprobs is not None
    assert found.choices[0].logprobs.content
    assert found.usage is not None
    assert found.usage.total_tokens == found.usage.prompt_tokens + found.usage.completion_tokens


def test_responses_are_what_the_sdk_expects(serve: Serve) -> None:
    """The same from the Responses API."""
    raw = client(serve(api="responses", key=KEY)).responses.with_raw_response.create(
        model="m",
        instructions="Grade it.",
        input=[{"role": "user", "content": TEXT}],
        text={"format": {"type": "json_schema", "name": "verdict", "strict": True, "schema": SCHEMA}},
        include=["message.output_text.logprobs"],
        top_logprobs=3,
        max_output_tokens=50,
        store=False,
    )
    found = Response.model_validate(json.loads(raw.text))
    assert json.loads(found.output_text)["score"] == 8
    assert found.status == "completed"
    (said,) = [item for item in found.output if item.type == "message"]
    (part,) = said.content
    assert part.type == "output_text"
    assert part.logprobs
    assert found.usage is not None
    assert found.usage.input_tokens > 0
    assert found.usage.input_tokens_details.cached_tokens == 0


@pytest.mark.parametrize(
    ("fault", "status", "kind", "reason"),
    [
        ("refusal", "completed", "refusal", None),
        ("length", "incomplete", "output_text", "max_output_tokens"),
        ("content_filter", "incomplete", "output_text", "content_filter"),
    ],
)
def test_responses_that_are_no_answer(serve: Serve, fault: str, status: str, kind: str, reason: str | None) -> None:
    """Refused, cut and filtered ones are told apart by the SDK's own fields."""
    raw = client(serve(api="responses", faults={fault: 1.0})).responses.with_raw_response.create(model="m", input=TEXT)
    found = Response.model_validate(json.loads(raw.text))
    assert found.status == status
    assert [part.type for item in found.output if item.type == "message" for part in item.content] == [kind]
    assert (found.incomplete_details and found.incomplete_details.reason) == reason


@pytest.mark.parametrize("api", ["chat", "responses"])
@pytest.mark.parametrize("fault", FAULTS)
def test_errors_are_the_sdks_exceptions(serve: Serve, api: str, fault: str) -> None:
    """Each fault is the exception that a user of the SDK would catch."""
    sdk = client(serve(api=api, faults={fault: 1.0}))
    create: Any = sdk.chat.completions.create if api == "chat" else sdk.responses.create
    with pytest.raises(FAULTS[fault]):
        create(model="m", **({"messages": MESSAGES} if api == "chat" else {"input": TEXT}))


SAMPLINGS = (
    Sampling(max_tokens=64),
    Sampling(max_tokens=64, temperature=None, top_logprobs=5),
    Sampling(max_tokens=64, schema=SCHEMA, schema_name="grade"),
)


@pytest.mark.parametrize("sampling", SAMPLINGS, ids=["text", "logprobs", "schema"])
@pytest.mark.parametrize(
    ("case", "params", "listed"),
    [
        (CHAT, CompletionCreateParamsNonStreaming, "messages"),
        (RESPONSES, ResponseCreateParamsNonStreaming, "input"),
    ],
    ids=["chat", "responses"],
)
def test_requests_are_of_the_sdks_own_types(case: Case, params: Any, listed: str, sampling: Sampling) -> None:
    """No field that the SDK does not know, and each of its type, images included."""
    endpoint = EndpointConfig(url=case.url, api=case.api, model="m", tier="flex")
    adapter: TypeAdapter[Any] = TypeAdapter(params)
    for request in (ask(sampling), IMAGE_ASK):
        body = json.loads(case.dialect.encoder(endpoint).encode(request))
        assert body.keys() <= params.__annotations__.keys()
        found = adapter.validate_python(body)
        items = list(found[listed])  # checked when they are looked at
        assert len(items) == len(body[listed])
        for item in items:
            assert isinstance(item["content"], str) or list(item["content"])
