"""Validation of judges: their own settings, and which endpoints they may use."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from referee.config.judge_schema import JudgeConfig
from referee.config.keys import holds_key
from referee.config.schema import Config, EndpointConfig
from referee.errors import ConfigError

MIN_VIEW_TOKENS = 16
MAX_WEIGHT = 1e9
"""Of a reward's term: trainers keep 7 digits, beyond this the other terms would vanish."""

Refuse = Callable[[str, str], ConfigError]


def check_judges(config: Config, refuse: Refuse) -> None:
    """Raise what `refuse` makes of the first problem."""
    judges = config.judge
    if not judges:
        raise refuse("judge", "there must be at least one.")
    names = Counter(judge.name for judge in judges)
    for number, judge in enumerate(judges):
        where = "judge" if len(judges) == 1 else f"judge[{number}]"
        if len(judges) > 1 and not judge.name:
            raise refuse(f"{where}.name", 'each of several judges needs a name of its own, such as "quality".')
        if names[judge.name] > 1:
            raise refuse(
                f"{where}.name", f"{judge.name!r} is the name of {names[judge.name]} judges; each needs its own."
            )
        _check_judge(judge, where, refuse)
        _check_endpoints(judge, where, config.endpoint, refuse)
    if all(judge.weight == 0 for judge in judges) and len(judges) > 1:
        raise refuse("judge.weight", "is 0 for every judge, so nothing would be rewarded.")


def pool_of(judge: JudgeConfig) -> str:
    """A name for the endpoints of a judge; empty: all of them."""
    wanted = (judge.endpoint,) if isinstance(judge.endpoint, str) else judge.endpoint
    return "\0".join(sorted({name for name in wanted if name}))


def endpoints_of(judge: JudgeConfig, endpoints: Sequence[EndpointConfig]) -> list[int]:
    """Indices of the endpoints of a judge."""
    wanted = (judge.endpoint,) if isinstance(judge.endpoint, str) else judge.endpoint
    names = [name for name in wanted if name]
    return [number for number, endpoint in enumerate(endpoints) if not names or endpoint.label in names]


def _check_judge(judge: JudgeConfig, where: str, refuse: Refuse) -> None:
    if judge.low >= judge.high:
        raise refuse(f"{where}.low", f"low ({judge.low}) must be below high ({judge.high}).")
    if judge.temperature != "default" and not (judge.temperature >= 0 and math.isfinite(judge.temperature)):
        raise refuse(f"{where}.temperature", f'must be a number of at least 0, or "default", not {judge.temperature}.')
    if not abs(judge.weight) <= MAX_WEIGHT:
        raise refuse(f"{where}.weight", f"must be a number of at most {MAX_WEIGHT:g}, not {judge.weight}.")
    if not judge.fences and judge.kind != "yes_no":
        raise refuse(
            f"{where}.fences", f'false needs kind = "yes_no", not "{judge.kind}": elsewhere fences are the defence.'
        )
    _check_options(judge.options, f"{where}.options", refuse)
    view = judge.max_view_tokens
    for name, number, least in (
        ("max_tokens", judge.max_tokens, 1),
        ("ask_again", judge.ask_again, 0),
        ("max_view_tokens", MIN_VIEW_TOKENS if view is None else view, MIN_VIEW_TOKENS),
    ):
        if number < least:
            raise refuse(f"{where}.{name}", f"must be at least {least}, not {number}.")


def _check_options(options: dict[str, Any], where: str, refuse: Refuse) -> None:
    """They are sent to workers, and name the judge in cache keys and records: plain data, and nothing secret."""
    if holds_key(options):
        raise refuse(where, "a key does not belong here: it would be recorded, and a judge sends nothing by itself.")
    try:
        plain = msgspec.json.decode(msgspec.json.encode(options)) == options
    except (TypeError, ValueError, OverflowError, RecursionError):
        plain = False
    if not plain:
        raise refuse(where, "must be plain data: texts, finite numbers, true and false, lists and tables of those.")


def _check_endpoints(judge: JudgeConfig, where: str, endpoints: Sequence[EndpointConfig], refuse: Refuse) -> None:
    """Two models alternating within a group would give scores that do not compare."""
    labels = [endpoint.label for endpoint in endpoints]
    wanted = (judge.endpoint,) if isinstance(judge.endpoint, str) else judge.endpoint
    for name in wanted:
        if name and name not in labels:
            raise refuse(f"{where}.endpoint", f"no endpoint is named {name!r}. There are: {', '.join(labels)}.")
    serving = [endpoints[number] for number in endpoints_of(judge, endpoints) if not endpoints[number].backup]
    if not serving:
        raise refuse(f"{where}.endpoint", "all of its endpoints are backup; one of them must not be.")
    models = list(dict.fromkeys(endpoint.model for endpoint in serving))
    if len(models) > 1:
        raise refuse(
            f"{where}.endpoint",
            f"its endpoints serve different models ({' and '.join(models)}): they would take turns inside a group, and "
            "their scores do not compare. Write backup = true into the [[endpoint]] that is to wait for failures of "
            'the other; or give both a name, such as name = "main", and write endpoint = "main" into the judge.',
        )
