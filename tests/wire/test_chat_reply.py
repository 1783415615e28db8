"""Completions of every well-formed kind become a Reply, and nothing that was cut short does."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from referee.records import Reply, TokenChoice
from referee.wire import CHAT


def completion(content: Any = "fine: 8", **more: Any) -> dict[str, Any]:
    choice = {
        "index": 0,
        "message": {"role": "assistant", "content": content},
        "finish_reason": "stop",
        "logprobs": None,
    }
    choice |= more.pop("choice", {})
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "model": "gpt-4o-mini-2024-07-18",
        "choices": [choice],
        "usage": {"prompt_tokens": 50, "completion_tokens": 7, "prompt_tokens_details": {"cached_tokens": 32}},
    } | more


def read(data: Any, headers: dict[str, str] | None = None) -> Reply:
    body = data if isinstance(data, bytes) else json.dumps(data).encode()
    found = CHAT.read(200, headers or {}, body, 0.0)
    assert isinstance(found, Reply), found
    return found


def test_a_usual_completion_is_read_whole() -> None:
    """Text, finish, model, ids and usage."""
    assert read(completion(), {"x-request-id": "req_1"}) == Reply(
        text="fine: 8",
        finish="stop",
        model="gpt-4o-mini-2024-07-18",
        request_id="req_1",
        tokens_in=50,
        tokens_out=7,
        tokens_cached=32,
    )


@pytest.mark.parametrize("content", ["fine: 8", [{"type": "text", "text": "fine: 8"}]])
@pytest.mark.parametrize(
    ("asked", "said", "thought", "total", "counted"),
    [
        (50, 7, 60, 117, 67),  # beside the reply: billed like it
        (50, 0, 60, 110, 60),
        (50, 67, 60, 117, 67),  # within it, as OpenAI counts
        (50, 7, 60, 200, 7),  # a total that says neither
        (50, 7, None, 117, 7),
    ],
)
def test_reasoning_that_is_counted_beside_the_reply_is_part_of_it(
    content: Any, asked: int, said: int, thought: int | None, total: int, counted: int
) -> None:
    """Where the total says that it is. Otherwise a budget would be overspent unseen."""
    usage = {
        "prompt_tokens": asked,
        "completion_tokens": said,
        "total_tokens": total,
        "completion_tokens_details": {"reasoning_tokens": thought},
    }
    assert read(completion(content, usage=usage)).tokens_out == counted


def test_without_a_header_the_bodys_own_id_serves() -> None:
    """Some servers name the request only in the body."""
    assert read(completion()).request_id == "chatcmpl-1"
    assert read(completion(), {"request-id": "req_2"}).request_id == "req_2"


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (completion(choice={"finish_reason": "length"}), {"finish": "length", "text": "fine: 8"}),
        (completion("", choice={"finish_reason": "content_filter"}), {"finish": "content_filter", "text": ""}),
        (completion(choice={"message": {"content": None, "refusal": "I can't"}}), {"text": "", "refusal": "I can't"}),
        (completion(None), {"text": ""}),
        (completion(choice={"message": {"content": None, "tool_calls": [{"id": "x"}]}}), {"text": ""}),
        (completion(choice={"message": {"content": "", "reasoning_content": "so 8"}}), {"text": ""}),
        (completion(choice={"message": {}}), {"text": ""}),
        (completion([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]), {"text": "ab"}),
        (completion([{"type": "thinking", "thinking": [{"text": "9"}]}, {"type": "text", "text": "8"}]), {"text": "8"}),
        (completion(["a", {"type": "image_url"}, {"text": "b"}, 7]), {"text": "ab"}),
        (completion(7), {"text": ""}),
        (completion({"score": 8}), {"text": ""}),
        (completion(usage=None), {"tokens_in": 0, "tokens_out": 0, "tokens_cached": 0}),
        (completion(usage={}), {"tokens_in": 0}),
        (completion(usage=[1]), {"tokens_in": 0, "text": "fine: 8"}),
        (completion(usage={"prompt_tokens": None, "completion_tokens": -3}), {"tokens_in": 0, "tokens_out": 0}),
        (completion(usage={"prompt_tokens": 12.0, "completion_tokens": "7"}), {"tokens_in": 12, "tokens_out": 0}),
        (completion(usage={"prompt_tokens": 10**30, "completion_tokens": True}), {"tokens_in": 0, "tokens_out": 0}),
        (completion(usage={"prompt_tokens": 5, "prompt_cache_hit_tokens": 4}), {"tokens_cached": 4}),
        (completion(model=None), {"model": "", "text": "fine: 8"}),
        (completion(model=3, id=4), {"model": "", "request_id": "", "text": "fine: 8"}),
        (completion(choice={"finish_reason": None}), {"finish": ""}),
        (completion(error=None), {"text": "fine: 8"}),
        (completion(error={}), {"text": "fine: 8"}),
        (b'{"created":NaN,"choices":[{"message":{"content":"8"}}]}', {"text": "8"}),
        (b'{"choices":[{"message":{"content":"a\\ud800b"}}]}', {"text": "a?b"}),
        (b'\n\n {"choices":[{"message":{"content":"8"}}]} \n', {"text": "8"}),
    ],
)
def test_odd_completions_are_read_as_far_as_they_go(data: Any, expected: dict[str, Any]) -> None:
    """Any well-formed completion is a Reply; a field of the wrong type counts as absent."""
    found = read(data)
    assert {name: getattr(found, name) for name in expected} == expected
    assert found.text.encode() is not None


def logprobs(*tops: Any) -> dict[str, Any]:
    return {"logprobs": {"content": [{"token": "8", "logprob": -0.1, "bytes": [56], "top_logprobs": list(tops)}]}}


def test_log_probabilities_are_read_per_token() -> None:
    """Each token with its alternatives, in order."""
    found = read(completion(choice=logprobs({"token": "8", "logprob": -0.1}, {"token": "7", "logprob": -3})))
    assert found.choices == (TokenChoice("8", (("8", -0.1), ("7", -3.0))),)


@pytest.mark.parametrize("bad", ["NaN", "Infinity", "-Infinity", "1e999", "null", '"-0.1"', "true"])
def test_a_log_probability_that_is_no_number_is_dropped(bad: str) -> None:
    """The alternative goes, the rest stays, and nothing non-finite gets through."""
    body = json.dumps(completion(choice=logprobs({"token": "7", "logprob": -1.5}, {"token": "6", "logprob": 12345})))
    found = read(body.replace("12345", bad).encode())
    assert found.choices == (TokenChoice("8", (("7", -1.5),)),)


@pytest.mark.parametrize("given", [None, {}, {"content": None}, {"content": []}, [], "x", 5])
def test_missing_log_probabilities_are_no_trouble(given: Any) -> None:
    """A server that was asked for them and gives none still gave a reply."""
    assert read(completion(choice={"logprobs": given})).choices == ()


def test_a_gap_in_the_tokens_drops_them_all() -> None:
    """Half a list would put probabilities at the wrong place."""
    content = [{"token": "a", "top_logprobs": []}, {"token": 5}, {"token": "c"}]
    assert read(completion(choice={"logprobs": {"content": content}})).choices == ()


def test_a_body_cut_at_any_byte_is_never_a_reply() -> None:
    """A connection that ends early, with nothing but the JSON to tell."""
    full = logprobs({"token": "8", "logprob": -0.1})
    for data in (completion(), completion(choice=full), completion([{"type": "text", "text": "é8"}])):
        for body in (json.dumps(data).encode(), json.dumps(data, ensure_ascii=False).encode()):
            assert isinstance(CHAT.read(200, {}, body, 0.0), Reply)
            for end in range(len(body)):
                assert not isinstance(CHAT.read(200, {}, body[:end], 0.0), Reply), body[:end]


@given(st.text(), st.text(max_size=20), st.lists(st.tuples(st.text(max_size=4), st.floats()), max_size=5))
@settings(max_examples=100, deadline=None)
def test_the_text_that_was_sent_is_the_text_that_is_read(text: str, finish: str, tops: list[tuple[str, float]]) -> None:
    """Content passes unchanged, and log-probabilities are finite."""
    pairs = [{"token": token, "logprob": logprob} for token, logprob in tops]
    found = read(completion(text, choice={"finish_reason": finish, **logprobs(*pairs)}))
    assert found.text == text
    assert found.finish == finish
    assert found.choices[0].top == tuple(pair for pair in tops if math.isfinite(pair[1]))
