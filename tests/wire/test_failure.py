"""Every answer a provider gives, and what it is worth: one row per case."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from referee.records import Action, Failure, Reason, Reply
from referee.wire import CHAT
from referee.wire.times import MAX_DELAY

WALL = 1_700_000_000.0
HTML = b"<!DOCTYPE html><html><head><title>502 Bad Gateway</title></head></html>"


def openai(message: str = "", code: str | None = None, kind: str | None = None, param: str | None = None) -> bytes:
    return json.dumps({"error": {"message": message, "type": kind, "param": param, "code": code}}).encode()


def vllm(message: str, kind: str = "BadRequestError", code: int = 400) -> bytes:
    return json.dumps({"object": "error", "message": message, "type": kind, "param": None, "code": code}).encode()


def gemini(status: str, message: str, details: list[Any] | None = None, code: int = 429) -> bytes:
    error = {"code": code, "message": message, "status": status, "details": details or []}
    return json.dumps([{"error": error}]).encode()


def failure(status: int, body: bytes = b"", headers: dict[str, str] | None = None) -> Failure:
    found = CHAT.read(status, headers or {}, body, WALL)
    assert isinstance(found, Failure)
    return found


PARK = (Reason.THROTTLED, Action.PARK)
QUOTA = (Reason.QUOTA, Action.CLOSE)
AUTH = (Reason.AUTH, Action.CLOSE)
WRONG = (Reason.CONFIG, Action.CLOSE)
UNFIT = (Reason.CONFIG, Action.GIVE_UP)
LONG = (Reason.TOO_LONG, Action.GIVE_UP)
REFUSED = (Reason.REFUSED, Action.GIVE_UP)
BUSY = (Reason.OVERLOADED, Action.BACK_OFF)
GLITCH = (Reason.CONNECTION, Action.RETRY)
EMPTY = (Reason.EMPTY, Action.ASK_AGAIN)

RETRY_INFO = [{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "34s"}]
QUOTA_CODES = [
    "insufficient_quota",
    "credit_balance_exhausted",
    "organization_spend_limit_exceeded",
    "project_spend_limit_exceeded",
    "organization_usage_limit_exceeded",
    "enforced_spend_limit_reached",
]

ALIBABA = (
    "You exceeded your current quota. For details, see: https://help.aliyun.com/zh/model-studio/error-code#token-limit"
)

CASES: list[tuple[str, int, bytes, tuple[Reason, Action]]] = [
    # Throttled
    ("429 plain", 429, openai("Rate limit reached", "rate_limit_exceeded", "requests"), PARK),
    ("429 empty", 429, b"", PARK),
    ("429 page", 429, HTML, PARK),
    ("429 slow_down", 429, openai("Slow down", "slow_down"), PARK),
    ("503 slow_down", 503, openai("Slow down", "slow_down"), PARK),
    (
        "429 Gemini quota text with a delay",
        429,
        gemini("RESOURCE_EXHAUSTED", "You exceeded your quota", RETRY_INFO),
        PARK,
    ),
    ("429 Gemini without a delay", 429, gemini("RESOURCE_EXHAUSTED", "Resource has been exhausted"), PARK),
    ("429 Cerebras refilling quota", 429, openai("Tokens per minute limit", "token_quota_exceeded"), PARK),
    ("429 Alibaba label", 429, openai("x", "Throttling.AllocationQuota", "insufficient_quota"), PARK),
    ("429 Alibaba link", 429, openai(ALIBABA, "insufficient_quota", "insufficient_quota"), PARK),
    ("403 Google rate limit", 403, openai("x", None, "rateLimitExceeded"), PARK),
    # Out of money
    *((f"429 {code}", 429, openai("No", code, code), QUOTA) for code in QUOTA_CODES),
    ("403 insufficient_quota", 403, openai("No", "insufficient_quota"), QUOTA),
    (
        "400 Anthropic credit",
        400,
        openai("Your credit balance is too low to access the API", None, "invalid_request_error"),
        QUOTA,
    ),
    (
        "400 Anthropic spend limit",
        400,
        openai("You have reached your specified API usage limits. You will regain"),
        QUOTA,
    ),
    ("402", 402, b"", QUOTA),
    ("402 DeepSeek", 402, openai("Insufficient Balance", "invalid_request_error"), QUOTA),
    ("402 Gemini with a delay", 402, gemini("FAILED_PRECONDITION", "billing", RETRY_INFO, 402), QUOTA),
    ("400 Arrearage", 400, openai("Access denied", "Arrearage"), QUOTA),
    ("429 Moonshot", 429, openai("x", None, "exceeded_current_quota_error"), QUOTA),
    # Key
    ("401", 401, openai("Incorrect API key provided", "invalid_api_key"), AUTH),
    ("401 empty", 401, b"", AUTH),
    ("401 page", 401, HTML, AUTH),
    ("403", 403, openai("Country not supported", "unsupported_country_region_territory"), AUTH),
    ("403 empty", 403, b"", AUTH),
    (
        "400 Gemini bad key",
        400,
        gemini("INVALID_ARGUMENT", "API key not valid. Please pass a valid API key.", code=400),
        AUTH,
    ),
    # Model and URL
    ("404 model", 404, openai("The model `gpt-9` does not exist", "model_not_found"), WRONG),
    ("404 vLLM model", 404, vllm("The model `x` does not exist.", "NotFoundError", 404), WRONG),
    ("404 url", 404, b'{"detail":"Not Found"}', WRONG),
    ("404 page", 404, HTML, WRONG),
    ("404 Ollama", 404, b'{"error":"model \\"x\\" not found, try pulling it first"}', WRONG),
    ("400 DeepSeek model", 400, openai("Model Not Exist", "invalid_request_error"), WRONG),
    ("400 OpenRouter model", 400, b'{"error":{"message":"foo/bar is not a valid model ID","code":400}}', WRONG),
    ("405", 405, b"", WRONG),
    ("407 proxy", 407, b"", WRONG),
    ("410", 410, b"", WRONG),
    ("415", 415, b"", WRONG),
    ("501", 501, b"", WRONG),
    ("301", 301, b"", WRONG),
    ("302", 302, HTML, WRONG),
    ("307", 307, b"", WRONG),
    ("308", 308, b"", WRONG),
    ("304", 304, b"", WRONG),
    (
        "400 Gemini location",
        400,
        gemini("FAILED_PRECONDITION", "User location is not supported for the", code=400),
        WRONG,
    ),
    (
        "400 Anthropic disabled",
        400,
        openai("This organization has been disabled.", None, "invalid_request_error"),
        AUTH,
    ),
    # One request
    ("400 Anthropic sum", 400, openai("input length and `max_tokens` exceed context limit: 199000 + 4096"), LONG),
    ("400 other", 400, openai("Invalid role", "invalid_value", "invalid_request_error"), UNFIT),
    ("400 empty", 400, b"", UNFIT),
    ("422 other", 422, b'{"detail":[{"loc":["body","messages"],"msg":"field required"}]}', UNFIT),
    ("400 context", 400, openai("too many", "context_length_exceeded"), LONG),
    (
        "400 vLLM context",
        400,
        vllm("This model's maximum context length is 4096 tokens. However, you requested 5000"),
        LONG,
    ),
    ("400 llama.cpp context", 400, b'{"error":{"code":400,"message":"big","type":"exceed_context_size_error"}}', LONG),
    (
        "500 llama.cpp context",
        500,
        b'{"error":{"code":500,"message":"Context size has been exceeded.","type":"server_error"}}',
        LONG,
    ),
    ("413", 413, HTML, LONG),
    ("413 Groq", 413, openai("Request too large for model", "rate_limit_exceeded", "tokens"), LONG),
    ("429 never fits", 429, openai("Request too large for gpt-4o on tokens per min", "rate_limit_exceeded"), LONG),
    ("400 content filter", 400, openai("The response was filtered", "content_filter"), REFUSED),
    (
        "400 Azure policy",
        400,
        b'{"error":{"code":null,"message":"x","innererror":{"code":"ResponsibleAIPolicyViolation"}}}',
        REFUSED,
    ),
    ("400 policy in words", 400, openai("Your request was rejected by our safety system"), REFUSED),
    ("400 DashScope inspection", 400, openai("x", "data_inspection_failed"), REFUSED),
    (
        "403 OpenRouter moderation",
        403,
        b'{"error":{"code":403,"message":"flagged","metadata":{"reasons":["violence"]}}}',
        REFUSED,
    ),
    ("403 firewall page", 403, HTML, REFUSED),
    ("400 Groq output check", 400, openai("x", "json_validate_failed"), (Reason.SCHEMA, Action.ASK_AGAIN)),
    # Not now
    *((f"{status}", status, b"", BUSY) for status in (408, 409, 424, 425, 499, 500, 502, 503, 504, 520, 524, 529)),
    ("498", 498, b"", (Reason.OVERLOADED, Action.WAIT)),
    ("503 page", 503, HTML, BUSY),
    ("503 overloaded", 503, openai("x", "server_is_overloaded"), BUSY),
    ("529 Anthropic", 529, b'{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}', BUSY),
    (
        "503 llama.cpp loading",
        503,
        b'{"error":{"code":503,"message":"Loading model","type":"unavailable_error"}}',
        BUSY,
    ),
    # Not an answer
    ("200 page", 200, HTML, GLITCH),
    ("200 empty", 200, b"", GLITCH),
    ("200 blank", 200, b" \n ", GLITCH),
    ("204", 204, b"", GLITCH),
    ("200 words", 200, b"upstream connect error", GLITCH),
    ("200 cut", 200, b'{"choices":[{"message":{"content":"8', GLITCH),
    ("200 other JSON", 200, b'{"ok":true}', GLITCH),
    ("200 number", 200, b"5", GLITCH),
    ("200 null", 200, b"null", GLITCH),
    ("200 empty list", 200, b"[]", GLITCH),
    ("200 too deep", 200, b"[" * 100_000, GLITCH),
    ("199", 199, b"", GLITCH),
    ("999", 999, b"", GLITCH),
    ("0", 0, b"", GLITCH),
    ("200 stream", 200, b'data: {"choices":[]}\n\n', WRONG),
    # No choice
    ("200 no choices", 200, b'{"choices":[]}', EMPTY),
    ("200 null choices", 200, b'{"choices":null}', EMPTY),
    ("200 choice without message", 200, b'{"choices":[{"index":0}]}', EMPTY),
    ("200 null choice", 200, b'{"choices":[null]}', EMPTY),
    # An error inside a 200
    ("200 error 429", 200, b'{"error":{"message":"x","code":429}}', PARK),
    ("200 error 402", 200, b'{"error":{"message":"Insufficient credits","code":402}}', QUOTA),
    ("200 error 502", 200, b'{"error":{"message":"x","code":502}}', BUSY),
    ("200 error by label", 200, openai("x", "invalid_api_key"), AUTH),
    ("200 error rate label", 200, openai("x", "rate_limit_exceeded"), PARK),
    ("200 error invalid", 200, openai("x", None, "invalid_request_error"), UNFIT),
    ("200 error in words", 200, b'{"error":"something broke"}', BUSY),
    ("200 vLLM error", 200, vllm("This model's maximum context length is 10"), LONG),
    ("200 error in choice", 200, b'{"choices":[{"error":{"code":502,"message":"x"},"message":{"content":"8"}}]}', BUSY),
    (
        "200 error beside choices",
        200,
        b'{"error":{"code":429,"message":"x"},"choices":[{"message":{"content":"8"}}]}',
        PARK,
    ),
]


@pytest.mark.parametrize(("status", "body", "expected"), [c[1:] for c in CASES], ids=[c[0] for c in CASES])
def test_every_answer_has_a_meaning(status: int, body: bytes, expected: tuple[Reason, Action]) -> None:
    """Reason and action, from the codes first, the status next, the words last."""
    found = failure(status, body)
    assert (found.reason, found.action) == expected
    assert found.detail


@pytest.mark.parametrize(
    "quoted",
    ["insufficient_quota", "Your credit balance is too low", "invalid api key", "The model x does not exist", "401"],
)
def test_words_quoted_from_a_rollout_close_nothing(quoted: str) -> None:
    """An error that quotes the request cannot be made to stop the run by what the policy wrote."""
    found = failure(400, openai(f"Invalid content: '{quoted}' at position 7", "invalid_value"))
    assert found.action is Action.GIVE_UP


@pytest.mark.parametrize(
    ("headers", "body", "expected"),
    [
        ({"retry-after": "7"}, b"", 7.0),
        ({"retry-after-ms": "250"}, b"", 0.25),
        ({"retry-after": "Tue, 14 Nov 2023 22:13:50 GMT"}, b"", 30.0),
        ({"retry-after": "1e9"}, b"", MAX_DELAY),
        ({"retry-after": "-3"}, b"", None),
        ({"retry-after": "junk"}, openai("Please try again in 2s."), 2.0),
        ({}, gemini("RESOURCE_EXHAUSTED", "x", RETRY_INFO), 34.0),
        ({"retry-after": "5"}, gemini("RESOURCE_EXHAUSTED", "x", RETRY_INFO), 5.0),
        ({}, gemini("RESOURCE_EXHAUSTED", "x", [{"retryDelay": "90000s"}]), MAX_DELAY),
        ({}, openai("Please try again in 120ms."), 0.12),
        ({}, b"", None),
    ],
)
def test_the_delay_a_server_asks_for(headers: dict[str, str], body: bytes, expected: float | None) -> None:
    """The header first, then the body's field, then its words; absurd ones capped."""
    assert failure(429, body, headers).retry_after == expected


