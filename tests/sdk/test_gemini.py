"""Google's SDK against our simulated server, and against the bytes of our encoder: neither is ours to define."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import urlsplit

import pytest
from google import genai
from google.genai import errors, types
from tests.contracts.dialect_gemini import GEMINI
from tests.contracts.dialect_suite import IMAGE_ASK, SYSTEM, USER, ask
from tests.sdk.conftest import Serve
from tests.sdk.recorder import recording

from referee.config import EndpointConfig, Secret
from referee.records import Reply, Sampling
from referee.wire import PLAIN
from referee.wire.gemini import JSON_SCHEMA

KEY = "AIza-of-the-test-0123456789"
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"reason": {"type": "string"}, "score": {"type": "integer", "enum": [1, 2, 3]}},
    "required": ["reason", "score"],
    "additionalProperties": False,
}
TEXT = "[[quality=3]] Two plus two is four."
JSON: dict[str, Any] = {"response_mime_type": "application/json", "response_json_schema": SCHEMA}
FAULTS = {
    "throttle_none": (429, "RESOURCE_EXHAUSTED"),
    "quota": (429, "RESOURCE_EXHAUSTED"),
    "auth": (400, "INVALID_ARGUMENT"),
    "forbidden": (403, "PERMISSION_DENIED"),
    "unknown_model": (404, "NOT_FOUND"),
    "too_long": (400, "INVALID_ARGUMENT"),
    "http_500": (500, "INTERNAL"),
    "http_503": (503, "UNAVAILABLE"),
    "http_504": (504, "DEADLINE_EXCEEDED"),
}


def generate(url: str, text: str = TEXT, **config: Any) -> types.GenerateContentResponse:
    """A reply."""
    asked = types.GenerateContentConfig(max_output_tokens=64, **config)
    options = types.HttpOptions(base_url=url, api_version="v1beta")
    with genai.Client(api_key=KEY, http_options=options) as client:
        return client.models.generate_content(model="m", contents=text, config=asked)


def test_replies_are_what_the_sdk_expects(serve: Serve) -> None:
    """A verdict by schema after a thought, with log-probabilities and usage, all of which the SDK knows."""
    found = generate(serve(api="gemini", key=KEY), response_logprobs=True, logprobs=3, **JSON)
    assert json.loads(found.text or "")["score"] == 3
    assert (found.model_version, found.response_id) == ("m", "chatcmpl-sim-1")
    (candidate,) = found.candidates or []
    assert candidate.finish_reason is types.FinishReason.STOP
    assert candidate.logprobs_result is not None
    chosen, tops = candidate.logprobs_result.chosen_candidates, candidate.logprobs_result.top_candidates
    assert chosen
    assert tops
    assert len(chosen) == len(tops)
    assert "".join(token.token or "" for token in chosen) == found.text
    usage = found.usage_metadata
    assert usage is not None
    assert usage.total_token_count == sum(
        (usage.prompt_token_count or 0, usage.candidates_token_count or 0, usage.thoughts_token_count or 0)
    )


@pytest.mark.parametrize(
    ("fault", "finish"), [("content_filter", "SAFETY"), ("refusal", "PROHIBITED_CONTENT"), ("length", "MAX_TOKENS")]
)
def test_replies_that_are_no_answer(serve: Serve, fault: str, finish: str) -> None:
    """Filtered, refused and cut ones are told apart by the SDK's own fields."""
    (candidate,) = generate(serve(api="gemini", faults={fault: 1.0})).candidates or []
    assert candidate.finish_reason is types.FinishReason(finish)


def test_a_blocked_prompt_has_no_candidate(serve: Serve) -> None:
    """But a reason."""
    found = generate(serve(api="gemini", faults={"policy": 1.0}))
    assert not found.candidates
    assert found.prompt_feedback is not None
    assert found.prompt_feedback.block_reason is types.BlockedReason.PROHIBITED_CONTENT


@pytest.mark.parametrize("fault", FAULTS)
def test_errors_are_the_sdks(serve: Serve, fault: str) -> None:
    """Each fault has the code and the status that Google documents."""
    with pytest.raises(errors.APIError) as caught:
        generate(serve(api="gemini", faults={fault: 1.0}))
    assert (caught.value.code, caught.value.status) == FAULTS[fault]


OLDER = types.Schema(
    type=types.Type.OBJECT,
    properties={
        "reason": types.Schema(type=types.Type.STRING),
        "score": types.Schema(type=types.Type.INTEGER, minimum=1, maximum=3),
    },
    property_ordering=["reason", "score"],
    required=["reason", "score"],
)


@pytest.mark.parametrize(
    ("sampling", "adaptation", "config"),
    [
        (Sampling(max_tokens=64), PLAIN, {"temperature": 0.0}),
        (Sampling(max_tokens=64, temperature=None), PLAIN, {}),
        (
            Sampling(max_tokens=64, temperature=None, top_logprobs=5),
            PLAIN,
            {"response_logprobs": True, "logprobs": 5},
        ),
        (Sampling(max_tokens=64, temperature=None, schema=SCHEMA), PLAIN, JSON),
        (
            Sampling(max_tokens=64, temperature=None, schema=SCHEMA),
            frozenset({JSON_SCHEMA}),
            {"response_mime_type": "application/json", "response_schema": OLDER},
        ),
    ],
    ids=["text", "no temperature", "logprobs", "schema", "older schema"],
)
@pytest.mark.parametrize("tier", ["", "flex"])
def test_our_requests_are_the_sdks(
    sampling: Sampling, adaptation: frozenset[str], config: dict[str, Any], tier: Any
) -> None:
    """The same JSON to the same path, with the same key; the SDK also says whose the instruction is, which no one
    needs."""
    if tier:
        config = {**config, "service_tier": types.ServiceTier.FLEX}
    with recording(GEMINI.reply) as (url, sent):
        generate(url, USER, system_instruction=SYSTEM, **config)
    (request,) = sent
    assert request.body["systemInstruction"].pop("role") == "user"
    older = request.body["generationConfig"].get("responseSchema", {})
    if older:  # Google takes both spellings
        older["propertyOrdering"] = older.pop("property_ordering")
    endpoint = EndpointConfig(url=url, api="gemini", model="m", tier=tier)
    mine = json.loads(GEMINI.dialect.encoder(endpoint).encode(ask(sampling), adaptation))
    assert mine == request.body
    assert GEMINI.dialect.headers(Secret(KEY))["x-goog-api-key"] == request.headers["x-goog-api-key"]
    assert urlsplit(GEMINI.dialect.url(endpoint)).path == request.path


def test_the_same_verdict_in_both() -> None:
    """Our reader and the SDK see the same text, model and log-probabilities in a documented reply."""
    for body in (GEMINI.reply, GEMINI.logprobs_reply or b""):
        found = types.GenerateContentResponse.model_validate(json.loads(body))
        read = GEMINI.dialect.read(200, {}, body, 1e9)
        assert isinstance(read, Reply)
        assert (read.text, read.model) == (found.text, found.model_version)


def test_images_are_of_the_sdks_own_types() -> None:
    """By URL and in the request."""
    sent = json.loads(GEMINI.dialect.encoder(GEMINI.endpoint).encode(IMAGE_ASK))
    (content,) = [types.Content.model_validate(each) for each in sent["contents"]]
    kinds = [
        (bool(part.text), part.inline_data is not None, part.file_data is not None) for part in content.parts or []
    ]
    text = (True, False, False)
    assert kinds == [text, (False, True, False), text, (False, False, True), text]
