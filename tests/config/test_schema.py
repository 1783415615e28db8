"""Settings as data: secrets stay hidden, digests name settings."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from referee.config import Config, EndpointConfig, Secret, load
from referee.config.schema import without_credentials

KEY = "sk-canary-0123456789"


def with_key() -> Config:
    extra = {"api_key": KEY, "more": [{"token": KEY, "user": f"is {KEY}"}], "seed": 1}
    return load({"endpoint": {"api_key": KEY, "proxy": f"http://user:{KEY}@proxy.local:3128", "extra": extra}})


def rich_text(value: Any) -> str:
    from rich.pretty import pretty_repr

    return pretty_repr(value, max_width=500)


@pytest.mark.parametrize(
    "show",
    [
        repr,
        str,
        "{}".format,
        rich_text,
        lambda c: repr(c.endpoint[0]),
        lambda c: repr(c.endpoint[0].api_key),
        lambda c: f"{c.endpoint[0].api_key}",
        lambda c: repr(c.public()),
        lambda c: msgspec.json.encode(c.public()).decode(),
        lambda c: c.digest(),
        lambda c: c.endpoint[0].label,
    ],
)
def test_a_key_shows_nowhere(show: Any) -> None:
    """Neither the key nor a proxy's password appears in anything a configuration is shown as."""
    assert KEY not in show(with_key())


def test_a_key_is_there_for_whoever_sends() -> None:
    """Hiding a key does not lose it, and the proxy keeps its password."""
    endpoint = with_key().endpoint[0]
    assert endpoint.api_key is not None
    assert endpoint.api_key.reveal() == KEY
    assert KEY in endpoint.proxy
    assert endpoint.extra["api_key"] == KEY
    assert with_key().public()["endpoint"][0]["extra"]["seed"] == 1


@pytest.mark.parametrize("carry", [pickle.dumps, copy.copy, copy.deepcopy])
def test_a_secret_does_not_travel(carry: Any) -> None:
    """A Secret refuses to be pickled or copied, and says what to send instead."""
    with pytest.raises(TypeError, match="key_env") as caught:
        carry(Secret(KEY))
    assert KEY not in str(caught.value)


def test_a_secret_does_not_encode() -> None:
    """Encoding a configuration by mistake fails rather than writing the key."""
    with pytest.raises(TypeError) as caught:
        msgspec.json.encode(with_key())
    assert KEY not in str(caught.value)


def test_a_configuration_without_a_key_pickles() -> None:
    """A configuration that only names where the key is can be sent to another process."""
    config = load({"judge": {"high": 5}, "endpoint": {"key_env": "MY_KEY"}})
    assert pickle.loads(pickle.dumps(config)) == config


def test_the_digest_names_the_settings() -> None:
    """Equal settings have equal digests, whatever the key; other settings have others."""
    digest = load({}).digest()
    assert load({}).digest() == digest
    assert load({"endpoint": {"api_key": KEY}}).digest() == load({"endpoint": {"api_key": "other"}}).digest() == digest
    assert load({"judge": {"high": 5}}).digest() != digest
    assert len(digest) == 16


def test_public_is_plain_data_that_loads_again() -> None:
    """What is recorded of a run can be loaded as its configuration."""
    config = load({"judge": {"high": 5}, "shaping": {"length": {"enable": True}}, "limits": {"rpm": 60}})
    assert load(config.public()) == config


@pytest.mark.parametrize(
    ("url", "host"),
    [
        ("https://API.OpenAI.com/v1", "api.openai.com"),
        ("http://localhost:8000/v1", "localhost:8000"),
        ("http://[::1]:8000/v1", "[::1]:8000"),
    ],
)
def test_an_endpoint_is_called_by_its_host(url: str, host: str) -> None:
    """The label is the host and port unless a name is given."""
    assert EndpointConfig(url=url).label == host
    assert EndpointConfig(url=url, name="mine").label == "mine"


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("http://user:pw@host:1/v1?x=1", "http://host:1/v1?x=1"),
        ("http://host/a@b", "http://host/a@b"),
        ("user:pw@host", "host"),
        ("http://u:p@w@host", "http://host"),
        ("http://[::1", "http://[::1"),
        ("", ""),
    ],
)
def test_urls_are_shown_without_credentials(url: str, shown: str) -> None:
    """User and password go, the rest stays, and broken URLs do not break it."""
    assert without_credentials(url) == shown


@given(user=st.text("abc:%/?#[]", max_size=5), text=st.text(max_size=20))
@settings(deadline=None, max_examples=100)
def test_showing_a_url_never_fails(user: str, text: str) -> None:
    """Any text can be shown."""
    without_credentials(f"{user}://{text}")
    without_credentials(text)
