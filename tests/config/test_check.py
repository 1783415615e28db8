"""Rules across settings: each refusal names the setting and the value."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest

from referee.config import EndpointConfig, key_may_travel, load
from referee.errors import ConfigError

NAN, INF = float("nan"), float("inf")
PRICED = {"price_in": 1.0, "price_out": 2.0}


@pytest.mark.parametrize(
    ("source", "setting", "words"),
    [
        ({"judge": {"low": 5, "high": 5}}, "judge.low", ["(5)", "high"]),
        ({"judge": {"low": 11}}, "judge.low", ["(11)", "(10)"]),
        ({"judge": {"max_tokens": 0}}, "judge.max_tokens", ["0", "at least 1"]),
        ({"judge": {"ask_again": -1}}, "judge.ask_again", ["-1", "at least 0"]),
        ({"judge": {"temperature": -0.5}}, "judge.temperature", ["-0.5"]),
        ({"judge": {"temperature": NAN}}, "judge.temperature", ["nan"]),
        ({"judge": {"ask_above": NAN}}, "judge.ask_above", ["nan"]),
        ({"judge": {"kind": "rubric", "combine": "threshold", "threshold": NAN}}, "judge.threshold", ["nan"]),
        (
            {"judge": {"kind": "rubric", "combine": "threshold", "threshold": 70}},
            "judge.threshold",
            ["from 0 to 1", "70"],
        ),
        ({"cache": {"max_gb": NAN}}, "cache.max_gb", ["nan"]),
        ({"limits": {"max_concurrency": 0}}, "limits.max_concurrency", ["0"]),
        ({"limits": {"concurrency": 0}}, "limits.concurrency", ["0"]),
        ({"limits": {"rpm": 0}}, "limits.rpm", ["0"]),
        ({"limits": {"tpm": -5}}, "limits.tpm", ["-5"]),
        ({"limits": {"attempt_timeout": 0.0}}, "limits.attempt_timeout", ["above 0", "0.0"]),
        ({"limits": {"attempt_timeout": NAN}}, "limits.attempt_timeout", ["nan"]),
        ({"limits": {"deadline": INF}}, "limits.deadline", ["inf"]),
        (
            {"limits": {"budget_usd": 5.0}, "endpoint": {"model": "unheard-of"}},
            "limits.budget_usd",
            ["endpoint[0].price_in", "price_out"],
        ),
        ({"limits": {"budget_usd": 0.0}, "endpoint": PRICED}, "limits.budget_usd", ["0.0"]),
        ({"limits": {"budget_usd": NAN}, "endpoint": PRICED}, "limits.budget_usd", ["nan"]),
        ({"limits": {"budget_usd": INF}, "endpoint": PRICED}, "limits.budget_usd", ["inf"]),
        ({"cache": {"memory_items": -1}}, "cache.memory_items", ["-1"]),
        ({"shaping": {"coefficient": INF}}, "shaping.coefficient", ["inf"]),
        ({"shaping": {"coefficient": NAN}}, "shaping.coefficient", ["nan"]),
        ({"shaping": {"coefficient": -1e300}}, "shaping.coefficient", ["-1e+300"]),
        (
            {"shaping": {"length": {"peak_ratio": 0.5}}},
            "shaping.length.outer_ratio",
            ["outer_ratio (0.5)", "peak_ratio (0.5)"],
        ),
        ({"shaping": {"length": {"peak_ratio": -0.1}}}, "shaping.length.outer_ratio", ["-0.1"]),
        ({"shaping": {"length": {"outer_ratio": NAN}}}, "shaping.length.outer_ratio", ["nan"]),
        ({"shaping": {"length": {"outer_ratio": INF}}}, "shaping.length.outer_ratio", ["inf"]),
        ({"shaping": {"length": {"penalty_scale": -1.0}}}, "shaping.length.penalty_scale", ["-1.0"]),
        ({"shaping": {"length": {"max_penalty": NAN}}}, "shaping.length.max_penalty", ["nan"]),
        ({"missing": {"policy": "value"}}, "missing.value", ["None", "no default"]),
        ({"missing": {"policy": "value", "value": INF}}, "missing.value", ["inf"]),
        ({"missing": {"value": 0.5}}, "missing.value", ["0.5", "abstain"]),
        ({"missing": {"abort_above": 0.0}}, "missing.abort_above", ["0.0"]),
        ({"missing": {"abort_above": 1.5}}, "missing.abort_above", ["1.5"]),
        ({"missing": {"abort_above": NAN}}, "missing.abort_above", ["nan"]),
        ({"endpoint": {"url": "ftp://example.com"}}, "endpoint[0].url", ["ftp://example.com"]),
        ({"endpoint": {"url": ""}}, "endpoint[0].url", ["''"]),
        ({"endpoint": {"url": "http://"}}, "endpoint[0].url", ["http://"]),
        ({"endpoint": {"url": "http://[::1"}}, "endpoint[0].url", ["http://[::1"]),
        ({"endpoint": {"url": "http://localhost:99999/v1"}}, "endpoint[0].url", ["99999"]),
        ({"endpoint": [{}, {"url": "https://me:pw@example.com"}]}, "endpoint[1].url", ["credentials"]),
        ({"endpoint": {"url": "https://example.com/v1?a=b"}}, "endpoint[0].url", ["query"]),
        ({"endpoint": {"proxy": "proxy.local:3128"}}, "endpoint[0].proxy", ["proxy.local:3128"]),
        ({"endpoint": {"url": "https://@example.com/v1"}}, "endpoint[0].url", ["credentials"]),
        ({"endpoint": {"url": "https://bücher.example/v1"}}, "endpoint[0].url", ["bücher.example", "xn--"]),
        ({"endpoint": {"url": "https://my judge/v1"}}, "endpoint[0].url", ["my judge", "spaces"]),
        ({"endpoint": {"proxy": "http://me:pw@büro.example:3128"}}, "endpoint[0].proxy", ["'büro.example'", "xn--"]),
        ({"endpoint": {"model": ""}}, "endpoint[0].model", ["model"]),
        ({"endpoint": {"price_in": 1.0}}, "endpoint[0].price_in", ["price_in (1.0)", "price_out (None)"]),
        ({"endpoint": {"price_in": -1.0, "price_out": 1.0}}, "endpoint[0].price_in", ["-1.0"]),
        ({"endpoint": {"url": "http://127.0.0.1:1", "price_cached": 0.1}}, "endpoint[0].price_cached", ["price_in"]),
        (
            {"endpoint": {"url": "http://127.0.0.1:1", "price_cache_write": 0.1}},
            "endpoint[0].price_cache_write",
            ["price_in"],
        ),
        ({"endpoint": {**PRICED, "price_cached": -0.1}}, "endpoint[0].price_cached", ["-0.1"]),
        ({"endpoint": {**PRICED, "price_cache_write": NAN}}, "endpoint[0].price_cache_write", ["nan"]),
        ({"endpoint": {"tier_fallback": True}}, "endpoint[0].tier_fallback", ['tier = "flex"']),
        ({"endpoint": {"url": "http://127.0.0.1:1", "tier": "flex"}}, "endpoint[0].tier", ["127.0.0.1:1", '"openai"']),
        (
            {"endpoint": {"provider": "anthropic", "model": "m", "tier": "flex"}},
            "endpoint[0].tier",
            ['"anthropic"', "Leave tier"],
        ),
        ({"endpoint": {"extra": {"service_tier": "flex"}}}, "endpoint[0].extra", ["service_tier", "endpoint[0].tier"]),
        ({"endpoint": {"local": {"context": 1000}}}, "endpoint[0].local", ['provider = "local"']),
        ({"endpoint": {"extra": {"serviceTier": "flex"}}}, "endpoint[0].extra", ["serviceTier", "endpoint[0].tier"]),
        ({"endpoint": {"price_in": 1.0, "price_out": NAN}}, "endpoint[0].price_out", ["nan"]),
        ({"endpoint": {"extra": {"x": object()}}}, "endpoint[0].extra", ["JSON"]),
        ({"endpoint": {"extra": {"max_tokens": 9000}}}, "endpoint[0].extra", ["max_tokens", "judge.max_tokens"]),
        ({"endpoint": {"extra": {"max_completion_tokens": 9}}}, "endpoint[0].extra", ["judge.max_tokens"]),
        ({"endpoint": {"extra": {"n": 4}}}, "endpoint[0].extra", ["`n`", "1"]),
        ({"endpoint": {"extra": {"stream": True}}}, "endpoint[0].extra", ["`stream`", "false"]),
        ({"endpoint": {"extra": {"model": "other"}}}, "endpoint[0].extra", ["endpoint.model"]),
        ({"judge": {"criteria": "\ud800"}}, "text", ["surrogate", r"\ud800"]),
        (
            {"endpoint": {"url": "http://judge.example/v1", "key_env": "JUDGE_KEY"}},
            "endpoint[0].url",
            ["judge.example", "https", "key_over_http"],
        ),
    ],
)
def test_a_refusal_names_setting_and_value(source: Any, setting: str, words: list[str]) -> None:
    """The message and the exception's `setting` say what to change, the message also what is there now."""
    with pytest.raises(ConfigError) as caught:
        load(source)
    assert caught.value.setting == setting
    for word in [setting, *words]:
        assert word in str(caught.value)


