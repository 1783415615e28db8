"""From files, mappings and the environment to a configuration, or to an error that says what to change."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest

from referee.config import Config, EndpointConfig, load
from referee.errors import ConfigError
from referee.referee import Referee
from referee.trainers.shared import Judged

KEY = "sk-canary-0123456789"


def write(folder: Path, text: str) -> Path:
    path = folder / "referee.toml"
    path.write_text(text)
    return path


def refusal(source: Any, env: Mapping[str, str] | None = None) -> str:
    with pytest.raises(ConfigError) as caught:
        load(source, env)
    assert KEY not in str(caught.value)
    return str(caught.value)


def test_nothing_is_needed() -> None:
    """An empty configuration is the default one, with its model's prices."""
    assert load({}) == load(Config())
    assert load({}).endpoint[0].price_in is not None


def test_a_file_is_read(tmp_path: Path) -> None:
    """Every section of a file arrives."""
    path = write(
        tmp_path,
        """
        runtime = "inline"
        [judge]
        high = 5
        [judge.gates]
        echo = "off"
        [endpoint]
        url = "http://localhost:8000/v1"
        extra = { reasoning_effort = "low" }
        [limits]
        concurrency = 20
        [shaping.length]
        enable = true
        [missing]
        policy = "group_mean"
        """,
    )
    config = load(path)
    assert config.runtime == "inline"
    assert config.judge[0].high == 5
    assert config.judge[0].gates.echo == "off"
    assert config.endpoint[0].extra == {"reasoning_effort": "low"}
    assert config.limits.concurrency == 20
    assert config.shaping.length.enable
    assert config.missing.policy == "group_mean"
    assert load(str(path)) == config


@pytest.mark.parametrize("header", ["[endpoint]", "[[endpoint]]"])
def test_one_endpoint_can_be_written_both_ways(tmp_path: Path, header: str) -> None:
    """A table and a list of tables are the same."""
    config = load(write(tmp_path, f'{header}\nmodel = "m"'))
    assert [endpoint.model for endpoint in config.endpoint] == ["m"]


def test_several_endpoints_keep_their_order() -> None:
    """Endpoints are used in the order they are written."""
    config = load({"endpoint": [{"model": "a"}, {"model": "b", "backup": True}]})
    assert [endpoint.model for endpoint in config.endpoint] == ["a", "b"]


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ({"judges": {}}, ["judges", "`judge`"]),
        ({"endpoints": [{}]}, ["endpoints", "`endpoint`"]),
        ({"judge": {"hihg": 5}}, ["judge.hihg", "high"]),
        ({"judge": {"gates": {"empy": "off"}}}, ["judge.gates.empy", "empty"]),
        ({"limits": {"max_concurrent": 5}}, ["limits.max_concurrent", "max_concurrency"]),
        ({"endpoint": [{}, {"modle": "m"}]}, ["endpoint.modle", "model"]),
        ({"shaping": {"length": {"enabled": True}}}, ["shaping.length.enabled", "enable"]),
        ({"limits": {"zzz": 5}}, ["limits.zzz", "Known here: attempt_timeout"]),
        ({"limits": {5: 5}}, ["limits.5"]),
        ({5: 5}, ["`5`"]),
    ],
)
def test_unknown_keys_are_refused_with_the_nearest_name(source: Any, words: list[str]) -> None:
    """A misspelt setting is not silently off: the message has it and what was probably meant."""
    message = refusal(source)
    assert "unknown key" in message
    for word in words:
        assert word in message


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ({"limits": {"rpm": "60"}}, ["limits.rpm", "expected `int`, got `str`"]),
        ({"limits": {"rpm": True}}, ["limits.rpm", "`bool`"]),
        ({"limits": {"rpm": 1.5}}, ["limits.rpm", "`float`"]),
        ({"limits": 5}, ["limits", "`int`"]),
        ({"limits": None}, ["limits", "`null`"]),
        ({"judge": {"gates": {"echo": "no"}}}, ["judge.gates.echo", "one of: lowest, unscored, off"]),
        ({"limits": {"concurrency": "many"}}, ["limits.concurrency", "one of: a number, auto"]),
        ({"endpoint": [{}, {"url": 5}]}, ["endpoint[1].url", "`int`"]),
        ({"endpoint": 5}, ["endpoint", "table"]),
        ({"endpoint": {"api_key": 5}}, ["endpoint[0].api_key", "`int`"]),
        ({"cache": {"enabled": "yes"}}, ["cache.enabled", "`bool`"]),
    ],
)
def test_wrong_types_are_named_and_never_coerced(source: Any, words: list[str]) -> None:
    """The message has the setting and what it got."""
    message = refusal(source)
    for word in words:
        assert word in message


