"""Judges that are given whole groups: known by kind, so that clients keep groups together without building a judge."""

from __future__ import annotations

from collections.abc import Sequence

from referee.config import JudgeConfig
from referee.errors import ConfigError
from referee.judging.registry import unit_of


def needs_groups(judges: Sequence[JudgeConfig]) -> bool:
    """True if one of these judges is given all samples of a group at once."""
    return any(unit_of(judge) == "group" for judge in judges)


def refuse_groups(judges: Sequence[JudgeConfig], where: str, instead: str = "") -> None:
    """Refuse judges of whole groups where samples come one at a time, before anything is judged. `instead`: where they
    come in groups."""
    for judge in judges:
        if needs_groups((judge,)):
            raise ConfigError(
                f'{where} shows one answer at a time, and judge "{judge.name}" (kind = "{judge.kind}") compares the '
                "answers to one prompt: a group of one would be judged. Choose a kind that judges each answer by "
                f"itself{instead and f', or use {instead}'}.",
                setting="judge.kind",
            )