@pytest.mark.parametrize(
    "source",
    [
        {"judge": {"low": -5, "high": 0}},
        {"limits": {"budget_usd": 0.01}, "endpoint": PRICED},
        {"endpoint": {"price_in": 0.0, "price_out": 0.0}},
        {"endpoint": {"tier": "flex", "tier_fallback": True, "extra": {"user": "x"}}},
        {"endpoint": {"price_in": 3.0, "price_out": 15.0, "price_cached": 0.3, "price_cache_write": 3.75}},
        {"endpoint": {"extra": {"service_tier": "priority"}}},
        {"shaping": {"coefficient": -0.1}},
        {"shaping": {"length": {"peak_ratio": 0.0, "outer_ratio": 2.0, "max_penalty": 0.0}}},
        {"missing": {"policy": "value", "value": -1.0}},
        {"missing": {"abort_above": 1.0}},
        {"limits": {"deadline": 0.5, "attempt_timeout": 0.1, "rpm": 1, "concurrency": 1}},
        {"endpoint": {"url": "http://localhost:8000/v1", "key_env": "K"}},
        {"endpoint": {"url": "http://judge.example/v1", "key_env": ""}},
        {"endpoint": {"url": "http://judge.example/v1", "key_env": "K", "key_over_http": True}},
        {"endpoint": {"url": "https://example.com", "proxy": "http://me:pw@proxy.local:3128"}},
        {"endpoint": {"url": "https://xn--bcher-kva.example/größe v1", "proxy": "https://proxy.local"}},
        {"endpoint": {"extra": {"n": 1, "stream": False, "temperature": 0.7, "max_thinking_tokens": 5}}},
    ],
)
def test_what_is_allowed_loads(source: Any) -> None:
    """Values at the edge of a rule, on the right side."""
    load(source)