@pytest.mark.parametrize("header", ["[endpoint]", "[[endpoint]]"])
def test_a_key_in_a_file_is_refused(tmp_path: Path, header: str) -> None:
    """A key does not belong in a file; the message says where it does, and does not repeat it."""
    message = refusal(write(tmp_path, f'{header}\napi_key = "{KEY}"'))
    assert "key_env" in message
    assert "key_file" in message


@pytest.mark.parametrize(
    "extra",
    [
        f'api_key = "{KEY}"',
        f'"X-Api-Key" = "{KEY}"',
        f'extra_headers = {{ Authorization = "Bearer {KEY}" }}',
        f'litellm = {{ params = {{ aws_secret_access_key = "{KEY}" }} }}',
        f'fallbacks = [{{ model = "m", auth = "{KEY}" }}]',
    ],
)
def test_a_key_in_extra_is_refused_in_a_file_too(tmp_path: Path, extra: str) -> None:
    """However deep it stands; the message names the field and where the key belongs."""
    message = refusal(write(tmp_path, f"[endpoint.extra]\n{extra}"))
    assert "endpoint[0].extra" in message
    assert "key_env" in message


def test_other_extra_fields_are_not_taken_for_keys(tmp_path: Path) -> None:
    """Fields that only sound like it."""
    text = '[endpoint.extra]\nprompt_cache_key = "a"\nmin_tokens = 1\nstop_token_ids = [1]\nsafety_identifier = "u"'
    config = load(write(tmp_path, text))
    assert config.public()["endpoint"][0]["extra"] == config.endpoint[0].extra


def test_endpoints_at_one_host_are_told_apart() -> None:
    """Two models, or two accounts, at one provider are two endpoints in the record; names of the user's stay."""
    models = ["a", "b", "b", "b"]
    config = load(
        {
            "endpoint": [*({"model": m} for m in models), {"name": "mine"}, {"url": "https://h.example/v1"}],
            "judge": {"endpoint": "mine"},
        }
    )
    host = "api.openai.com"
    assert [endpoint.label for endpoint in config.endpoint] == [
        f"{host}/a",
        f"{host}/b",
        f"{host}/b#2",
        f"{host}/b#3",
        "mine",
        "h.example",
    ]
    assert load(config.public()) == config
    made = Config(endpoint=(EndpointConfig(model="a"), EndpointConfig(model="b", backup=True)))
    assert [endpoint.label for endpoint in load(made).endpoint] == [f"{host}/a", f"{host}/b"]


@pytest.mark.parametrize("head", [b"\xef\xbb\xbf", b""])
def test_a_byte_order_mark_is_passed_over(tmp_path: Path, head: bytes) -> None:
    """Editors on Windows write one."""
    path = tmp_path / "referee.toml"
    path.write_bytes(head + b"[judge]\r\nhigh = 5\r\n")
    assert load(path).judge[0].high == 5


@pytest.mark.parametrize(
    "source",
    [
        {"endpoint": {"api_key": KEY, "url": 5}},
        {"endpoint": {"api_key": KEY, "modle": "m"}},
        {"endpoint": {"api_key": KEY, "url": "http://example.com/v1"}},
        {"endpoint": {"api_key": {"key": KEY}}},
        {"endpoint": {"api_key": [KEY]}},
        {"endpoint": {"url": f"https://me:{KEY}@example.com/v1"}},
        {"endpoint": {"url": f"https://example.com/v1?key={KEY}"}},
        {"endpoint": {"url": f"ftp://me:{KEY}@example.com"}},
        {"endpoint": {"url": f"me:{KEY}@example.com"}},
        {"endpoint": {"url": f"ftp://example.com?key={KEY}"}},
        {"endpoint": {"proxy": f"socks5://me:{KEY}@proxy"}},
        {"endpoint": {"api_key": KEY, "price_in": 1.0}},
    ],
)
def test_no_error_shows_a_key(source: Any) -> None:
    """Whatever else is wrong, the key is not in the message."""
    refusal(source)


def test_keys_in_a_mapping_are_taken() -> None:
    """From Python a key may be given as it is."""
    key = load({"endpoint": {"api_key": KEY}}).endpoint[0].api_key
    assert key is not None
    assert key.reveal() == KEY


