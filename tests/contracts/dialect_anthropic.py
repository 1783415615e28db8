"""The dialect `anthropic`: the Messages API, as Anthropic documents it."""

from __future__ import annotations

import json

from tests.contracts.dialect_suite import (
    HOST,
    KEY,
    PHOTO,
    PHOTO_NAME,
    PNG,
    PNG_NAME,
    REPLY_TEXT,
    Case,
    Data,
    Failing,
    Odd,
)

from referee.records import Reason, Reply

MESSAGES = b'"system":"Be strict.","messages":[{"role":"user","content":"Judge \\"this\\"."}]}'
FORMAT = (
    b'"output_config":{"format":{"type":"json_schema","schema":{"type":"object","properties":{"score":'
    b'{"type":"integer"}},"required":["score"],"additionalProperties":false}}},'
)
START = b'{"model":"judge-1","max_tokens":64,"temperature":0.0,'


def message(content: list[Data], stop: str = "end_turn", **more: object) -> bytes:
    """A reply."""
    return json.dumps(
        {
            "id": "msg_01XFDUDYJgAACzvnptvVoYEL",
            "type": "message",
            "role": "assistant",
            "model": "judge-1-20261001",
            "content": content,
            "stop_reason": stop,
            "stop_sequence": None,
            "usage": {
                "input_tokens": 50,
                "cache_creation_input_tokens": 10,
                "cache_read_input_tokens": 40,
                "cache_creation": {"ephemeral_5m_input_tokens": 10, "ephemeral_1h_input_tokens": 0},
                "output_tokens": 20,
                "service_tier": "standard",
            },
            **more,
        }
    ).encode()


def text(said: str) -> list[Data]:
    """One block of text."""
    return [{"type": "text", "text": said}]


def error(kind: str, said: str, **more: object) -> bytes:
    """An error."""
    told = {"type": "error", "error": {"type": kind, "message": said, **more}, "request_id": "req_011CSHoEeqs5C35K2UUq"}
    return json.dumps(told).encode()


def _extra(data: Data) -> None:
    data |= {"container": None, "context_management": {"applied_edits": []}, "stop_details": None}
    data["content"][0]["citations"] = None
    data["usage"] |= {"server_tool_use": None, "inference_geo": "us", "output_tokens_details": {"thinking_tokens": 0}}


def _several(data: Data) -> None:
    said = data["content"][0]["text"]
    data["content"] = [*text(said[:9]), *text(said[9:])]


def _thinking(data: Data) -> None:
    data["content"] = [
        {
            "type": "thinking",
            "thinking": '{"reason": "first idea", "score": 1}',
            "signature": "EqQBCgIYAhIM1gbcDa9GJwZA",
        },
        {"type": "redacted_thinking", "data": "EmwKAhgBEgy3va3pzix/LafPsn4a"},
        *data["content"],
    ]


def _as_tool(data: Data) -> None:
    data["content"] = [{"type": "tool_use", "id": "toolu_1", "name": "grade", "input": json.loads(REPLY_TEXT)}]
    data["stop_reason"] = "tool_use"


def _prose_and_tool(data: Data) -> None:
    _as_tool(data)
    data["content"] = [*text("I will grade it now."), *data["content"]]


