"""Keys of older verl releases that verl 0.9 accepts and silently ignores, and what they are called now.

verl 0.9's main_ppo still takes `custom_reward_function.*` and `reward_model.*`, and then trains on its default reward.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from referee.errors import ConfigError
from referee.trainers.rows import field

NEW = {
    "custom_reward_function.reward_kwargs": "+reward.custom_reward_function.reward_kwargs",
    "reward_model.num_workers": "reward.num_workers",
    "reward_model.reward_manager": "reward.reward_manager.name",
    "reward_model.reward_loop_source": "reward.reward_manager.source",
    "reward_model.reward_loop_module_path": "reward.reward_manager.module.path",
    "reward_model.reward_loop_class_name": "reward.reward_manager.name",
    "reward_model.reward_kwargs": "+reward.reward_kwargs",
    "reward_model.model.path": "reward.reward_model.model_path",
    "reward_model.max_concurrent": "limits.max_concurrency in referee.toml",
    "reward_model.max_rpm": "limits.rpm in referee.toml",
    "reward_model.max_tpm": "limits.tpm in referee.toml",
    "reward_model.launch_reward_fn_async": "nothing: rewards always overlap generation now",
    "reward_model.use_reward_loop": "nothing: the reward loop is the only path now",
    "reward_manager.source": "reward.reward_manager.source",
}
SECTIONS = ("custom_reward_function", "reward_model", "reward_manager", "sandbox_fusion")
OURS = """\
reward.reward_manager.source=importlib
reward.reward_manager.name=RefereeRewardManager
reward.reward_manager.module.path=pkg://referee.trainers.verl
+reward.referee.config=referee.toml"""


def refuse_legacy_keys(config: Any) -> None:
    """Raise a ConfigError that names every old key in use and its new spelling. `config`: the whole of verl's."""
    found = []
    for section in SECTIONS:
        below = field(config, section)
        if isinstance(below, Mapping):
            found += [f"{key}={value!r} is now {_new(key, value)}" for key, value in _leaves(below, section)]
        elif below is not None:
            found.append(f"{section}={below!r} is now {_new(section, below)}")
    if found:
        raise ConfigError(
            "verl 0.9 ignores these keys without a word and trains on its default reward instead: "
            + "; ".join(found)
            + ". Rename them, or remove them if the new ones are there already. Nothing was judged.",
            setting=found[0].partition("=")[0],
        )


def new_spelling(override: str) -> str:
    """What one command-line override (`key=value`) is called now; empty if it is no old key."""
    key, _, value = override.lstrip("+~").partition("=")
    if key.partition(".")[0] not in SECTIONS or value in ("", "null", "None"):
        return ""
    new = _new(key, value)
    return f"{new}={value}" if " " not in new else new


def _new(key: str, value: Any) -> str:
    if key in ("reward_model.reward_manager", "reward_manager.name") and value == "length_penalty":
        return " ".join(OURS.split())
    parts = key.split(".")
    for cut in range(len(parts), 0, -1):
        name = NEW.get(".".join(parts[:cut]))
        if name is not None:
            rest = parts[cut:]
            return ".".join([name, *rest]) if rest else name
    return f"reward.{key}"


def _leaves(node: Mapping[str, Any], path: str) -> Iterator[tuple[str, Any]]:
    """Settings that say something: null and empty sections are what verl's own defaults look like."""
    for name in node:
        value = field(node, name)
        if isinstance(value, Mapping):
            yield from _leaves(value, f"{path}.{name}")
        elif value is not None and value != [] and value != "":
            yield f"{path}.{name}", value
