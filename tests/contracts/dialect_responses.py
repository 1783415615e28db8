"""The dialect `responses`: OpenAI's Responses API, as OpenAI documents it."""

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

INPUT = b'"store":false,"instructions":"Be strict.","input":[{"role":"user","content":"Judge \\"this\\"."}]}'
FORMAT = (
    b'"text":{"format":{"type":"json_schema","name":"grade","strict":true,"schema":'
    b'{"type":"object","properties":{"score":{"type":"integer"}},"required":["score"]}}},'
)
START = b'{"model":"judge-1","max_output_tokens":64,"temperature":0.0,'
THOUGHT = {
    "id": "rs_2",
    "type": "reasoning",
    "summary": [{"type": "summary_text", "text": '{"reason": "first idea", "score": 1}'}],
    "content": [{"type": "reasoning_text", "text": "a 1?"}],
}


def part(text: str, **more: object) -> Data:
    return {"type": "output_text", "text": text, "annotations": [], **more}


def message(*content: Data, **more: object) -> Data:
    return {"id": "msg_1", "type": "message", "status": "completed", "role": "assistant", "content": content, **more}


def response(*output: Data, status: str = "completed", **more: object) -> bytes:
    """A response object with everything that the reference shows."""
    return json.dumps(
        {
            "id": "resp_1",
            "object": "response",
            "created_at": 1_800_000_000,
            "status": status,
            "error": None,
            "incomplete_details": None,
            "instructions": "Be strict.",
            "max_output_tokens": 64,
            "model": "judge-1-2026-08-07",
            "output": output,
            "parallel_tool_calls": True,
            "previous_response_id": None,
            "reasoning": {"effort": None, "summary": None},
            "service_tier": "default",
            "store": False,
            "temperature": 0.0,
            "text": {"format": {"type": "text"}},
            "tool_choice": "auto",
            "tools": [],
            "top_p": 1.0,
            "truncation": "disabled",
            "usage": {
                "input_tokens": 100,
                "input_tokens_details": {"cached_tokens": 40, "cache_write_tokens": 10},
                "output_tokens": 20,
                "output_tokens_details": {"reasoning_tokens": 5},
                "total_tokens": 120,
            },
            "metadata": {},
            **more,
        }
    ).encode()


def _several(data: Data) -> None:
    content = data["output"][-1]["content"]
    content[:] = [part(REPLY_TEXT[:9]), part(REPLY_TEXT[9:])]


def _commented(data: Data) -> None:
    """Newer models comment on their way before they answer."""
    data["output"].insert(0, message(part('{"reason": "on my way", "score": 1}'), phase="commentary"))
    data["output"][-1]["phase"] = "final_answer"


TOPS = [{"token": "yes", "bytes": [121], "logprob": -0.105}, {"token": "no", "bytes": [110], "logprob": -2.303}]

RESPONSES = Case(
    api="responses",
    posts_to=f"https://{HOST}/v1/responses",
    key_header=("authorization", f"Bearer {KEY}"),
    text_request=START + INPUT,
    schema_request=START + FORMAT + INPUT,
    longer_request=b'{"model":"judge-1","max_output_tokens":128,"temperature":0.0,' + INPUT,
    logprobs_request=START + b'"include":["message.output_text.logprobs"],"top_logprobs":5,' + INPUT,
    no_temperature_request=b'{"model":"judge-1","max_output_tokens":64,' + INPUT,
    reply=response(message(part(REPLY_TEXT))),
    read=Reply(
        text=REPLY_TEXT,
        finish="completed",
        model="judge-1-2026-08-07",
        request_id="req_1",
        tokens_in=100,
        tokens_out=20,
        tokens_cached=40,
        tokens_cache_write=10,
        tier="default",
    ),
    refused=response(message({"type": "refusal", "refusal": "I'm sorry, I can't."})),
    truncated=response(
        message(part('{"reason": "it'), status="incomplete"),
        status="incomplete",
        incomplete_details={"reason": "max_output_tokens"},
    ),
    logprobs_reply=response(
        message(part("yes", logprobs=[{"token": "yes", "bytes": [121], "logprob": -0.105, "top_logprobs": TOPS}]))
    ),
    odd={
        "extra_fields": Odd(lambda data: data.update(moderation=None, background=False, billing={"payer": "me"})),
        "several_texts": Odd(_several),
        "thinking": Odd(lambda data: data["output"].insert(0, THOUGHT)),
        "null_usage": Odd(lambda data: data.update(usage=None), keeps_usage=False),
        "null_details": Odd(lambda data: data["usage"].update(input_tokens_details=None)),
        "commentary": Odd(_commented),
        "null_logprobs": Odd(lambda data: data["output"][-1]["content"][0].update(logprobs=None)),
    },
    empty={
        "output null": b'{"id": "resp_1", "status": "completed", "output": null}',
        "no output": response(),
        "only reasoning": response(THOUGHT),
        "all tokens thought": response(
            THOUGHT, status="incomplete", incomplete_details={"reason": "max_output_tokens"}
        ),
        "content null": response({**message(), "content": None}),
        "a tool call": response({"type": "function_call", "name": "f", "arguments": "{}", "call_id": "1"}),
        "in the background": response(status="queued"),
        "not a response": b'{"object": "list", "data": []}',
    },
    failing={
        "failed": Failing(
            200,
            response(status="failed", error={"code": "server_error", "message": "An error occurred."}),
            Reason.OVERLOADED,
        ),
        "failed without a word": Failing(200, response(status="failed"), Reason.OVERLOADED),
        "throttled in a 200": Failing(
            200,
            response(
                status="failed",
                error={"code": "rate_limit_exceeded", "message": "Rate limit reached. Please try again in 2.5s."},
            ),
            Reason.THROTTLED,
            retry_after=2.5,
        ),
        "policy in a 200": Failing(
            200,
            response(status="failed", error={"code": "invalid_prompt", "message": "Invalid prompt: flagged."}),
            Reason.REFUSED,
        ),
        "image in a 200": Failing(
            200,
            response(status="failed", error={"code": "invalid_base64_image", "message": "Not an image."}),
            Reason.CONFIG,
        ),
        "flex without room": Failing(
            429,
            b'{"error": {"message": "Resource unavailable", "type": "resource_unavailable", "code": '
            b'"resource_unavailable"}}',
            Reason.OVERLOADED,
        ),
        "too long": Failing(
            400,
            b'{"error": {"message": "Your input exceeds the context window of this model.", "type": '
            b'"invalid_request_error", "param": "input", "code": "context_length_exceeded"}}',
            Reason.TOO_LONG,
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
    + b'"store":false,"instructions":"Be strict.","input":[{"role":"user","content":['
    + f'{{"type":"input_text","text":"[{PNG_NAME}]:"}},'.encode()
    + f'{{"type":"input_image","image_url":"{PNG}","detail":"auto"}},'.encode()
    + f'{{"type":"input_text","text":"[{PHOTO_NAME}]:"}},'.encode()
    + f'{{"type":"input_image","image_url":"{PHOTO}","detail":"auto"}},'.encode()
    + b'{"type":"input_text","text":"Judge \\"this\\"."}]}]}',
    omits=("temperature", "response_format", "logprobs"),
)
