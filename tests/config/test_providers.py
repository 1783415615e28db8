"""Providers by name: what is filled in, what wins, what is refused; and the table of prices."""

from __future__ import annotations

import datetime
import pickle
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from referee.config import PROVIDERS, Config, EndpointConfig, find_price, load, price_table, provider_name, provider_of
from referee.config.providers import LOCAL_MODEL
from referee.errors import ConfigError

NAMED = [
    "openai",
    "anthropic",
    "gemini",
    "azure",
    "openrouter",
    "deepseek",
    "qianfan",
    "dashscope",
    "groq",
    "together",
    "fireworks",
    "mistral",
    "vllm",
    "sglang",
    "ollama",
    "llamacpp",
    "local",
]


def endpoint(**settings: Any) -> EndpointConfig:
    """An endpoint as a TOML file would give it."""
    return load({"endpoint": settings}).endpoint[0]


def usable(name: str) -> dict[str, str]:
    """The least that a provider needs."""
    needed = {"provider": name, "model": LOCAL_MODEL if name == "local" else "some-model"}
    return needed | ({} if PROVIDERS[name].url else {"url": PROVIDERS[name].example_url})


def test_all_of_them_are_there() -> None:
    """Every provider that is promised has an entry."""
    assert sorted(PROVIDERS) == sorted(NAMED)


@pytest.mark.parametrize("name", NAMED)
def test_a_name_is_enough(name: str) -> None:
    """A provider and a model give an address, an API and a variable for the key."""
    found = endpoint(**usable(name))
    known = PROVIDERS[name]
    assert (found.url, found.api, found.key_env) == (known.url or known.example_url, known.api, known.key_env)
    assert provider_of(found) is known


@pytest.mark.parametrize("name", NAMED)
def test_filling_in_twice_changes_nothing(name: str) -> None:
    """A loaded configuration stays what it is: loaded again, from its public form, pickled."""
    config = load({"endpoint": usable(name)})
    assert load(config) is config
    assert load(config.public()) == config
    assert pickle.loads(pickle.dumps(config)) == config
    assert load(load(config)).digest() == config.digest()


@given(
    st.sampled_from(NAMED[:-1]),
    st.fixed_dictionaries(
        {},
        optional={
            "key_env": st.sampled_from(["OPENAI_API_KEY", "MINE", ""]),
            "api": st.sampled_from(["chat", "anthropic"]),
            "url": st.just("https://judge.example/v1"),
            "name": st.just("one"),
            "price_in": st.just(3.0),
        },
    ),
)
def test_what_the_user_wrote_wins(name: str, written: dict[str, Any]) -> None:
    """Also a value that is our default elsewhere, and also after a second loading."""
    if "price_in" in written:
        written["price_out"] = 4.0
    config = load({"endpoint": {**usable(name), **written}})
    assert {field: getattr(load(config).endpoint[0], field) for field in written} == written


def test_the_environment_wins_over_the_provider() -> None:
    """REFEREE_ENDPOINT_* is written by the user too."""
    found = load({"endpoint": {"provider": "vllm"}}, {"REFEREE_ENDPOINT_MODEL": "m", "REFEREE_ENDPOINT_KEY_ENV": "K"})
    assert (found.endpoint[0].model, found.endpoint[0].key_env) == ("m", "K")
    named = load({}, {"REFEREE_ENDPOINT_PROVIDER": "deepseek", "REFEREE_ENDPOINT_MODEL": "m"}).endpoint[0]
    assert (named.key_env, named.host) == ("DEEPSEEK_API_KEY", "api.deepseek.com")


def test_an_endpoint_made_in_python() -> None:
    """What is at its default is filled in."""
    made = Config(endpoint=(EndpointConfig(provider="groq", model="openai/gpt-oss-20b", key_env="MINE"),))
    found = load(made).endpoint[0]
    assert (found.host, found.key_env, found.price_in) == ("api.groq.com", "MINE", 0.075)
    assert load(load(made)) == load(made)


@pytest.mark.parametrize(
    ("settings", "setting", "words"),
    [
        ({"provider": "antropic"}, "endpoint[0].provider", ["'antropic'", "'anthropic'"]),
        ({"provider": "x"}, "endpoint[0].provider", ["'x'", "openai", "vllm"]),
        ({"provider": "azure", "model": "m"}, "endpoint[0].url", ['url = "https://', "openai.azure.com/openai/v1"]),
        ({"provider": "gemini"}, "endpoint[0].model", ["no default model", "`referee docs providers/gemini`"]),
        (
            {"provider": "openai", "url": "https://api.deepseek.com/v1"},
            "endpoint[0].provider",
            ["deepseek's", 'provider = "deepseek"'],
        ),
        ({"provider": "local", "model": "qwen"}, "endpoint[0].model", [".gguf", "llamacpp"]),
    ],
)
def test_refusals_say_which_line_to_write(settings: dict[str, str], setting: str, words: list[str]) -> None:
    """A name that is not known, an address or a model that is missing, a contradiction."""
    with pytest.raises(ConfigError) as caught:
        load({"endpoint": settings})
    assert caught.value.setting == setting
    assert all(word in str(caught.value) for word in words)


def test_a_router_is_pinned_unless_told_otherwise() -> None:
    """OpenRouter must choose a server that takes all parameters; what the user adds is kept beside it."""
    assert endpoint(provider="openrouter", model="m").extra == {"provider": {"require_parameters": True}}
    mine = {"provider": {"only": ["deepinfra"], "require_parameters": False}, "top_p": 0.9}
    assert endpoint(provider="openrouter", model="m", extra=mine).extra == mine
    both = endpoint(provider="openrouter", model="m", extra={"provider": {"only": ["deepinfra"]}}).extra
    assert both == {"provider": {"require_parameters": True, "only": ["deepinfra"]}}


