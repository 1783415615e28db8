"""The key changes with everything that shapes an answer, and with nothing else."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from referee.cache import KeyMaker, explain
from referee.config import EndpointConfig, Secret
from referee.records import Ask, Message, Sampling
from referee.wire import CHAT, Chat, Dialect

ENDPOINT = EndpointConfig(url="https://h.example/v1", model="m", extra={"a": 1, "b": {"c": 2, "d": 3}})
REQUEST = Ask(
    (Message("user", "q"),), Sampling(), (("judge", "score/1"), ("prompt", "p"), ("response", "r")), "nonce", 7
)


class Other(Chat):
    """Another version of the wire format."""

    name = "openai-chat/0"


def key(endpoint: EndpointConfig = ENDPOINT, request: Ask = REQUEST, dialect: Dialect = CHAT) -> str:
    return KeyMaker(endpoint, dialect).key(request)


@pytest.mark.parametrize(
    "change",
    [
        {"url": "https://other.example/v1"},
        {"url": "https://h.example:8443/v1"},
        {"url": "https://h.example/v2"},
        {"model": "m2"},
        {"extra": {"a": 2, "b": {"c": 2, "d": 3}}},
        {"extra": {}},
    ],
)
def test_the_endpoint_is_in_the_key(change: dict[str, Any]) -> None:
    """Another host, path, model or extra field is another judge."""
    assert key(replace(ENDPOINT, **change)) != key()


@pytest.mark.parametrize(
    "change",
    [
        {"url": "https://h.example/v1/chat/completions"},
        {"url": "https://H.example/v1/"},
        {"name": "nickname"},
        {"key_env": "OTHER"},
        {"api_key": Secret("sk-canary")},
        {"price_in": 1.0, "price_out": 2.0},
        {"proxy": "http://proxy"},
        {"backup": True},
        {"extra": {"b": {"d": 3, "c": 2}, "a": 1}},
    ],
)
def test_what_does_not_shape_the_answer_is_not(change: dict[str, Any]) -> None:
    """Keys, names, prices and the order of fields do not pay for a verdict twice."""
    assert key(replace(ENDPOINT, **change)) == key()


@pytest.mark.parametrize(
    "change",
    [
        {"sampling": Sampling(temperature=0.5)},
        {"sampling": Sampling(temperature=None)},
        {"sampling": Sampling(max_tokens=9)},
        {"sampling": Sampling(top_logprobs=5)},
        {"sampling": Sampling(schema={"type": "object"})},
        {"facets": (*REQUEST.facets, ("more", ""))},
        {"facets": REQUEST.facets[:-1]},
        {"facets": (("judge", "score/2"), *REQUEST.facets[1:])},
        {"facets": (*REQUEST.facets[:-1], ("response", "r2"))},
    ],
)
def test_the_request_is_in_the_key(change: dict[str, Any]) -> None:
    """Sampling and every facet count."""
    assert key(request=replace(REQUEST, **change)) != key()


NAMED = replace(ENDPOINT, known_as="ours")


def test_a_server_with_a_name_of_its_own_may_move() -> None:
    """Its host and port do not count; its path, model and extra fields do, and so does the name."""
    assert key(replace(NAMED, url="http://127.0.0.1:41181/v1")) == key(NAMED)
    for change in ({"url": "https://h.example/v2"}, {"model": "m2"}, {"extra": {}}, {"known_as": "theirs"}):
        assert key(replace(NAMED, **change)) != key(NAMED)


def test_a_name_is_never_taken_for_a_host() -> None:
    """An endpoint known as another's host does not get that one's verdicts."""
    assert key(replace(ENDPOINT, known_as=ENDPOINT.host)) != key(ENDPOINT)
    common, _ = KeyMaker(NAMED, CHAT).facets(REQUEST)
    assert common["known_as"] == "ours"
    assert "host" not in common


def test_the_nonce_is_not_in_the_key() -> None:
    """Equal questions meet although their fences differ."""
    again = replace(REQUEST, nonce="other", messages=(Message("user", "other fence"),), prompt_tokens=9)
    assert key(request=again) == key()


def test_the_dialect_is_in_the_key() -> None:
    """What `encode` makes of a request is part of it."""
    assert key(dialect=Other()) != key()


def test_one_maker_serves_several_samplings() -> None:
    """What is remembered of the last request does not leak into the next."""
    maker = KeyMaker(ENDPOINT, CHAT)
    other = replace(REQUEST, sampling=Sampling(max_tokens=9))
    first, second = maker.key(REQUEST), maker.key(other)
    assert first == maker.key(REQUEST) == key()
    assert second == maker.key(other) == key(request=other)


def test_a_request_without_a_key_leaves_those_of_others() -> None:
    """A plug-in may ask anything; the next request of another judge is not to be found under a wrong key."""
    maker = KeyMaker(ENDPOINT, CHAT)
    maker.key(REQUEST)
    with pytest.raises(TypeError):
        maker.key(replace(REQUEST, sampling=object()))  # type: ignore[arg-type]
    assert maker.key(REQUEST) == key()


def test_keys_are_short_hex() -> None:
    """32 hexadecimal digits."""
    assert len(key()) == 32
    assert len(bytes.fromhex(key())) == 16


PAIRS = st.lists(st.tuples(st.text(max_size=4), st.text(max_size=4)), max_size=4).map(tuple)


@given(PAIRS, PAIRS)
@settings(max_examples=300, deadline=None)
def test_different_facets_never_share_a_key(one: Any, other: Any) -> None:
    """No way of cutting the same characters into names and values gives the same key."""
    same = key(request=replace(REQUEST, facets=one)) == key(request=replace(REQUEST, facets=other))
    assert same == (one == other)


def test_half_a_surrogate_pair_has_a_key_of_its_own() -> None:
    """Text that no JSON can carry is told apart all the same."""
    keys = {
        key(request=replace(REQUEST, facets=(("r", text),))) for text in ("\ud800", "\ud801", "\\ud800", "?", "\ufffd")
    }
    assert len(keys) == 5


def test_facets_name_what_the_key_is_made_of() -> None:
    """Everything is there by name, long values as their beginning and a digest."""
    request = replace(REQUEST, facets=(("judge", "score/1"), ("long", "x" * 1000), ("response", "digest")))
    found, own = KeyMaker(ENDPOINT, CHAT).facets(request)
    assert own == {"response": "digest"}
    assert found["dialect"] == CHAT.name
    assert (found["host"], found["path"], found["model"]) == ("h.example", "/v1/chat/completions", "m")
    assert found["judge"] == "score/1"
    assert len(found["long"]) < 200
    assert "1000 characters" in found["long"]
    assert "max_tokens" in found["sampling"]


def test_facets_in_common_are_one_object() -> None:
    """From request to request of one judge, so that the file's writer knows it at a glance."""
    keys = KeyMaker(ENDPOINT, CHAT)
    first, own = keys.facets(REQUEST)
    again, other = keys.facets(replace(REQUEST, facets=(*REQUEST.facets[:-1], ("response", "r2"))))
    assert first is again
    assert (own["response"], other["response"]) == ("r", "r2")
    warmer = replace(REQUEST, sampling=replace(REQUEST.sampling, temperature=0.7))
    assert keys.facets(warmer)[0] != first
    assert keys.facets(replace(REQUEST, facets=(("judge", "score/2"), *REQUEST.facets[1:])))[0]["judge"] == "score/2"
    assert keys.facets(REQUEST)[0] == first


