"""A parameter that a server does not take, in the words of many servers."""

from __future__ import annotations

import json

import pytest
from tests.wire.test_failure import UNFIT, failure, gemini, openai, vllm

INVALID = "invalid_request_error"
EXTRA = "Extra inputs are not permitted"
RENAMED = "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead."
ONLY_ONE = (
    "Unsupported value: 'temperature' does not support 0.0 with this model. Only the default (1) value is supported."
)
FORMAT = "Invalid parameter: 'response_format' of type 'json_schema' is not supported with this model."
REASONING = "logprobs are not supported with reasoning models."
FORBIDDEN = [{"type": "extra_forbidden", "loc": ["body", "response_format"], "msg": EXTRA}]
MISTRAL = {"object": "error", "message": {"detail": [{"loc": ["body", "logprobs"], "msg": EXTRA}]}}

UNSUPPORTED = [
    (openai(RENAMED, "unsupported_parameter", INVALID, "max_tokens"), "max_tokens"),
    (openai(RENAMED, "invalid_request_body"), "max_tokens"),
    (openai(ONLY_ONE, "unsupported_value", INVALID, "temperature"), "temperature"),
    (openai(FORMAT, None, INVALID), "response_format"),
    (openai("Invalid schema for response_format", None, INVALID, "response_format"), "response_format"),
    (openai("This response_format type is unavailable now", INVALID), "response_format"),
    (openai("Invalid input: response_format"), "response_format"),
    (vllm("The provided JSON schema contains features not supported by xgrammar."), "response_format"),
    (b'{"error":{"code":400,"message":"Failed to parse grammar","type":"invalid_request_error"}}', "response_format"),
    (openai("You are not allowed to request logprobs from this model"), "logprobs"),
    (openai("Unsupported parameter: 'top_logprobs'", "unsupported_parameter", None, "top_logprobs"), "logprobs"),
    (openai(REASONING, "unsupported_parameter", INVALID, "include"), "logprobs"),
    (openai("Unsupported value.", "unsupported_value", INVALID, "include[0]"), "logprobs"),
    (vllm("Requested sample logprobs of 20, which is greater than max allowed: 5"), "logprobs"),
    (gemini("INVALID_ARGUMENT", "Logprobs is not enabled for models/gemini-2.0-flash", code=400), "logprobs"),
    (vllm(f"[{{'type': 'extra_forbidden', 'loc': ('body', 'logprobs'), 'msg': '{EXTRA}'}}]"), "logprobs"),
    (json.dumps({"detail": FORBIDDEN}).encode(), "response_format"),
    (json.dumps(MISTRAL).encode(), "logprobs"),
    (openai("Unknown parameter: 'top_k'.", "unknown_parameter", None, "top_k"), "top_k"),
]


@pytest.mark.parametrize(("body", "name"), UNSUPPORTED)
@pytest.mark.parametrize("status", [400, 422])
def test_an_unsupported_parameter_is_named(status: int, body: bytes, name: str) -> None:
    """Codes where there are some, words of vLLM, llama.cpp, DeepSeek, Gemini and FastAPI where there are none."""
    found = failure(status, body)
    assert (found.reason, found.action, found.unsupported) == (*UNFIT, name)
    assert name in found.detail


@pytest.mark.parametrize(
    "message",
    [
        "max_tokens is too large: 5000. This model supports at most 4096 completion tokens.",
        "Invalid 'messages[1].content': string expected",
        "temperature must be non-negative, got -1",
    ],
)
def test_a_bad_value_is_not_an_unsupported_parameter(message: str) -> None:
    """Leaving a parameter out would hide a setting that is wrong."""
    found = failure(400, openai(message, "invalid_value", "invalid_request_error", "max_tokens"))
    assert (found.reason, found.action, found.unsupported) == (*UNFIT, "")
