"""Completions and error objects of unusual shape, field by field."""

from __future__ import annotations

import json
from typing import Any

import pytest

from referee.records import Action, Failure, Reason, Reply
from referee.wire import CHAT, error_body

TEXT: list[dict[str, str]] = [{"type": "text", "text": "8"}]


def read(request_id: str = "", logprobs: Any = None, **more: Any) -> Reply:
    data = {"choices": [{"message": {"content": TEXT}, "finish_reason": "stop", "logprobs": logprobs}], **more}
    found = CHAT.read(200, {"x-request-id": request_id}, json.dumps(data).encode(), 0.0)
    assert isinstance(found, Reply)
    return found


@pytest.mark.parametrize(
    ("count", "counted"), [(0, 0), (1, 1), (10**9, 10**9), (10**9 + 1, 0), (2 * 10**9, 0), (-1, 0), (None, 0)]
)
def test_usage_is_believed_within_reason(count: int | None, counted: int) -> None:
    """One token counts; more than a billion in one request is nonsense and counts as not given."""
    usage = {"prompt_tokens": count, "completion_tokens": count, "prompt_tokens_details": {"cached_tokens": count}}
    found = read(usage=usage)
    assert (found.tokens_in, found.tokens_out, found.tokens_cached) == (counted, counted, counted)


def test_cached_tokens_stand_in_either_field() -> None:
    """OpenAI's place first, then DeepSeek's."""
    both = {"prompt_tokens_details": {"cached_tokens": 5}, "prompt_cache_hit_tokens": 9}
    assert read(usage=both).tokens_cached == 5
    assert read(usage={"prompt_cache_hit_tokens": 9}).tokens_cached == 9
    assert read(usage={"prompt_tokens_details": {"cached_tokens": 5}}).tokens_cached == 5


def test_the_headers_request_id_comes_first() -> None:
    """The body's own serves where there is none."""
    assert read("req_1", id="chat_1").request_id == "req_1"
    assert read("", id="chat_1").request_id == "chat_1"
    assert read("req_1").request_id == "req_1"


@pytest.mark.parametrize(
    ("logprob", "is_read"),
    [
        (0, True),
        (-3, True),
        (-0.5, True),
        (2**53 - 1, True),
        (2**53, False),
        (2**60, False),
        (True, False),
        ("0", False),
    ],
)
def test_whole_log_probabilities_are_numbers_too(logprob: object, is_read: bool) -> None:
    """0 is how some servers write certainty; beyond what a float holds exactly it is none."""
    content = [{"token": "yes", "top_logprobs": [{"token": "yes", "logprob": logprob}]}]
    (choice,) = read(logprobs={"content": content}).choices
    assert [token for token, _ in choice.top] == (["yes"] if is_read else [])


@pytest.mark.parametrize(
    ("data", "holds"),
    [
        ([{"error": "no"}], True),
        ([{"choices": []}], False),
        ([], False),
        ({"object": "error"}, True),
        ({"type": "error"}, True),
        ({"error": None}, False),
        ("error", False),
        (None, False),
    ],
)
def test_an_error_object_is_known(data: object, holds: bool) -> None:
    """Gemini wraps it in a list."""
    assert error_body.holds_error(data) is holds


@pytest.mark.parametrize(
    ("value", "status"),
    [
        (400, 400),
        (599, 599),
        (399, 0),
        (600, 0),
        ("400", 400),
        ("503", 503),
        ("0503", 0),
        ("50", 0),
        ("5xx", 0),
        (None, 0),
    ],
)
def test_a_status_inside_is_three_digits_from_400(value: object, status: int) -> None:
    """Written as a number or as text."""
    assert error_body.read({"error": {"status": value}}).status == status


@pytest.mark.parametrize("code", ["error", "429", "", None])
def test_a_label_that_says_nothing_is_none(code: str | None) -> None:
    """The type then is the telling one."""
    said = error_body.read({"error": {"code": code, "type": "rate_limit"}})
    assert (said.code, list(said.labels)) == ("rate_limit", ["rate_limit"])


def test_fastapis_list_names_the_first_field() -> None:
    """As words for people, and as the parameter for the next attempt."""
    items = [
        {"loc": [], "msg": "broken"},
        {"loc": ["body", "logprobs"], "msg": "extra inputs"},
        {"loc": ["body", "seed"], "msg": "extra inputs"},
    ]
    said = error_body.read({"detail": items})
    assert said.param == "logprobs"
    assert said.message == ": broken; logprobs: extra inputs; seed: extra inputs"


ONE, TWO = '{"message": {"content": "1"}}', '{"message": {"content": "2"}}'


@pytest.mark.parametrize(
    "body",
    [
        f'{{"choices": [{ONE}], "choices": [{TWO}]}}',
        f'{{"choices": [{ONE}], "model": "m", "choices": []}}',
        '{"choices": [{"message": {"content": "1", "content": "2"}}, {"message": {}}]}',
        '{"choices": [{"message": {"content": "1"}, "message": {"content": "2"}}]}',
        '{"choices": [{"message": {"content": "1", "role": "assistant", "content": "2"}}]}',
        '{"choices": [{"message": {"content": "1", "content": null}, "logprobs": null}]}',
        '{"choices": [{"message": {"content": "1", "content": "2"}, "logprobs": {"content": []}}]}',
        '{"choices": [{"message": {"content": "1", "content": "2"}, "logprobs": {}}]}',
        '{"choices": [{"message": {"content": ["1"], "content": ["2"]}}]}',
    ],
)
def test_a_completion_that_says_two_things_is_malformed(body: str) -> None:
    """Which of two values a parser takes is its own affair; neither is a verdict."""
    found = CHAT.read(200, {}, body.encode(), 0.0)
    assert isinstance(found, Failure)
    assert (found.reason, found.action) == (Reason.CONNECTION, Action.RETRY)
    assert "twice" in found.detail


@pytest.mark.parametrize(
    "body",
    [
        f'{{"choices": [{ONE}, {TWO}]}}',
        '{"choices": [{"message": {"content": "1"}, "logprobs": {"content": [{"token": "1"}]}}]}',
        '{"choices": [{"message": {"content": "1", "parts": [{"type": "content", "content": "2"}]}}]}',
        '{"id": "choices", "choices": [{"message": {"content": "1"}}]}',
        '{"usage": {"prompt_tokens": 1, "prompt_tokens": 1}, "choices": [{"message": {"content": "1"}}]}',
    ],
)
def test_a_name_that_comes_again_elsewhere_is_no_harm(body: str) -> None:
    """Several choices, log-probabilities, a value that is spelled like a name."""
    found = CHAT.read(200, {}, body.encode(), 0.0)
    assert isinstance(found, Reply)
    assert found.text == "1"


def test_a_reply_that_quotes_json_is_read_as_text() -> None:
    """Names inside the judge's own words are not the completion's."""
    text = '{"choices": [], "choices": [], "content": "x", "content": "y", "message": "", "message": ""}'
    body = json.dumps({"choices": [{"message": {"content": text}}]}).encode()
    assert CHAT.read(200, {}, body, 0.0) == Reply(text=text)