ANTHROPIC = Case(
    api="anthropic",
    posts_to=f"https://{HOST}/v1/messages",
    key_header=("x-api-key", KEY),
    text_request=START + MESSAGES,
    schema_request=START + FORMAT + MESSAGES,
    longer_request=b'{"model":"judge-1","max_tokens":128,"temperature":0.0,' + MESSAGES,
    logprobs_request=None,
    no_temperature_request=b'{"model":"judge-1","max_tokens":64,' + MESSAGES,
    reply=message(text(REPLY_TEXT)),
    read=Reply(
        text=REPLY_TEXT,
        finish="end_turn",
        model="judge-1-20261001",
        request_id="req_1",
        tokens_in=100,
        tokens_out=20,
        tokens_cached=40,
        tokens_cache_write=10,
    ),
    refused=message([], "refusal", stop_details={"type": "refusal", "category": "bio", "explanation": None}),
    truncated=message(text('{"reason": "it'), "max_tokens"),
    odd={
        "extra_fields": Odd(_extra),
        "several_texts": Odd(_several),
        "thinking": Odd(_thinking),
        "null_usage": Odd(lambda data: data.update(usage=None), keeps_usage=False),
        "as the input of a tool": Odd(_as_tool),
        "prose before the tool": Odd(_prose_and_tool),
        "a stop sequence": Odd(lambda data: data.update(stop_reason="stop_sequence", stop_sequence="END")),
    },
    empty={
        "content null": message(None),  # type: ignore[arg-type]
        "no content": message([]),
        "only thinking": message([{"type": "thinking", "thinking": '{"score": 9}', "signature": "x"}]),
        "a block that is null": message([None]),  # type: ignore[list-item]
        "text null": message([{"type": "text", "text": None}]),
        "not a message": b'{"object": "list", "data": []}',
    },
    failing={
        "credit": Failing(
            400,
            error("invalid_request_error", "Your credit balance is too low to access the Anthropic API. Please go to"),
            Reason.QUOTA,
        ),
        "billing": Failing(402, error("billing_error", "There is an issue with your payment method."), Reason.QUOTA),
        "spend limit": Failing(
            429,
            error("rate_limit_error", "Limit.", details={"error_code": "enforced_spend_limit_reached"}),
            Reason.QUOTA,
        ),
        "ramp": Failing(
            429,
            error("rate_limit_error", "Too fast.", details={"error_code": "ramp_limit_exceeded"}),
            Reason.THROTTLED,
            {"retry-after": "7"},
            7.0,
        ),
        "throttled": Failing(
            429,
            error("rate_limit_error", "This request would exceed your organization's rate limit of 50 requests."),
            Reason.THROTTLED,
            {"retry-after": "12"},
            12.0,
        ),
        "overloaded": Failing(529, error("overloaded_error", "Overloaded"), Reason.OVERLOADED),
        "overloaded, in a 200": Failing(200, error("overloaded_error", "Overloaded"), Reason.OVERLOADED),
        "internal": Failing(500, error("api_error", "Internal server error"), Reason.OVERLOADED),
        "timeout": Failing(504, error("timeout_error", "Request timed out"), Reason.OVERLOADED),
        "key": Failing(401, error("authentication_error", "invalid x-api-key"), Reason.AUTH),
        "permission": Failing(403, error("permission_error", "Your API key may not use it."), Reason.AUTH),
        "model": Failing(404, error("not_found_error", "model: judge-1"), Reason.CONFIG),
        "bytes": Failing(413, error("request_too_large", "Request exceeds the maximum size"), Reason.TOO_LONG),
        "tokens": Failing(
            400, error("invalid_request_error", "prompt is too long: 203078 tokens > 200000 maximum"), Reason.TOO_LONG
        ),
        "filter": Failing(
            400, error("invalid_request_error", "Output blocked by content filtering policy"), Reason.REFUSED
        ),
    },
    image_request=START
    + b'"system":"Be strict.","messages":[{"role":"user","content":['
    + f'{{"type":"text","text":"[{PNG_NAME}]:"}},'.encode()
    + b'{"type":"image","source":{"type":"base64","media_type":"image/png",'
    + f'"data":"{PNG.partition(",")[2]}"}}}},'.encode()
    + f'{{"type":"text","text":"[{PHOTO_NAME}]:"}},'.encode()
    + f'{{"type":"image","source":{{"type":"url","url":"{PHOTO}"}}}},'.encode()
    + b'{"type":"text","text":"Judge \\"this\\"."}]}]}',
    rate_headers={
        "anthropic-ratelimit-requests-limit": "100",
        "anthropic-ratelimit-requests-remaining": "99",
        "anthropic-ratelimit-requests-reset": "2027-01-15T08:00:30Z",
        "anthropic-ratelimit-tokens-limit": "5000",
        "anthropic-ratelimit-tokens-remaining": "4000",
        "anthropic-ratelimit-tokens-reset": "2027-01-15T08:00:06Z",
    },
)