def test_facets_hold_no_key() -> None:
    """A token somebody put into the extra fields is not written to the file."""
    endpoint = replace(ENDPOINT, extra={"api_key": "sk-canary0123456789abcdef"}, api_key=Secret("sk-canary"))
    found, _ = KeyMaker(endpoint, CHAT).facets(REQUEST)
    assert "canary" not in repr(found)
    other, _ = KeyMaker(replace(endpoint, extra={"api_key": "sk-canary9876543210abcdef"}), CHAT).facets(REQUEST)
    assert found["extra"] != other["extra"]


def test_explain_names_what_differs() -> None:
    """Both values of each facet that differs, and no other."""
    one = {"model": "a", "judge": "score/1", "gone": "x"}
    other = {"model": "b", "judge": "score/1", "new": "y"}
    assert explain(one, other) == ["model: a | b", "gone: x | (absent)", "new: (absent) | y"]
    assert explain(one, dict(one)) == []


def test_facets_of_one_request_are_its_own_wherever_they_stand() -> None:
    """Statements and columns differ from request to request, too, and the criteria come after the response."""
    keys = KeyMaker(ENDPOINT, CHAT)
    facets = (("judge", "j"), ("columns.a", "1"), ("prompt", "p"), ("trusted columns.b", "2"), ("response", "r"))
    first, own = keys.facets(replace(REQUEST, facets=(*facets, ("statements", "s"))))
    assert own == {"columns.a": "1", "prompt": "p", "trusted columns.b": "2", "response": "r", "statements": "s"}
    again, _ = keys.facets(replace(REQUEST, facets=(*facets, ("statements", "t"))))
    assert first is again
    assert first["judge"] == "j"
    assert not set(own) & set(first)
