"""Judges and endpoints that do not fit are refused before anything is sent, with the line to write instead."""

from __future__ import annotations

from typing import Any

import pytest

from referee.config import load
from referee.errors import ConfigError


def config(judge: dict[str, Any], api: str, **endpoint: Any) -> Any:
    return load({"judge": judge, "endpoint": {"api": api, "model": "m", "key_env": "", **endpoint}})


OFF = dict.fromkeys(("empty", "no_alphanumerics", "echo", "truncated"), "off")


@pytest.mark.parametrize("api", ["classify", "score", "pooling"])
@pytest.mark.parametrize("kind", ["score", "yes_no", "rubric", "listwise", "theirs"])
def test_a_judge_of_text_is_not_for_a_reward_model(kind: str, api: str) -> None:
    """Also one of another package."""
    with pytest.raises(ConfigError, match='Write kind = "reward_model" into the judge'):
        config({"kind": kind}, api)


@pytest.mark.parametrize("api", ["chat", "decision"])
def test_a_reward_model_needs_an_endpoint_that_gives_numbers(api: str) -> None:
    """And not probabilities of answers."""
    with pytest.raises(ConfigError, match='Write api = "classify"'):
        config({"kind": "reward_model"}, api)


@pytest.mark.parametrize("kind", ["reference", "integer", "monitor", "listwise", "pairwise", "theirs"])
def test_a_decision_model_answers_only_some_questions(kind: str) -> None:
    """Those that have a yes, a level or criteria."""
    with pytest.raises(ConfigError, match='kind = "score" or "yes_no" or "rubric"'):
        config({"kind": kind}, "decision")


@pytest.mark.parametrize(
    ("judge", "setting"),
    [
        ({"criteria": "Be kind."}, "criteria"),
        ({"system_prompt": "Be kind."}, "system_prompt"),
        ({"reply": "text"}, "reply"),
        ({"max_tokens": 7}, "max_tokens"),
        ({"temperature": 1.0}, "temperature"),
        ({"max_view_tokens": 100}, "max_view_tokens"),
        ({"view": "reasoning"}, "view"),
        ({"steps": "last"}, "steps"),
        ({"compare_with": "reference"}, "compare_with"),
        ({"output": -1}, "output"),
        ({"expected": True}, "expected"),
        ({"abstain_above": 0.1}, "abstain_above"),
        ({"activation": "raw"}, "lowest"),
        ({"activation": "raw", "gates": {"empty": "unscored"}}, "lowest"),
        ({"lowest": -1.0}, "lowest"),
        ({"activation": "raw", "lowest": float("nan")}, "lowest"),
        ({"activation": "raw", "lowest": float("-inf")}, "lowest"),
        ({"activation": "raw", "gates": OFF, "ask_above": 0.0}, "lowest"),
    ],
)
def test_a_setting_that_a_reward_model_would_read_past_is_refused(judge: dict[str, Any], setting: str) -> None:
    """By name, before anything is spent."""
    with pytest.raises(ConfigError) as error:
        config({"kind": "reward_model", **judge}, "classify")
    assert str(error.value.setting).endswith(setting)


@pytest.mark.parametrize(
    ("judge", "setting"),
    [
        ({"prompt_file": "p.txt"}, "prompt_file"),
        ({"reply": "schema"}, "reply"),
        ({"high": 11}, "high"),
        ({"kind": "yes_no", "fences": False}, "fences"),
        ({"kind": "rubric", "combine": "implicit"}, "combine"),
    ],
)
def test_a_setting_that_a_decision_model_would_read_past_is_refused(judge: dict[str, Any], setting: str) -> None:
    """It is asked in a form of its own."""
    with pytest.raises(ConfigError) as error:
        config(judge, "decision")
    assert str(error.value.setting).endswith(setting)


def test_a_decision_model_is_unsure_by_itself() -> None:
    """So its verdicts may be abstained from without further settings."""
    assert config({"abstain_above": 0.2}, "decision").judge[0].api == "decision"


def test_endpoints_of_one_judge_speak_one_api() -> None:
    """Also a backup: its verdicts would be on another scale."""
    endpoints = [
        {"name": "a", "api": "classify", "model": "m", "key_env": ""},
        {"name": "b", "api": "pooling", "model": "m", "key_env": "", "backup": True},
    ]
    with pytest.raises(ConfigError, match="different APIs"):
        load({"judge": {"kind": "reward_model"}, "endpoint": endpoints})


def test_sglang_needs_the_models_chat_format() -> None:
    """It takes a reward model's input as text, and gives raw numbers."""
    with pytest.raises(ConfigError, match="prompt_file"):
        config({"kind": "reward_model"}, "classify", provider="sglang")
    with pytest.raises(ConfigError, match="raw numbers"):
        config({"kind": "reward_model", "prompt_file": "p.txt", "activation": "server"}, "classify", provider="sglang")
    assert config({"kind": "reward_model"}, "score", provider="sglang").judge[0].api == "score"


def test_replies_of_a_reward_model_cost_nothing() -> None:
    """A budget needs price_in alone there, and both prices elsewhere."""
    limits = {"budget_usd": 1.0}
    endpoint = {"api": "classify", "model": "m", "key_env": "", "price_in": 0.1}
    loaded = load({"judge": {"kind": "reward_model"}, "endpoint": endpoint, "limits": limits})
    assert loaded.endpoint[0].price_out == 0.0
    assert load(loaded) is loaded or load(loaded) == loaded
    with pytest.raises(ConfigError, match="price_out"):
        load({"endpoint": {**endpoint, "api": "chat"}, "limits": limits})


def test_the_api_of_a_judge_is_not_a_setting() -> None:
    """It is that of its endpoints."""
    with pytest.raises(ConfigError, match=r"endpoint\.api"):
        load({"judge": {"api": "classify", "kind": "reward_model"}, "endpoint": {"key_env": ""}})
