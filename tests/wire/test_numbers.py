"""The dialects of models that generate no text: request bytes, and every shape of reply."""

from __future__ import annotations

import json
from typing import Any

import pytest

from referee.config import EndpointConfig
from referee.errors import ConfigError
from referee.records import Action, Ask, Failure, Message, Query, Reason, Reply, Sampling
from referee.testing import check_dialect
from referee.wire import find_dialect

NAMES = ("classify", "score", "pooling", "decision")
TALK = (Message("user", "Hi"), Message("assistant", "Yes?"), Message("user", "2+2?"), Message("assistant", "4"))


def endpoint(**settings: Any) -> EndpointConfig:
    return EndpointConfig(**{"url": "http://rm.test:8000", "model": "m", **settings})


def body(api: str, ask: Ask, **settings: Any) -> Any:
    return json.loads(find_dialect(api).encoder(endpoint(**settings)).encode(ask))


def asked(messages: tuple[Message, ...] = TALK, raw: bool = True, queries: tuple[Query, ...] = ()) -> Ask:
    return Ask(messages, Sampling(max_tokens=0, temperature=None), (), "", 1, raw=raw, queries=queries)


def read(api: str, data: Any, status: int = 200) -> Reply | Failure:
    text = data if isinstance(data, bytes) else json.dumps(data).encode()
    return find_dialect(api).read(status, {}, text, 1e9)


@pytest.mark.parametrize("provider", ["", "sglang"])
@pytest.mark.parametrize("api", NAMES)
def test_every_dialect_keeps_the_contract(api: str, provider: str) -> None:
    """Host, key, repeatable encoding, errors."""
    check_dialect(find_dialect(api), endpoint(provider=provider))


@pytest.mark.parametrize(
    ("api", "url", "wanted"),
    [
        ("classify", "http://rm.test:8000", "http://rm.test:8000/classify"),
        ("classify", "http://rm.test:8000/v1", "http://rm.test:8000/classify"),
        ("classify", "http://rm.test:8000/v1/classify", "http://rm.test:8000/v1/classify"),
        ("pooling", "http://rm.test/prefix/v1/", "http://rm.test/prefix/pooling"),
        ("score", "http://rm.test", "http://rm.test/score"),
        ("decision", "https://api.test", "https://api.test/v1/systemone"),
        ("decision", "https://api.test/v1", "https://api.test/v1/systemone"),
        ("decision", "https://api.test/api/v1/systemone", "https://api.test/api/v1/systemone"),
        ("decision", "https://api.test/v1/evaluations", "https://api.test/v1/evaluations"),
    ],
)
def test_a_url_is_completed(api: str, url: str, wanted: str) -> None:
    """From itself, the server's address, or the base for chat."""
    assert find_dialect(api).url(endpoint(url=url)) == wanted


def test_sglang_scores_under_v1() -> None:
    """And classifies at the root."""
    assert find_dialect("score").url(endpoint(provider="sglang")) == "http://rm.test:8000/v1/score"
    assert find_dialect("classify").url(endpoint(provider="sglang")) == "http://rm.test:8000/classify"


@pytest.mark.parametrize("api", ["classify", "pooling"])
def test_a_conversation_goes_out_as_messages(api: str) -> None:
    """With the activation that is wanted, and the endpoint's own fields."""
    sent = body(api, asked(), extra={"task": "classify"})
    assert sent == {
        "model": "m",
        "task": "classify",
        "messages": [{"role": message.role, "content": message.content} for message in TALK],
        "use_activation": False,
        "activation": False,
    }
    assert body(api, asked(raw=False))["use_activation"] is True
    text = body(api, asked((Message("text", "<user>Hi"),)))
    assert (text["input"], text["add_special_tokens"], "messages" in text) == ("<user>Hi", False, False)
    assert body(api, asked((Message("text", "<user>Hi"),)), provider="sglang") == {"model": "m", "text": "<user>Hi"}


def test_a_pair_goes_out_as_two_texts() -> None:
    """Under the names of each server."""
    pair = (Message("user", "2+2?"), Message("assistant", "4"))
    sent = body("score", asked(pair))
    assert (sent["text_1"], sent["text_2"], sent["use_activation"]) == ("2+2?", "4", False)
    assert body("score", asked(pair), provider="sglang") == {"model": "m", "query": "2+2?", "items": ["4"]}


def test_questions_go_out_by_type() -> None:
    """noul, score and choice; the state has the texts by name, and not the questions in words."""
    queries = (
        Query("a", "True?"),
        Query("b", "How good?", ("bad", "good")),
        Query("c", "True?", may_not_apply=True),
        Query("d", "Which?", tuple("abcdefghijk")),
    )
    messages = (Message("system", "in words"), Message("prompt", "2+2?"), Message("response", "4"))
    sent = body("decision", asked(messages, queries=queries))
    assert sent["model"] == "m"
    assert sent["state"] == {"prompt": "2+2?", "response": "4"}
    questions = sent["questions"]
    assert questions["a"] == {"type": "noul", "instructions": "True?"}
    assert questions["b"] == {"type": "score", "instructions": "How good?", "criteria": ["bad", "good"]}
    assert (questions["c"]["type"], list(questions["c"]["criteria"])) == ("choice", ["yes", "no", "na"])
    assert (questions["d"]["type"], list(questions["d"]["criteria"])[-1]) == ("choice", "10")


@pytest.mark.parametrize("api", NAMES)
def test_what_settings_say_is_not_for_extra(api: str) -> None:
    """It would be sent twice, or read on another scale."""
    field = "questions" if api == "decision" else "use_activation"
    with pytest.raises(ConfigError, match=field):
        find_dialect(api).encoder(endpoint(extra={field: True}))


