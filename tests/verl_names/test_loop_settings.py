"""What a verl configuration says to RefereeRewardManager. Plain mappings here; OmegaConf in tests/trainers."""

from __future__ import annotations

from typing import Any

import pytest

from referee.errors import ConfigError
from referee.trainers.verl.loop_settings import is_validation, loop_settings

JUDGE = {"endpoint": {"url": "http://127.0.0.1:9/v1", "key_env": ""}}


def verl(referee: dict[str, Any] | None, **reward: Any) -> dict[str, Any]:
    return {
        "actor_rollout_ref": {"rollout": {"n": 5, "val_kwargs": {"n": 1}}},
        "trainer": {"use_v1": True},
        "reward": {"num_workers": 8, **reward, **({} if referee is None else {"referee": referee})},
    }


def test_what_is_read() -> None:
    """Siblings, workers, the trainer's generation, and the judge."""
    found = loop_settings(verl({"config": JUDGE, "rule_keys": ["acc"], "group_wait": 5}))
    assert (found.siblings, found.validation_siblings, found.workers, found.drops_groups) == (5, 1, 8, True)
    assert (found.rule, found.rule_keys, found.group_wait, found.asks) == (True, ("acc",), 5.0, True)


def test_an_old_trainer_does_not_drop_groups() -> None:
    """Before V1 an error stops the run."""
    assert not loop_settings({"reward": {"referee": {"config": JUDGE}}}).drops_groups


@pytest.mark.parametrize("where", ["referee", "reward_kwargs"])
def test_length_penalty_keys_work_here_too(where: str) -> None:
    """Under reward.referee.length_penalty, or where verl's own migration puts the old reward_kwargs."""
    keys = {"enable": True, "enable_openai_reward": True, "api_endpoint": "http://127.0.0.1:9/v1"}
    found = loop_settings(
        verl({"length_penalty": keys})
        if where == "referee"
        else verl(None, reward_kwargs={"length_penalty_config": keys})
    )
    assert found.config.judge[0].kind == "integer"
    assert found.config.shaping.length.enable
    assert found.config.missing.policy == "abstain"


def test_without_a_key_only_the_length_counts() -> None:
    """The judge is off, and that is no error."""
    found = loop_settings(verl({"length_penalty": {"enable": True}}))
    assert not found.asks
    assert found.config.shaping.length.enable


@pytest.mark.parametrize(
    ("referee", "reward", "words"),
    [
        (None, {}, r"\+reward.referee.config=referee.toml"),
        ({"confg": "x"}, {}, "Did you mean `config`"),
        ({"config": JUDGE, "length_penalty": {"enable": True}}, {}, "not both"),
        ({"config": JUDGE, "group_wait": 0}, {}, "group_wait"),
        ({"config": JUDGE}, {"max_rpm": 60, "timeout": 20}, r"\[limits\] rpm = 60, attempt_timeout = 20"),
    ],
)
def test_mistakes_are_refused(referee: dict[str, Any] | None, reward: dict[str, Any], words: str) -> None:
    """Each with what to write instead."""
    with pytest.raises(ConfigError, match=words):
        loop_settings(verl(referee, **reward))


def test_validation_rows_say_so_themselves() -> None:
    """By extra_info["split"], as verl's own data preparation writes it."""
    assert is_validation({"split": "test"})
    assert not is_validation({"split": "train"})
    assert not is_validation({})