def test_an_overloaded_server_may_name_a_delay_too() -> None:
    """Retry-After counts on a 503 as on a 429."""
    assert failure(503, b"", {"retry-after": "3"}).retry_after == 3.0


@pytest.mark.parametrize(
    ("status", "advice", "expected"),
    [
        (429, "false", (Reason.THROTTLED, Action.GIVE_UP)),
        (503, "false", (Reason.OVERLOADED, Action.GIVE_UP)),
        (400, "true", BUSY),
        (401, "true", AUTH),
        (402, "true", QUOTA),
        (429, "maybe", PARK),
    ],
)
def test_the_server_may_say_whether_to_retry(status: int, advice: str, expected: tuple[Reason, Action]) -> None:
    """x-should-retry overrules the guess, but does not reopen what is closed."""
    found = failure(status, b"", {"x-should-retry": advice})
    assert (found.reason, found.action) == expected


def test_a_failure_tells_what_is_known() -> None:
    """Status, code and request id are kept for the ledger."""
    body = openai("Slow", "rate_limit_exceeded")
    found = failure(429, body, {"x-request-id": "req_1"})
    assert (found.status, found.code, found.request_id) == (429, "rate_limit_exceeded", "req_1")
    assert found.detail == "429 rate_limit_exceeded: Slow"