def test_a_local_model_is_found_from_the_file_that_names_it(tmp_path: Path) -> None:
    """A path is relative to the TOML file, and only its last part is in the digest."""
    digests = []
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        file = tmp_path / folder / "referee.toml"
        file.write_text('[endpoint]\nprovider = "local"\nmodel = "judge.gguf"\n')
        config = load(file)
        assert config.endpoint[0].model == str(tmp_path / folder / "judge.gguf")
        assert config.endpoint[0].label == "judge"
        digests.append(config.digest())
    assert digests[0] == digests[1]


def test_prices_come_from_the_table() -> None:
    """By the provider's name, or by the host of the URL; what the user gives wins, and then nothing is mixed in."""
    known = find_price("anthropic", "claude-haiku-4-5")
    assert known is not None
    found = endpoint(provider="anthropic", model="claude-haiku-4-5-20251001")
    assert (found.price_in, found.price_out) == (known.input, known.out)
    assert (found.price_cached, found.price_cache_write) == (known.cached, known.write)
    assert found.filled.prices_date == price_table().date
    assert endpoint(url="https://api.deepseek.com", model="deepseek-v4-pro").price_in is not None
    mine = endpoint(provider="anthropic", model="claude-haiku-4-5", price_in=7.0, price_out=8.0)
    assert (mine.price_in, mine.price_cached, mine.filled.prices_of) == (7.0, None, "")
    assert endpoint(provider="anthropic", model="unheard-of").price_in is None
    assert endpoint(url="http://127.0.0.1:8000/v1").price_in is None
    assert endpoint(provider="local").price_in == 0.0


def test_a_changed_model_has_its_own_price() -> None:
    """Prices that were filled in for one model do not stay when the configuration gets another."""
    config = load({})
    assert config.endpoint[0].price_in == 0.15
    other = load(replace(config, endpoint=(replace(config.endpoint[0], model="gpt-4.1"),)))
    assert (other.endpoint[0].price_in, other.endpoint[0].filled.prices_of) == (2.0, "gpt-4.1")
    unknown = load(replace(config, endpoint=(replace(config.endpoint[0], model="unheard-of"),)))
    assert (unknown.endpoint[0].price_in, unknown.endpoint[0].filled.prices_of) == (None, "")
    dearer = load(replace(config, endpoint=(replace(config.endpoint[0], price_in=9.0, price_out=9.0),)))
    assert (dearer.endpoint[0].price_in, dearer.endpoint[0].price_cached) == (9.0, None)


def test_a_budget_works_with_a_price_of_the_table() -> None:
    """And is refused, as before, where there is none."""
    assert load({"limits": {"budget_usd": 1.0}}).limits.budget_usd == 1.0
    with pytest.raises(ConfigError, match="price_in"):
        load({"limits": {"budget_usd": 1.0}, "endpoint": {"provider": "vllm", "model": "m"}})


@pytest.mark.parametrize(
    ("provider", "model", "family"),
    [
        ("openai", "gpt-4o-mini-2024-07-18", "gpt-4o-mini"),
        ("openai", "GPT-4o-mini", "gpt-4o-mini"),
        ("anthropic", "claude-haiku-4-5@20251001", "claude-haiku-4-5"),
        ("anthropic", "claude-sonnet-4-6-latest", "claude-sonnet-4-6"),
        ("gemini", "models/gemini-2.5-flash", "gemini-2.5-flash"),
        ("fireworks", "accounts/fireworks/models/gpt-oss-20b", "gpt-oss-20b"),
        ("mistral", "mistral-small-latest", "mistral-small-latest"),
    ],
)
def test_a_snapshot_costs_what_its_family_costs(provider: str, model: str, family: str) -> None:
    """A date, `latest` or the provider's path before a name change nothing."""
    assert find_price(provider, model) == price_table().providers[provider].models[family]


def test_a_snapshot_with_a_price_of_its_own_has_that() -> None:
    """The first gpt-4o never became as cheap as its family."""
    found = find_price("openai", "gpt-4o-2024-05-13")
    assert found is not None
    assert (found.input, found.out, found.cached) == (5.0, 15.0, None)


@pytest.mark.parametrize(
    ("provider", "model"),
    [
        ("openai", "gpt-4o-mini-audio"),
        ("openai", "ft:gpt-4o-mini:me"),
        ("openai", "gpt-4"),
        ("openai", "gpt-4o-mini-2024"),
        ("groq", "gpt-oss-20b"),
        ("vllm", "gpt-4o-mini"),
        ("", "gpt-4o-mini"),
    ],
)
def test_nothing_else_is_taken_for_the_same(provider: str, model: str) -> None:
    """An unknown cost is better than a wrong one."""
    assert find_price(provider, model) is None


def test_the_table_is_sound() -> None:
    """It has a date; every provider's page; every price positive, cached ones below and written ones above it."""
    table = price_table()
    assert datetime.date(2026, 11, 1) <= datetime.date.fromisoformat(table.date)
    assert table.providers.keys() <= PROVIDERS.keys()
    for listed in table.providers.values():
        assert listed.source.startswith("https://")
        assert listed.models
        for price in listed.models.values():
            assert 0 < price.input <= price.out
            assert price.cached is None or 0 < price.cached < price.input
            assert price.write is None or price.write > price.input


def test_a_port_names_no_provider() -> None:
    """A program on vLLM's usual port is not taken for vLLM."""
    assert provider_name(endpoint(url="http://127.0.0.1:8000/v1", model="m")) == ""
    assert provider_name(endpoint()) == "openai"
