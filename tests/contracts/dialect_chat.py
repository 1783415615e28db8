"""The dialect `chat`: OpenAI's chat completions, as OpenAI, OpenRouter and DeepSeek document them."""

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

MESSAGES = b'"messages":[{"role":"system","content":"Be strict."},{"role":"user","content":"Judge \\"this\\"."}]}'
FORMAT = (
    b'"response_format":{"type":"json_schema","json_schema":{"name":"grade","strict":true,"schema":'
    b'{"type":"object","properties":{"score":{"type":"integer"}},"required":["score"]}}},'
)
START = b'{"model":"judge-1","max_tokens":64,"temperature":0.0,'


def completion(message: Data, finish: str = "stop", **more: object) -> bytes:
    """A completion as OpenRouter sends it: OpenAI's, with who answered."""
    choice = {"index": 0, "message": {"role": "assistant", **message}, "finish_reason": finish, **more}
    return json.dumps(
        {
            "id": "gen-1",
            "object": "chat.completion",
            "created": 1_800_000_000,
            "model": "openai/judge-1",
            "provider": "Azure",
            "system_fingerprint": "fp_44709d6fcb",
            "choices": [choice],
            "usage": {
                "prompt_tokens": 100,
                "completion_tokens": 20,
                "total_tokens": 120,
                "prompt_tokens_details": {"cached_tokens": 40, "cache_write_tokens": 10, "audio_tokens": 0},
                "completion_tokens_details": {"reasoning_tokens": 5},
            },
        }
    ).encode()


def _extra(data: Data) -> None:
    data["service_tier"] = "default"
    data["choices"][0]["native_finish_reason"] = "stop"
    data["choices"][0]["message"] |= {"annotations": [], "audio": None}


def _parts(data: Data) -> None:
    text = data["choices"][0]["message"]["content"]
    data["choices"][0]["message"]["content"] = [{"type": "text", "text": text[:9]}, {"type": "text", "text": text[9:]}]


def _thinking(data: Data) -> None:
    message = data["choices"][0]["message"]
    message["reasoning_content"] = '{"reason": "first idea", "score": 1}'
    message["content"] = [
        {"type": "thinking", "thinking": [{"type": "text", "text": "a 1?"}]},
        {"type": "text", "text": message["content"]},
    ]


YES = {
    "content": [
        {
            "token": "yes",
            "logprob": -0.105,
            "bytes": None,
            "top_logprobs": [
                {"token": "yes", "logprob": -0.105, "bytes": None},
                {"token": "no", "logprob": -2.303, "bytes": None},
            ],
        }
    ]
}

CHAT = Case(
    api="chat",
    posts_to=f"https://{HOST}/v1/chat/completions",
    key_header=("authorization", f"Bearer {KEY}"),
    text_request=START + MESSAGES,
    schema_request=START + FORMAT + MESSAGES,
    longer_request=b'{"model":"judge-1","max_tokens":128,"temperature":0.0,' + MESSAGES,
    logprobs_request=START + b'"logprobs":true,"top_logprobs":5,' + MESSAGES,
    no_temperature_request=b'{"model":"judge-1","max_tokens":64,' + MESSAGES,
    reply=completion({"content": REPLY_TEXT}),
    read=Reply(
        text=REPLY_TEXT,
        finish="stop",
        model="openai/judge-1",
        provider="Azure",
        fingerprint="fp_44709d6fcb",
        request_id="req_1",
        tokens_in=100,
        tokens_out=20,
        tokens_cached=40,
        tokens_cache_write=10,
    ),
    refused=completion({"content": None, "refusal": "I'm sorry, I can't."}),
    truncated=completion({"content": '{"reason": "it'}, "length"),
    logprobs_reply=completion({"content": "yes"}, logprobs=YES),
    odd={
        "extra_fields": Odd(_extra),
        "several_texts": Odd(_parts),
        "thinking": Odd(_thinking),
        "null_usage": Odd(lambda data: data.update(usage=None), keeps_usage=False),
        "null_details": Odd(lambda data: data["usage"].update(prompt_tokens_details=None)),
        "null_fingerprint": Odd(lambda data: data.update(system_fingerprint=None, provider=None)),
    },
    empty={
        "choices null": b'{"id": "1", "choices": null}',
        "no choices": b'{"id": "1", "choices": []}',
        "a choice that is null": b'{"id": "1", "choices": [null]}',
        "content null": completion({"content": None}),
        "a tool call": completion({"content": None, "tool_calls": [{"id": "1"}]}, "tool_calls"),
        "not a completion": b'{"object": "list", "data": []}',
    },
    failing={
        "quota": Failing(
            429,
            b'{"error": {"message": "You exceeded your current quota, please check your plan.", '
            b'"type": "insufficient_quota", "param": null, "code": "insufficient_quota"}}',
            Reason.QUOTA,
        ),
        "moderation": Failing(
            403,
            b'{"error": {"code": 403, "message": "Input was flagged", "metadata": {"reasons": ["violence"]}}}',
            Reason.REFUSED,
        ),
        "no provider, in a 200": Failing(
            200, b'{"error": {"code": 502, "message": "Provider returned error"}, "choices": []}', Reason.OVERLOADED
        ),
        "throttled": Failing(
            429,
            b'{"error": {"message": "Rate limit reached", "type": "requests", "code": "rate_limit_exceeded"}}',
            Reason.THROTTLED,
            {"retry-after-ms": "1500"},
            1.5,
        ),
    },
    rate_headers={
        "x-ratelimit-limit-requests": "100",
        "x-ratelimit-remaining-requests": "99",
        "x-ratelimit-reset-requests": "30s",
        "x-ratelimit-limit-tokens": "5000",
        "x-ratelimit-remaining-tokens": "4000",
        "x-ratelimit-reset-tokens": "6s",
    },
    image_request=START
    + b'"messages":[{"role":"system","content":"Be strict."},{"role":"user","content":['
    + f'{{"type":"text","text":"[{PNG_NAME}]:"}},{{"type":"image_url","image_url":{{"url":"{PNG}"}}}},'.encode()
    + f'{{"type":"text","text":"[{PHOTO_NAME}]:"}},{{"type":"image_url","image_url":{{"url":"{PHOTO}"}}}},'.encode()
    + b'{"type":"text","text":"Judge \\"this\\"."}]}]}',
    omits=("temperature", "response_format", "logprobs", "max_tokens"),
)