@pytest.mark.parametrize(
    ("variable", "text", "pick", "expected"),
    [
        ("REFEREE_LIMITS_RPM", "500", lambda c: c.limits.rpm, 500),
        ("REFEREE_LIMITS_CONCURRENCY", "auto", lambda c: c.limits.concurrency, "auto"),
        ("REFEREE_LIMITS_CONCURRENCY", "20", lambda c: c.limits.concurrency, 20),
        ("REFEREE_LIMITS_MAX_CONCURRENCY", "9", lambda c: c.limits.max_concurrency, 9),
        ("REFEREE_LIMITS_DEADLINE", "5", lambda c: c.limits.deadline, 5.0),
        ("REFEREE_JUDGE_TEMPERATURE", "0.5", lambda c: c.judge[0].temperature, 0.5),
        ("REFEREE_JUDGE_TEMPERATURE", "default", lambda c: c.judge[0].temperature, "default"),
        ("REFEREE_JUDGE_CRITERIA", "20", lambda c: c.judge[0].criteria, "20"),
        ("REFEREE_JUDGE_GATES_NO_ALPHANUMERICS", "off", lambda c: c.judge[0].gates.no_alphanumerics, "off"),
        ("REFEREE_ENDPOINT_MODEL", "m", lambda c: c.endpoint[0].model, "m"),
        ("REFEREE_ENDPOINT_KEY_OVER_HTTP", "true", lambda c: c.endpoint[0].key_over_http, True),
        ("REFEREE_ENDPOINT_EXTRA", "{ seed = 1 }", lambda c: c.endpoint[0].extra, {"seed": 1}),
        ("REFEREE_SHAPING_LENGTH_ENABLE", "true", lambda c: c.shaping.length.enable, True),
        ("REFEREE_RUNTIME", "inline", lambda c: c.runtime, "inline"),
        ("REFEREE_ENDPOINT_API_KEY", KEY, lambda c: c.endpoint[0].api_key.reveal(), KEY),
    ],
)
def test_the_environment_overrides(variable: str, text: str, pick: Any, expected: Any) -> None:
    """A variable sets the key it names, whatever depth, with the setting's own type."""
    assert pick(load({}, {variable: text})) == expected


def test_what_kubernetes_says_of_a_service_called_referee_is_no_setting() -> None:
    """Every pod of its namespace has such variables; trainers there start all the same."""
    told = {"REFEREE_SERVICE_HOST": "10.0.0.7", "REFEREE_SERVICE_PORT": "8900", "REFEREE_SERVICE_PORT_HTTP": "8900"}
    assert load({}, told) == load({}, {})


def test_the_environment_wins_over_the_file_and_spares_the_rest(tmp_path: Path) -> None:
    """An override changes one key of one section; the caller's mapping is not written to."""
    source = {"limits": {"rpm": 5, "tpm": 7}, "endpoint": [{"model": "a", "name": "x"}, {"model": "b", "backup": True}]}
    before = msgspec.json.encode(source)
    config = load(source, {"REFEREE_LIMITS_RPM": "6", "REFEREE_ENDPOINT_MODEL": "c"})
    assert (config.limits.rpm, config.limits.tpm) == (6, 7)
    assert [(endpoint.model, endpoint.name) for endpoint in config.endpoint] == [("c", "x"), ("b", "")]
    assert msgspec.json.encode(source) == before
    assert load(write(tmp_path, "[limits]\nrpm = 5"), {"REFEREE_LIMITS_RPM": "6"}).limits.rpm == 6


def test_other_variables_are_left_alone() -> None:
    """Variables that name no section belong to other programs."""
    assert load({}, {"REFEREE_HOME": "/x", "LIMITS_RPM": "5", "PATH": "/bin", "REFEREE_": ""}) == load({})


@pytest.mark.parametrize(
    ("variable", "text", "words"),
    [
        ("REFEREE_LIMITS_RPN", "5", ["rpm"]),
        ("REFEREE_LIMITS", "5", ["names no setting"]),
        ("REFEREE_LIMITS_RPM_MORE", "5", ["names no setting"]),
        ("REFEREE_LIMITS_RPM", "many", ["'many'"]),
        ("REFEREE_LIMITS_RPM", "", ["''"]),
        ("REFEREE_LIMITS_RPM", "9" * 5000, []),
        ("REFEREE_LIMITS_RPM", "[" * 50_000, []),
        ("REFEREE_RUNTIME", "fast", ["'fast'", "one of: thread, inline, processes, ray"]),
    ],
)
def test_a_wrong_override_is_refused(variable: str, text: str, words: list[str]) -> None:
    """The message has the variable and the value, or the setting that was meant."""
    message = refusal({}, {variable: text})
    for word in [variable, *words]:
        assert word in message


