"""Settings that need the other answers to a prompt, refused where a hook does not show them."""

from __future__ import annotations

from referee.config import Config
from referee.errors import ConfigError
from referee.judging import refuse_groups


def refuse_siblings(config: Config, hook: str) -> None:
    """Refuse what depends on siblings, for a hook that shows one answer at a time."""
    refuse_groups(config.judge, hook)
    if config.missing.policy == "group_mean":
        raise ConfigError(
            f'{hook} shows one answer at a time: there is no group for [missing] policy = "group_mean". Set '
            "another policy, or use the hook that sees whole groups.",
            setting="missing.policy",
        )
    if config.shaping.length.enable:
        raise ConfigError(
            f"{hook} shows one answer at a time: the length penalty would have no group to take a median of, and "
            "always be 0. Set [shaping.length] enable = false, or use the hook that sees whole groups.",
            setting="shaping.length.enable",
        )
