"""LengthPenaltyConfig: the documents' keys and defaults, from anything that has them."""

from __future__ import annotations

import copy
import pickle
from types import SimpleNamespace

import pytest

from referee.config import load
from referee.errors import ConfigError, MissingKeyError
from referee.trainers.verl import LengthPenaltyConfig

KEY = "sk-canary-1234567890"


def test_names_and_defaults_are_the_documents() -> None:
    """What MISSION promises, key by key."""
    config = LengthPenaltyConfig()
    shown = {name: getattr(config, name) for name in config.__dataclass_fields__}
    expected = {
        "enable": False,
        "penalty_scale": 1.0,
        "max_penalty": 1.0,
        "peak_ratio": 0.3,
        "outer_ratio": 0.5,
        "enable_openai_reward": False,
        "api_key": None,
        "model_name": "deepseek-v3",
        "api_endpoint": "https://qianfan.baidubce.com/v2/chat/completions",
        "reward_coefficient": 1.0,
        "use_async_io": False,
        "max_concurrent_requests": 10,
        "num_async_workers": 4,
        "system_prompt": "",
    }
    assert {name: shown[name] for name in expected} == expected
    assert LengthPenaltyConfig(api_key=KEY).enable_openai_reward is True
    assert LengthPenaltyConfig(api_key=KEY, enable_openai_reward=False).judges is False


@pytest.mark.parametrize("make", [dict, lambda **given: SimpleNamespace(**given)])
def test_any_shape_of_configuration_is_taken(make: type) -> None:
    """A mapping and an object with attributes mean the same; null means not given."""
    config = LengthPenaltyConfig.of(make(enable=True, outer_ratio=0.8, api_key=None, model_name=None))
    assert (config.enable, config.outer_ratio, config.model_name, config.judges) == (True, 0.8, "deepseek-v3", False)


def test_nothing_and_itself_are_taken() -> None:
    """None is the default; a configuration is itself."""
    config = LengthPenaltyConfig(enable=True)
    assert LengthPenaltyConfig.of(config) is config
    assert LengthPenaltyConfig.of(None) == LengthPenaltyConfig()


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"peak_ratio": 0.5, "outer_ratio": 0.5}, r"outer_ratio \(0.5\) must exceed peak_ratio \(0.5\)"),
        ({"peak_ratio": 0.6}, "outer_ratio.*peak_ratio"),
        ({"peak_ratio": -0.1}, "peak_ratio"),
        ({"penality_scale": 2.0}, "Did you mean `penalty_scale`"),
        ({"enable": "yes"}, "enable"),
        ({"max_concurrent_requests": 0}, "max_concurrent_requests"),
        ({"reward_coefficient": float("nan")}, "reward_coefficient"),
        ({"penalty_scale": "1.0"}, "penalty_scale"),
    ],
)
def test_mistakes_are_refused_by_name(given: dict[str, object], words: str) -> None:
    """Each message names the key and what would be right."""
    with pytest.raises(ConfigError, match=words):
        LengthPenaltyConfig.of(given)


def test_an_object_without_any_key_is_refused() -> None:
    """Otherwise a wrong object would silently be the default."""
    with pytest.raises(ConfigError, match="none of its keys"):
        LengthPenaltyConfig.of(object())


@pytest.mark.parametrize(
    ("given", "mode"),
    [
        ({}, "inline"),
        ({"use_async_io": True}, "thread"),
        ({"num_async_workers": 4}, "processes"),
        ({"num_async_workers": 4, "use_async_io": True}, "thread"),
    ],
)
def test_which_way_to_run(given: dict[str, object], mode: str) -> None:
    """The event loop if asked for; else processes if their number is given; else plainly synchronous."""
    config = LengthPenaltyConfig.of(given)
    assert config.mode == mode
    assert pickle.loads(pickle.dumps(config)).mode == mode


def test_the_key_shows_nowhere() -> None:
    """Not in repr, not in pickles; a copy within the process keeps it."""
    config = LengthPenaltyConfig(api_key=KEY)
    assert KEY not in repr(config)
    assert KEY not in str(config.settings("thread"))
    assert KEY.encode() not in pickle.dumps(config)
    assert copy.deepcopy(config).api_key == copy.copy(config).api_key == KEY


def test_a_pickled_configuration_finds_its_key_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """In the environment of the process it arrives in; without it, the error says why."""
    arrived = pickle.loads(pickle.dumps(LengthPenaltyConfig(api_key=KEY)))
    assert arrived.judges
    with pytest.raises(MissingKeyError, match="does not travel in pickles"):
        arrived.settings("thread")
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    assert load(arrived.settings("thread")).endpoint[0].api_key.reveal() == KEY


def test_a_missing_key_is_a_clear_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """Asked for explicitly and not there; a server on this machine needs none."""
    config = LengthPenaltyConfig(enable_openai_reward=True)
    with pytest.raises(MissingKeyError, match="no API key for qianfan"):
        config.settings("thread")
    local = LengthPenaltyConfig(enable_openai_reward=True, api_endpoint="http://127.0.0.1:8099/v1/chat/completions")
    assert load(local.settings("thread")).endpoint[0].key_env == ""
    monkeypatch.delenv("JUDGE_KEY", raising=False)
    with pytest.raises(MissingKeyError, match="JUDGE_KEY is not set"):
        LengthPenaltyConfig(api_key_env="JUDGE_KEY").settings("thread")
    monkeypatch.setenv("JUDGE_KEY", KEY)
    named = LengthPenaltyConfig(api_key_env="JUDGE_KEY")
    assert named.judges
    assert load(named.settings("thread")).endpoint[0].api_key.reveal() == KEY


def test_what_the_keys_mean() -> None:
    """Every key reaches the setting it stands for, and `referee` overrides by name."""
    config = LengthPenaltyConfig(
        enable=True,
        penalty_scale=0.5,
        max_penalty=2.0,
        peak_ratio=0.1,
        outer_ratio=0.9,
        api_key=KEY,
        model_name="m",
        api_endpoint="https://judge.test/v2/chat/completions",
        reward_coefficient=0.1,
        max_concurrent_requests=7,
        system_prompt="Grade.",
        referee={"cache": {"path": ""}, "limits": {"rpm": 5}},
    )
    found = load(config.settings("thread"))
    assert (found.judge[0].kind, found.judge[0].system_prompt, found.judge[0].ask_above) == ("integer", "Grade.", 0.0)
    assert (found.endpoint[0].url, found.endpoint[0].model) == ("https://judge.test/v2/chat/completions", "m")
    assert (found.limits.max_concurrency, found.limits.concurrency, found.limits.rpm) == (7, "auto", 5)
    assert (found.shaping.coefficient, found.shaping.scale, found.cache.path) == (0.1, "native", "")
    length = found.shaping.length
    assert (length.enable, length.penalty_scale, length.max_penalty) == (True, 0.5, 2.0)
    assert (length.peak_ratio, length.outer_ratio) == (0.1, 0.9)
    assert found.limits.deadline == 300