@pytest.mark.parametrize(
    ("text", "write"),
    [
        ('[judge]\nkind = "score"\n[[judge]]\nname = "b"\n', "[[judge]]"),
        ('[[judge]]\nname = "b"\n[judge]\nkind = "score"\n', "[[judge]]"),
        ('[endpoint]\nmodel = "a"\n\n[ endpoint ]\nmodel = "b"\n', "[[endpoint]]"),
        ("[limits]\nrpm = 1\n[limits]\ntpm = 1\n", ""),
    ],
)
def test_single_and_double_brackets_do_not_mix(tmp_path: Path, text: str, write: str) -> None:
    """TOML's own words for it do not say what to write instead."""
    path = tmp_path / "referee.toml"
    path.write_text(text)
    with pytest.raises(ConfigError, match="not valid TOML") as caught:
        load(path)
    assert (f"write each as {write}." in str(caught.value)) == bool(write)


@pytest.mark.parametrize(
    ("variable", "text"),
    [
        ("REFEREE_ENDPOINT_EXTRA", f'{{"api_key":"{KEY}"}}'),
        ("REFEREE_ENDPOINT_EXTRA", '{"password":"hunter2"}'),
        ("REFEREE_LIMITS_RPM", KEY),
    ],
)
def test_a_wrong_override_does_not_show_a_key(variable: str, text: str) -> None:
    """JSON where TOML is read, or the right key in the wrong variable: named, not repeated."""
    message = refusal({}, {variable: text})
    assert variable in message
    assert "hunter2" not in message


def test_an_override_does_not_hide_a_wrong_section() -> None:
    """A section that is no table is refused, also when a variable would set a key in it."""
    for wrong in (5, "abc", None, [1]):
        assert "limits" in refusal({"limits": wrong}, {"REFEREE_LIMITS_RPM": "5"})


@pytest.mark.parametrize(
    "content", [b"a = [", b"\xff\xfe", b"a = " + b"[" * 50_000, b"a = " + b"9" * 5000, b"a = \x00"]
)
def test_a_file_that_is_no_toml_is_named(tmp_path: Path, content: bytes) -> None:
    """A broken file is an error with its name."""
    path = tmp_path / "referee.toml"
    path.write_bytes(content)
    assert str(path) in refusal(path)


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    """A missing file, a folder and an impossible name are errors that say so."""
    assert "referee init" in refusal(tmp_path / "none.toml")
    assert str(tmp_path) in refusal(tmp_path)
    refusal("a\0b")


def test_a_config_comes_back_as_it_is_if_it_is_sound() -> None:
    """Configurations made in Python pass the same rules."""
    config = load({"judge": {"high": 5}})
    assert load(config) is config
    broken = msgspec.structs.replace(config, judge=(msgspec.structs.replace(config.judge[0], low=9),))
    assert "judge.low" in refusal(broken)


def test_a_config_is_final_and_a_mapping_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    """What code has put into a Config stays, whatever the environment says; a mapping is overridden, as a file is."""
    monkeypatch.setenv("REFEREE_LIMITS_RPM", "500")
    given = {"endpoint": {"url": "http://127.0.0.1:9/v1", "key_env": ""}, "limits": {"rpm": 5}, "cache": {"path": ""}}
    config = load(given)
    assert load(config, os.environ) is config
    for source, rpm in ((config, 5), (given, 500), (load(given, os.environ), 500)):
        with Referee.from_config(source) as referee:
            assert referee.config.limits.rpm == rpm
        assert Judged(source).config.limits.rpm == rpm


class Node(Mapping[str, Any]):
    """A mapping that is not a dict, as OmegaConf nodes are."""

    def __init__(self, data: dict[str, Any]) -> None:
        self._data = data

    def __getitem__(self, key: str) -> Any:
        value = self._data[key]
        return Node(value) if isinstance(value, dict) else value

    def __iter__(self) -> Iterator[str]:
        return iter(self._data)

    def __len__(self) -> int:
        return len(self._data)


def test_any_mapping_will_do() -> None:
    """Trainers hand over mappings of their own kind."""
    source = Node({"judge": {"high": 5}, "endpoint": {"model": "m"}, "shaping": {"length": {"enable": True}}})
    config = load(source, {"REFEREE_SHAPING_LENGTH_PEAK_RATIO": "0.1"})
    assert config.judge[0].high == 5
    assert config.endpoint[0].model == "m"
    assert config.shaping.length.enable
    assert config.shaping.length.peak_ratio == 0.1


def test_another_address_is_not_known_by_the_old_name() -> None:
    """A variable that names another server must not make the cache take it for the one in the file."""
    given = {"endpoint": {"url": "http://10.0.0.1:8000/v1", "known_as": "ours"}}
    other = {"REFEREE_ENDPOINT_URL": "http://other.test/v1"}
    assert load(given, {}).endpoint[0].known_as == "ours"
    assert load(given, other).endpoint[0].known_as == ""
    assert load(given, {**other, "REFEREE_ENDPOINT_KNOWN_AS": "theirs"}).endpoint[0].known_as == "theirs"
