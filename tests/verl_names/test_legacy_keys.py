"""Keys that verl 0.9 silently ignores are refused, with their new spelling."""

from __future__ import annotations

import subprocess
import sys

import pytest

from referee.errors import ConfigError
from referee.trainers.verl import refuse_legacy_keys
from referee.trainers.verl.legacy_keys import new_spelling

DEFAULTS = {
    "custom_reward_function": {"path": None, "name": None},
    "reward_model": {"num_workers": None, "reward_manager": None, "model": {"path": None}, "rollout": {"name": None}},
    "sandbox_fusion": {"url": None},
    "reward": {"num_workers": 8},
}


def test_verls_own_defaults_pass() -> None:
    """The old sections are still there, full of nulls."""
    refuse_legacy_keys(DEFAULTS)
    refuse_legacy_keys({})


@pytest.mark.parametrize(
    ("section", "key", "value", "new"),
    [
        ("custom_reward_function", "path", "my.py", "reward.custom_reward_function.path"),
        ("custom_reward_function", "reward_kwargs", {"k": 1}, r"\+reward.custom_reward_function.reward_kwargs.k"),
        ("reward_model", "reward_manager", "dapo", "reward.reward_manager.name"),
        ("reward_model", "reward_manager", "length_penalty", "pkg://referee.trainers.verl"),
        ("reward_model", "num_workers", 4, "reward.num_workers"),
        ("reward_model", "reward_kwargs", {"max_resp_len": 8}, r"\+reward.reward_kwargs.max_resp_len"),
        ("reward_model", "launch_reward_fn_async", True, "always overlap"),
        ("reward_manager", "name", "X", "reward.reward_manager.name"),
    ],
)
def test_old_keys_are_named_with_the_new(section: str, key: str, value: object, new: str) -> None:
    """The message holds the old key, its value and what to write."""
    with pytest.raises(ConfigError, match=rf"{section}.{key}.*{new}"):
        refuse_legacy_keys({**DEFAULTS, section: {key: value}})


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("custom_reward_function.path=my.py", "reward.custom_reward_function.path=my.py"),
        ("+custom_reward_function.reward_kwargs.k=1", "+reward.custom_reward_function.reward_kwargs.k=1"),
        ("reward_model.model.path=rm", "reward.reward_model.model_path=rm"),
        ("reward.num_workers=4", ""),
        ("data.train_batch_size=8", ""),
        ("custom_reward_function.path=null", ""),
    ],
)
def test_overrides_are_translated(old: str, new: str) -> None:
    """One by one, as they stand on a command line."""
    assert new_spelling(old) == new


def test_a_command_line_can_be_checked() -> None:
    """python -m referee.trainers.verl, without verl."""
    run = [sys.executable, "-m", "referee.trainers.verl"]
    old = subprocess.run(
        [*run, "reward_model.reward_manager=length_penalty"], capture_output=True, text=True, timeout=50
    )
    assert old.returncode == 1
    assert "reward.reward_manager.source=importlib" in old.stdout
    fine = subprocess.run([*run, "reward.num_workers=4"], capture_output=True, text=True, timeout=50)
    assert fine.returncode == 0
