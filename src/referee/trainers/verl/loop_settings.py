"""What a verl configuration says to RefereeRewardManager: `reward.referee.*`, and keys of other managers it honours."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from referee.config import Config, load
from referee.errors import ConfigError, nearest
from referee.trainers.plain_config import plain
from referee.trainers.rows import field
from referee.trainers.shared import Judged
from referee.trainers.verl.config import LengthPenaltyConfig, in_own_keys, merged

GROUP_WAIT = 600.0
"""Seconds a reward waits for its siblings at most, when it depends on them."""
KNOWN = ("config", "group_wait", "length_penalty", "rule", "rule_keys")
RATE_LIMITED = {"max_concurrent": "concurrency", "max_rpm": "rpm", "max_tpm": "tpm", "timeout": "attempt_timeout"}
"""Keys under `reward` that verl's rate_limited manager reads, and what they are under [limits] in referee.toml."""
VALIDATION = ("test", "val", "valid", "validation", "dev", "eval")
"""Values of extra_info["split"] that mark validation rows."""


class LoopSettings(Struct, frozen=True):
    """Everything the manager needs to know."""

    config: Config
    """As written: with the length penalty and the missing policy."""
    asks: bool
    """False: the length penalty alone."""
    own_keys: bool
    """True if the judge is configured by the keys of LengthPenaltyConfig, and errors have to name those."""
    siblings: int
    """Rollouts of one prompt in training."""
    validation_siblings: int
    response_length: int | None
    """The most tokens a response may have; None if verl's configuration does not say."""
    workers: int
    """Reward worker processes of the job."""
    drops_groups: bool
    """True if the trainer takes an error for "no reward" and leaves the group out (V1)."""
    group_wait: float
    rule: bool
    rule_keys: tuple[str, ...]


def loop_settings(config: Any) -> LoopSettings:
    """Read them out of verl's configuration, or of any nested mapping of its shape."""
    reward = _at(config, "reward")
    ours = dict(plain(_at(reward, "referee")) or {})
    for name in ours:
        if name not in KNOWN:
            hint = nearest(name, KNOWN, "`")
            raise ConfigError(f"reward.referee: unknown key `{name}`.{hint}", setting=f"reward.referee.{name}")
    keys = ours.get("rule_keys") or ()
    wait = ours.get("group_wait", GROUP_WAIT)
    if isinstance(wait, bool) or not isinstance(wait, int | float) or not wait > 0:
        raise ConfigError(
            f"reward.referee.group_wait: must be a positive number of seconds, not {wait!r}.", setting="group_wait"
        )
    _refuse_rate_limits(reward)
    judge, asks = _judge(ours, reward)
    return LoopSettings(
        config=judge,
        asks=asks,
        own_keys=ours.get("config") is None,
        siblings=_count(config, "actor_rollout_ref.rollout.n"),
        validation_siblings=_count(config, "actor_rollout_ref.rollout.val_kwargs.n"),
        response_length=_whole(config, "actor_rollout_ref.rollout.response_length")
        or _whole(config, "data.max_response_length"),
        workers=_count(reward, "num_workers"),
        drops_groups=bool(_at(config, "trainer.use_v1")),
        group_wait=float(wait),
        rule=bool(ours.get("rule", True)),
        rule_keys=(keys,) if isinstance(keys, str) else tuple(str(key) for key in keys),
    )


def _judge(ours: Mapping[str, Any], reward: Any) -> tuple[Config, bool]:
    """The judge's own configuration, from a file, a mapping or the length-penalty keys; and whether to ask it."""
    penalty = ours.get("length_penalty") or plain(_at(reward, "reward_kwargs.length_penalty_config"))
    source = ours.get("config")
    if penalty is None:
        if source is None:
            raise ConfigError(
                "reward.referee.config: no judge. Add +reward.referee.config=referee.toml (`referee init` writes one).",
                setting="reward.referee.config",
            )
        return Judged(source).config, True
    if source is not None:
        raise ConfigError(
            "reward.referee: give either `config` (referee.toml) or `length_penalty`, not both: in referee.toml the "
            "length penalty is [shaping.length].",
            setting="reward.referee.length_penalty",
        )
    keys = LengthPenaltyConfig.of(penalty)
    with in_own_keys():
        if not keys.judges:
            return load({"shaping": keys.shaping()}), False
        settings = merged(keys.settings("thread"), {"missing": {"policy": "abstain"}})
        return Judged(merged(settings, {**keys.referee, "runtime": "thread"})).config, True


def _refuse_rate_limits(reward: Any) -> None:
    given = {name: value for name in RATE_LIMITED if (value := _at(reward, name)) is not None}
    if given:
        lines = ", ".join(f"{RATE_LIMITED[name]} = {value}" for name, value in given.items())
        raise ConfigError(
            f"{', '.join(f'reward.{name}' for name in given)}: read by verl's rate_limited manager, and by each of its "
            f"workers apart. Move them to referee.toml, where they hold for the whole job: [limits] {lines}.",
            setting=f"reward.{next(iter(given))}",
        )


def is_validation(extra_info: Mapping[str, Any]) -> bool:
    """True if a row says of itself that it is for validation. verl does not say it."""
    return str(extra_info.get("split", "")).lower() in VALIDATION


def _count(config: Any, path: str) -> int:
    return _whole(config, path) or 1


def _whole(config: Any, path: str) -> int | None:
    value = _at(config, path)
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 1 else None


def _at(node: Any, path: str) -> Any:
    return functools.reduce(field, path.split("."), node)
