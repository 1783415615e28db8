"""Answers to one prompt: as samples of one group, and what needs them refused where a hook does not show them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from referee.config import Config
from referee.errors import ConfigError
from referee.judging import needs_groups, refuse_groups
from referee.records import Sample
from referee.trainers.rows import group_name, text_of

if TYPE_CHECKING:
    from referee.trainers.shared import Judged


def refuse_siblings(config: Config, hook: str, instead: str = "") -> None:
    """Refuse what depends on siblings, for a hook that shows one answer at a time. `instead`: the framework's hook that
    sees whole groups; empty: it has none."""
    refuse_groups(config.judge, hook, instead)
    refused = {
        "missing.policy": config.missing.policy == "group_mean"
        and 'there is no group for [missing] policy = "group_mean". Set another policy',
        "shaping.length.enable": config.shaping.length.enable
        and "the length penalty would have no group to take a median of, and always be 0. Set [shaping.length] "
        "enable = false",
        "audit.on_alarm": config.audit.weighs
        and f'[audit] on_alarm = "{config.audit.on_alarm}" would weigh some of the answers to a prompt and not the '
        'others. Set on_alarm to "log" or "stop"',
    }
    for setting, why in refused.items():
        if why:
            other = f", or use {instead}." if instead else "."
            raise ConfigError(f"{hook} shows one answer at a time: {why}{other}", setting=setting)


def spread_over_ranks(config: Config, rows: int, size: int, change: str) -> ConfigError | None:
    """What is wrong where a rank has a part of a group: what would go by that part. `change`: what to set instead. None
    if nothing depends on siblings."""
    judges = [f'judge "{one.name}" (kind = "{one.kind}")' for one in config.judge if needs_groups((one,))]
    settings = ["[shaping.length]"] if config.shaping.length.enable else []
    settings += ['[missing] policy = "group_mean"'] if config.missing.policy == "group_mean" else []
    settings += [f'[audit] on_alarm = "{config.audit.on_alarm}"'] if config.audit.weighs else []
    if not judges and not settings:
        return None
    return ConfigError(
        f"{rows} rows of a rank are not a multiple of the {size} answers to a prompt, so groups are spread over ranks "
        f"and this one sees a part of them: {' and '.join([*judges, *settings])} would go by that part. {change}",
        setting="judge.kind" if judges else "shaping.length.enable",
    )


def siblings(
    judged: Judged,
    prompt: Any,
    answers: Sequence[Any],
    row: Mapping[str, Any],
    where: str,
    *,
    ids: Sequence[Sequence[int]] | None = None,
    truncated: Sequence[bool] | None = None,
) -> list[Sample]:
    """The answers to one prompt as one group. `row` and `where`: as in `Judged.sample`."""
    asked = text_of(prompt, "prompt")
    given = [text_of(answer, f"answers[{number}]") for number, answer in enumerate(answers)]
    name = group_name(asked, given)
    return [
        judged.sample(
            asked,
            answer,
            row,
            where,
            ids=ids[number] if ids else None,
            truncated=bool(truncated and truncated[number]),
            group=name,
        )
        for number, answer in enumerate(given)
    ]
