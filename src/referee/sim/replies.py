"""What a simulated provider puts on the wire: completions, errors, and every corrupted form of both. Nothing waits."""

from __future__ import annotations

import functools
import json
import math
import re
import zlib
from typing import Any, Literal, get_args

import msgspec
from msgspec import Struct

from referee.sim.api import CHAT, Api, ChatData
from referee.sim.chat import ChatRequest, Question
from referee.sim.judge import Answer, Value, write
from referee.sim.spec import Fault, RetryAfter

Wire = Literal["", "hang", "drip", "reset", "cut", "cut_silent", "huge", "bomb"]
"""Wire faults: none; no bytes at all; one byte at a time; connection reset; cut short of Content-Length; cut without a
Content-Length, so that it looks complete; endless; a gzip bomb."""

WIRES: dict[str, Wire] = {name: name for name in get_args(Wire) if name}
THROTTLES: dict[str, RetryAfter] = {f"throttle_{form}": form for form in get_args(RetryAfter)}

JSON = {"content-type": "application/json"}
FINGERPRINT = "fp_sim"
"""What it says of its own configuration, as OpenAI and llama.cpp do."""


class SimResponse(Struct, frozen=True):
    """A reply and its wire fault, which the transport (HTTP or in-process) implements."""

    status: int
    headers: dict[str, str]
    body: bytes
    wire: Wire = ""
    keep: int = 0
    """For cut and cut_silent: bytes of the body that are sent."""


# fault: status, error type, error code, message
STATUSES: dict[str, tuple[int, str, str | None, str]] = {
    "throttle": (429, "requests", "rate_limit_exceeded", "Rate limit reached for requests. Please try again later."),
    "slow_down": (429, "requests", "slow_down", "Please reduce the rate at which you increase your traffic."),
    "flex_full": (429, "resource_unavailable", "resource_unavailable", "Resource Unavailable: no flex capacity now."),
    "http_500": (500, "server_error", None, "The server had an error while processing your request."),
    "http_502": (502, "server_error", None, "Bad gateway."),
    "http_503": (503, "server_error", "server_is_overloaded", "The engine is currently overloaded, please try later."),
    "http_504": (504, "server_error", None, "Gateway timeout."),
    "http_529": (529, "overloaded_error", None, "Overloaded"),
    "http_408": (408, "server_error", None, "Request timeout."),
    "quota": (429, "insufficient_quota", "insufficient_quota", "You exceeded your current quota, check your plan."),
    "auth": (401, "invalid_request_error", "invalid_api_key", "Incorrect API key provided."),
    "forbidden": (403, "invalid_request_error", None, "You are not allowed to use this model."),
    "unknown_model": (404, "invalid_request_error", "model_not_found", "The model does not exist."),
    "too_long": (
        400,
        "invalid_request_error",
        "context_length_exceeded",
        "This model's maximum context length is exceeded by your messages.",
    ),
    "policy": (
        400,
        "invalid_request_error",
        "content_policy_violation",
        "Your request was rejected as a result of our safety system.",
    ),
    "unsupported": (400, "invalid_request_error", "unsupported_parameter", "Unsupported parameter."),
    "unknown_url": (404, "invalid_request_error", "unknown_url", "Unknown request URL."),
    "bad_request": (400, "invalid_request_error", None, "We could not parse the JSON body of your request."),
}
BODIES: dict[str, tuple[str, bytes]] = {
    "html": ("text/html", b"<!doctype html><html><body><h1>Please sign in</h1></body></html>"),
    "empty_body": ("application/json", b""),
}
IMMEDIATE = frozenset({*THROTTLES, *STATUSES, "hang", "redirect"})
"""Faults instead of service; the others corrupt a reply that was served and is billed."""
IMAGE_TOKENS = 765
"""What an image of 1024 by 1024 pixels is billed as."""
REFUSAL = "I'm sorry, but I can't help with that."
TOKEN = re.compile(r"\s*\w+|\s*[^\w\s]+|\s+")


def error(
    name: str, headers: dict[str, str] | None = None, param: str | None = None, say: str = "", api: Api = CHAT
) -> SimResponse:
    """An error status with the body that providers of this API send."""
    status, kind, code, message = STATUSES[name]
    status, body = api.error(status, kind, code, say or message, param)
    return SimResponse(status, {**JSON, **(headers or {})}, msgspec.json.encode(body))


def tokens(characters: int, per_token: float = 4.0) -> int:
    """A rough count, rounded up."""
    return math.ceil(characters / per_token)


def prompt_tokens(request: ChatRequest, per_token: float = 4.0) -> int:
    """Tokens of all messages, a few for their roles, and many for each image."""
    return sum(
        [tokens(len(m.text), per_token) + 4 + IMAGE_TOKENS * len(m.images) for m in request.messages],
    )