USAGE = {"prompt_tokens": 12, "total_tokens": 12, "completion_tokens": 0, "prompt_tokens_details": None}


@pytest.mark.parametrize(
    ("api", "data", "numbers"),
    [
        ("classify", {"data": [{"index": 0, "label": "LABEL_0", "probs": [1.5], "num_classes": 1}]}, [1.5]),
        ("classify", {"data": [{"index": 0, "label": None, "probs": [0.2, 0.8], "num_classes": 2}]}, [0.2, 0.8]),
        ("classify", {"embedding": [1.5], "meta_info": {"prompt_tokens": 12}}, [1.5]),
        ("score", {"data": [{"index": 0, "object": "score", "score": 0.7}]}, [0.7]),
        ("score", {"data": [{"index": 0, "score": None}]}, [None]),
        ("score", {"scores": [[0.7, 0.3]], "object": "scoring"}, [0.7, 0.3]),
        ("pooling", {"data": [{"index": 0, "object": "pooling", "data": [0.7]}]}, [0.7]),
        ("pooling", {"data": [{"index": 0, "data": [[0.7], [0.1]]}]}, [[0.7], [0.1]]),
    ],
)
def test_numbers_are_found_in_each_shape(api: str, data: dict[str, Any], numbers: list[Any]) -> None:
    """With usage and the model that answered."""
    reply = read(api, {"model": "rm-8b", "usage": USAGE, **data})
    assert isinstance(reply, Reply)
    assert json.loads(reply.text) == numbers
    assert (reply.model, reply.tokens_in, reply.tokens_out) == ("rm-8b", 12, 0)


def test_sglang_may_answer_with_a_list_of_one() -> None:
    """Its usage is in meta_info."""
    reply = read("classify", [{"embedding": [1.5], "meta_info": {"prompt_tokens": 12, "cached_tokens": 4}}])
    assert isinstance(reply, Reply)
    assert (reply.text, reply.tokens_in, reply.tokens_cached) == ("[1.5]", 12, 4)


@pytest.mark.parametrize(
    ("api", "data"),
    [
        ("classify", {"data": []}),
        ("classify", {"data": [{"probs": [1]}, {"probs": [1]}]}),
        ("classify", {"data": [{"probs": 1.0}]}),
        ("classify", {"choices": []}),
        ("score", {"data": [{"index": 0}]}),
        ("score", {"scores": [[1.0], [2.0]]}),
        ("pooling", {"data": [{"data": "AAAA"}]}),
        ("pooling", 7),
        ("decision", {"answers": []}),
        ("decision", {"model": "m"}),
        ("decision", None),
    ],
)
def test_another_shape_is_a_failure(api: str, data: Any) -> None:
    """It is asked again a few times, and never read as a number."""
    found = read(api, data)
    assert isinstance(found, Failure)
    assert (found.reason, found.action) == (Reason.SCHEMA, Action.ASK_AGAIN)


@pytest.mark.parametrize(
    ("api", "text"),
    [
        ("classify", b'{"data": [{"probs": [9.0]}], "data": [{"probs": [1.0]}]}'),
        ("classify", b'{"data": [{"probs": [9.0], "probs": [1.0]}]}'),
        ("score", b'{"data": [{"score": 9.0, "score": 1.0}]}'),
        ("decision", b'{"answers": {"a": {"noul": 0.1}, "a": {"noul": 0.9}}}'),
        ("decision", b'{"answers": {"a": {"noul": 0.1, "noul": 0.9}}}'),
    ],
)
def test_a_reply_that_says_two_things_is_not_read(api: str, text: bytes) -> None:
    """Of two values a parser would keep one."""
    found = read(api, text)
    assert isinstance(found, Failure)
    assert "twice" in found.detail


def test_answers_come_with_usage() -> None:
    """As System One reports it."""
    usage = {"input_tokens": 318, "output_tokens": 34}
    reply = read("decision", {"model": "jev-1", "answers": {"a": {"type": "noul", "noul": 0.9}}, "usage": usage})
    assert isinstance(reply, Reply)
    assert json.loads(reply.text) == {"a": {"type": "noul", "noul": 0.9}}
    assert (reply.model, reply.tokens_in, reply.tokens_out) == ("jev-1", 318, 34)


@pytest.mark.parametrize(
    ("status", "error", "reason", "action"),
    [
        (429, {"detail": {"error_type": "rate_limited", "message": "Slow down"}}, Reason.THROTTLED, Action.PARK),
        (401, {"detail": "Invalid API key"}, Reason.AUTH, Action.CLOSE),
        (422, {"detail": [{"loc": ["body", "questions"], "msg": "bad", "type": "x"}]}, Reason.CONFIG, Action.GIVE_UP),
        (503, {"detail": "Overloaded"}, Reason.OVERLOADED, Action.BACK_OFF),
        (404, {"error": {"message": "The model `m` does not exist.", "code": 404}}, Reason.CONFIG, Action.CLOSE),
        (
            400,
            {"error": {"message": "This model's maximum context length is 4096 tokens.", "code": 400}},
            Reason.TOO_LONG,
            Action.GIVE_UP,
        ),
    ],
)
def test_errors_are_understood(status: int, error: Any, reason: Reason, action: Action) -> None:
    """In vLLM's form and in FastAPI's, whatever the dialect."""
    for api in NAMES:
        found = read(api, error, status)
        assert isinstance(found, Failure)
        assert (found.reason, found.action) == (reason, action)


def test_extra_says_whether_a_text_gets_special_tokens() -> None:
    """By default none: it has its own."""
    ask = asked((Message("text", "<s>Hi"),))
    assert body("classify", ask)["add_special_tokens"] is False
    assert body("classify", ask, extra={"add_special_tokens": True})["add_special_tokens"] is True