@pytest.mark.parametrize(
    ("status", "headers", "setting"),
    [
        (401, {}, "endpoint.key_env"),
        (402, {}, "endpoint.key_env"),
        (404, {}, "endpoint.model"),
        (302, {"location": "https://other/v1?token=canary"}, "endpoint.url"),
        (407, {}, "endpoint.proxy"),
    ],
)
def test_a_closing_failure_names_the_setting(status: int, headers: dict[str, str], setting: str) -> None:
    """Whoever reads the error learns where to look, and no secret."""
    found = failure(status, b"", headers)
    assert setting in found.detail
    assert "canary" not in found.detail


@pytest.mark.parametrize("status", [200, 302, 400, 401, 403, 404, 429, 500])
def test_a_key_in_an_answer_does_not_show(status: int) -> None:
    """Providers echo keys in messages, codes and places nobody thought of."""
    canary = "sk-canary0123456789abcdef"
    for body in (
        openai(f"Incorrect API key provided: {canary}.", canary, canary, canary),
        f"key {canary}".encode(),
        f'{{"detail":"{canary}"}}'.encode(),
        f"<html>{canary}</html>".encode(),
    ):
        found = failure(status, body, {"location": f"https://{canary}@x/?key={canary}"})
        assert "canary" not in repr(found)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(
                [
                    "error",
                    "message",
                    "code",
                    "type",
                    "detail",
                    "loc",
                    "choices",
                    "content",
                    "usage",
                    "logprobs",
                    "status",
                ]
            )
            | st.text(max_size=5),
            inner,
            max_size=5,
        )
    ),
    max_leaves=20,
)
HEADERS = st.dictionaries(
    st.sampled_from(["retry-after", "retry-after-ms", "date", "x-should-retry", "x-request-id", "location"]),
    st.text(max_size=40),
)


@given(st.integers(0, 999), HEADERS, st.binary(max_size=200) | JSON.map(lambda data: json.dumps(data).encode()))
@settings(max_examples=400, deadline=None)
def test_no_answer_raises(status: int, headers: dict[str, str], body: bytes) -> None:
    """Whatever comes back is a Reply or a Failure, and only a 2xx is a Reply."""
    found = CHAT.read(status, headers, body, WALL)
    assert isinstance(found, Reply | Failure)
    if isinstance(found, Reply):
        assert 200 <= status < 300
    else:
        assert found.retry_after is None or 0 <= found.retry_after <= MAX_DELAY
        assert len(found.detail) < 500