def completion(
    request: ChatRequest,
    answer: Answer,
    question: Question,
    *,
    asked: int,
    serial: int,
    created: int,
    fault: Fault | None = None,
    per_token: float = 4.0,
    hidden: int = 0,
    cached: int = 0,
    written: int = 0,
    api: Api = CHAT,
) -> tuple[bytes, int]:
    """The body of a completion in the form of `api`, corrupted by `fault`, and its completion tokens. `asked`: prompt
    tokens, of which `cached` came from the prompt cache and `written` went there; `per_token`: characters; `hidden`:
    tokens of hidden reasoning."""
    text, finish, message = _message(answer, question, fault)
    used = tokens(len(text), per_token) + hidden
    choice: dict[str, Any] = {"index": 0, "message": message, "logprobs": None, "finish_reason": finish}
    tool = request.response_format.tool if request.response_format is not None else ""
    if tool and finish == "stop" and text.startswith("{"):
        call = {"id": "call_1", "type": "function", "function": {"name": tool, "arguments": text}}
        choice |= {
            "message": {"role": "assistant", "content": None, "tool_calls": [call]},
            "finish_reason": "tool_calls",
        }
    if request.logprobs and text:
        choice["logprobs"] = {"content": _logprobs(text, answer, question, request.top_logprobs or 0)}
    body: ChatData = {
        "id": f"chatcmpl-sim-{serial}",
        "object": "chat.completion",
        "created": created,
        "model": request.model or "sim",
        "system_fingerprint": FINGERPRINT,
        "choices": None if fault == "no_choices" else [choice],
        "usage": {
            "prompt_tokens": asked,
            "completion_tokens": used,
            "total_tokens": asked + used,
            "prompt_tokens_details": {"cached_tokens": cached, "cache_write_tokens": written},
        },
    }
    if request.service_tier is not None:
        body["service_tier"] = "flex" if request.service_tier == "flex" else "default"
    return _corrupt(msgspec.json.encode(api.completion(body)), fault, api), used


def constant() -> tuple[bytes, int]:
    """The reply of a provider that ignores requests, and its completion tokens."""
    question = Question("schema", {}, ("reason", "score"), "score")
    answer = Answer(write(question, 7, "Constant."), 7)
    return completion(ChatRequest(messages=[]), answer, question, asked=0, serial=0, created=0)


def _message(answer: Answer, question: Question, fault: Fault | None) -> tuple[str, str, dict[str, Any]]:
    """The reply's text, finish reason and message."""
    text, finish = answer.text, "stop"
    message: dict[str, Any] = {"role": "assistant", "content": text}
    match fault:
        case "refusal":
            return "", finish, {"role": "assistant", "content": None, "refusal": REFUSAL}
        case "tool_call":
            call = {"id": "call_1", "type": "function", "function": {"name": "grade", "arguments": "{}"}}
            return "", "tool_calls", {"role": "assistant", "content": None, "tool_calls": [call]}
        case "content_filter":
            text, finish = "", "content_filter"
        case "length":
            text, finish = text[: max(1, len(text) // 2)], "length"
        case "empty_content":
            text = " \n"
        case "two_verdicts":
            text = f"{text}\n{write(question, _other(question, answer.value), 'On second thoughts.')}"
        case "label_missing" | "label_twice" | "label_unknown" if question.shown:
            pass  # the judge has confused them already
        case "no_verdict" | "label_missing" | "label_twice" | "label_unknown":
            text = '{"reason": "Hard to say."}' if question.form == "schema" else "This one is hard to judge."
        case "out_of_range":
            text = write(question, "splendid" if question.labels else question.high + 90, "Beyond the scale.")
        case "nan_score":
            text = write(question, math.nan, "Not a number.")
        case "duplicate_score":
            text = _twice(question, answer.value)
        case _:
            pass
    message["content"] = text
    return text, finish, message


def _other(question: Question, value: Value) -> Value:
    """A verdict that contradicts `value`."""
    if question.labels:
        return question.labels[-1] if value == question.labels[0] else question.labels[0]
    return question.low if value == question.high else question.high


def _twice(question: Question, value: Value) -> str:
    """The same key or tag with two values: a lenient reader would take one of them."""
    first, second = write(question, _other(question, value), "Twice."), write(question, value, "Twice.")
    if question.form != "schema":
        return f"{first}\n{second}"
    return f"{first[:-1]}, {json.dumps(question.key)}: {json.dumps(value)}}}"


def _corrupt(body: bytes, fault: Fault | None, api: Api) -> bytes:
    match fault:
        case "malformed":
            return body.replace(b'":', b'"', 1)
        case "nan_json":
            return b'%b,"cost":NaN}' % body[:-1]
        case "duplicate_keys":
            key, forged = api.forged
            return body.replace(key, forged + key, 1)
        case _:
            return body


def _logprobs(text: str, answer: Answer, question: Question, top: int) -> list[dict[str, Any]]:
    """Log-probabilities per token, with alternatives at the verdict."""
    verdict = str(answer.value)
    found: list[dict[str, Any]] = []
    for token in TOKEN.findall(text):
        shares = _shares(token, answer, question) if token.strip() == verdict else {token: 0.99}
        best = sorted(shares.items(), key=lambda item: -item[1])[:top]
        choices = [{"token": name, "logprob": math.log(share)} for name, share in best]
        found.append({"token": token, "logprob": math.log(shares[token]), "top_logprobs": choices})
    return found


def _shares(token: str, answer: Answer, question: Question) -> dict[str, float]:
    """Probabilities at the verdict token: spelling variants of it and the other labels; of a number, its neighbours."""
    sure = min(max(answer.confidence, 0.01), 0.99)
    lead = token[: len(token) - len(token.lstrip())]
    if isinstance(answer.value, int):
        near = [level for level in (answer.value - 1, answer.value + 1) if question.low <= level <= question.high]
        return {token: sure, **{f"{lead}{level}": (1 - sure) * 0.99 / len(near) for level in near}}
    shares = {token.strip() if lead else token.capitalize(): sure * 0.09}
    shares[token] = sure * 0.9
    others = [label for label in question.labels if label != answer.value]
    for label in others:
        shares[lead + label] = (1 - sure) * 0.99 / len(others)
    return shares


@functools.cache
def bomb(size: int) -> bytes:
    """A small gzip body that decompresses to `size` bytes of JSON white space."""
    pack = zlib.compressobj(9, zlib.DEFLATED, zlib.MAX_WBITS | 16)
    block = b" " * 65536
    parts = [pack.compress(block) for _ in range(size // len(block))]
    return b"".join(parts) + pack.compress(b"{}") + pack.flush()