@pytest.mark.parametrize(
    ("url", "allowed"),
    [
        ("https://example.com/v1", True),
        ("http://127.0.0.1:8000/v1", True),
        ("http://[::1]:8000/v1", True),
        ("http://localhost/v1", True),
        ("http://localhost.evil.example/v1", False),
        ("http://127.0.0.1.evil.example/v1", False),
        ("http://10.0.0.5/v1", False),
    ],
)
def test_a_key_only_travels_encrypted_or_at_home(url: str, allowed: bool) -> None:
    """Plain http carries a key to this machine only, unless the user says the network is theirs."""
    assert key_may_travel(EndpointConfig(url=url)) is allowed
    assert key_may_travel(EndpointConfig(url=url, key_over_http=True))


@pytest.mark.parametrize(("proxy", "allowed"), [("http://proxy.corp:3128", False), ("http://127.0.0.1:3128", True)])
def test_a_proxy_elsewhere_is_not_this_machine(proxy: str, allowed: bool) -> None:
    """A key for this machine that goes through a proxy on another one would leave it in the clear."""
    endpoint = {"url": "http://127.0.0.1:8000/v1", "proxy": proxy, "key_env": "JUDGE_KEY"}
    assert key_may_travel(EndpointConfig(**endpoint)) is allowed
    if not allowed:
        with pytest.raises(ConfigError, match=r"proxy\.corp"):
            load({"endpoint": endpoint})


KEYS = [
    "sk-proj-CANARY0123456789abcdef",
    "sk_live_CANARY0123456789abcdef",
    "gsk_CANARY0123456789abcdefABCDEF",
    "hf_CANARYabcdefghijklmnopqrstuvwxyz",
    "AKIACANARY0123456789",
    "CANARY a key with spaces",
]


@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize(
    ("setting", "put"),
    [
        ("endpoint[0].key_env", lambda key: {"endpoint": {"key_env": key}}),
        ("redis.password_env", lambda key: {"redis": {"password_env": key}}),
        ("serve.token_env", lambda key: {"serve": {"token_env": key}}),
    ],
)
def test_a_key_where_a_name_belongs_is_refused_unseen(key: str, setting: str, put: Any) -> None:
    """The commonest mistake: the key itself instead of the variable's name. The error does not repeat it."""
    with pytest.raises(ConfigError, match="name of an environment variable") as caught:
        load(put(key))
    assert caught.value.setting == setting
    assert "CANARY" not in str(caught.value)


@pytest.mark.parametrize("name", ["OPENAI_API_KEY", "JUDGE_KEY_2", "key", "_K", "AZURE_OPENAI_API_KEY_EASTUS2", "K1"])
def test_names_of_variables_are_taken(name: str) -> None:
    """What people call their variables."""
    assert load({"endpoint": {"key_env": name}}).endpoint[0].key_env == name


@pytest.mark.parametrize(
    "options",
    [{"n": float("nan")}, {"at": dt.date(2026, 1, 1)}, {"pair": (1, 2)}, {"deep": {1: "x"}}, {"set": {1}}],
)
def test_options_are_plain_data(options: dict[str, Any]) -> None:
    """They travel to workers and into keys; what would change on the way is refused."""
    with pytest.raises(ConfigError, match=r"judge\.options: must be plain data"):
        load({"judge": {"kind": "other", "options": options}})


@pytest.mark.parametrize("options", [{"api_key": "x"}, {"deep": [{"token_": "sk-abcdefgh12345678"}]}])
def test_options_hold_no_keys(options: dict[str, Any]) -> None:
    """Settings are recorded, and a judge sends nothing by itself."""
    with pytest.raises(ConfigError, match=r"judge\.options: a key does not belong here"):
        load({"judge": {"kind": "other", "options": options}})


def test_options_are_part_of_the_settings() -> None:
    """As they are, and another table is another configuration."""
    one, two = (load({"judge": {"kind": "other", "options": {"n": n, "words": ["a"]}}}) for n in (1, 2))
    assert one.judge[0].options == {"n": 1, "words": ["a"]}
    assert one.digest() != two.digest()
