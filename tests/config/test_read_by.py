"""A setting that a judge's kind does not read is refused by name: nothing is read past."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from referee.config import MADE_OF_OTHERS, JudgeConfig, load
from referee.config.judge_schema import READ_BY, SHIPPED_KINDS
from referee.errors import ConfigError
from referee.judging.registry import COMPOSED, KINDS

OTHER: dict[str, Any] = {
    "low": 0,
    "high": 5,
    "view": "full",
    "image_urls": True,
    "max_images": 2,
    "max_image_mb": 1.0,
    "criterion": [{"text": "It is right."}],
    "rubric_file": "r.toml",
    "polarity": "by_sign",
    "checks": ["package.module:function"],
    "combine": "all",
    "members": ["one"],
    "ask": "one",
    "quorum": 1,
    "until": {"uncertainty": 0.2},
    "expected": True,
    "criteria_per_call": 1,
    "clip": True,
    "threshold": 0.7,
    "partial": "skip",
    "permutations": 2,
    "ranks": True,
    "schedule": "all",
    "rounds": 2,
    "both_orders": False,
    "strength": "win_rate",
    "min_comparisons": 2,
    "anchor": "baseline",
    "alone": "one",
    "activation": "server",
    "output": 1,
    "steps": "last",
    "compare_with": "reference",
    "lowest": -20.0,
}
"""A value of each such setting that is not its default."""
BY_API = {name for name, readers in READ_BY.items() if all(reader.keys() == {"api"} for reader in readers)}
"""Whether these are read depends on the endpoint alone: see `test_apis`."""


def problem(**settings: Any) -> ConfigError | None:
    # A reward model has an endpoint of its own, whose API is the one that reads the setting.
    api = "score" if "compare_with" in settings else "pooling"
    endpoints = [{"name": "text", "key_env": ""}, {"name": "numbers", "key_env": "", "api": api}]
    asks = "numbers" if settings["kind"] == "reward_model" else "text"
    asks = "" if settings["kind"] in MADE_OF_OTHERS else asks
    judges = [{"name": "j", "endpoint": asks, **settings}, {"name": "one", "endpoint": "text"}]
    try:
        load({"judge": judges, "endpoint": endpoints})
    except ConfigError as error:
        return error
    return None


def test_every_kind_is_listed() -> None:
    """A new kind must say what it reads."""
    assert set(SHIPPED_KINDS) == {*KINDS, *COMPOSED}
    assert OTHER.keys() == READ_BY.keys() - BY_API <= {field.name for field in msgspec.structs.fields(JudgeConfig)}


@pytest.mark.parametrize("kind", [kind for kind in SHIPPED_KINDS if kind not in MADE_OF_OTHERS])
@pytest.mark.parametrize("name", OTHER)
def test_a_setting_of_another_kind_is_refused_by_name(name: str, kind: str) -> None:
    """And the message says whose it is; its default is no mistake."""
    for reader in READ_BY[name]:
        more = {key: values[0] for key, values in reader.items() if key not in ("kind", "api", name)}
        if kind in reader.get("kind", SHIPPED_KINDS):
            value = reader[name][0] if name in reader else OTHER[name]
            assert "does not read it" not in str(problem(kind=kind, **{**more, name: value}))
            break
    else:
        error = problem(kind=kind, **{name: OTHER[name]})
        assert error is not None
        assert name in str(error.setting)
        assert any(f"'{reader['kind'][0]}'" in str(error) for reader in READ_BY[name])
    default = msgspec.to_builtins(getattr(JudgeConfig(), name))
    assert problem(kind=kind, **{name: default}) is None


@pytest.mark.parametrize(
    ("settings", "name"),
    [
        ({"kind": "pairwise", "rounds": 2, "schedule": "all"}, "rounds"),
        ({"kind": "pairwise", "rounds": 2, "schedule": "anchor"}, "rounds"),
        ({"kind": "pairwise", "strength": "win_rate", "schedule": "anchor"}, "strength"),
        ({"kind": "pairwise", "min_comparisons": 2, "schedule": "anchor"}, "min_comparisons"),
        ({"kind": "pairwise", "alone": "one", "schedule": "anchor"}, "alone"),
        ({"kind": "pairwise", "anchor": "baseline"}, "anchor"),
        ({"kind": "rubric", "threshold": 0.7}, "threshold"),
        ({"kind": "rubric", "high": 5}, "high"),
        ({"kind": "rubric", "combine": "implicit", "criteria_per_call": 1}, "criteria_per_call"),
        ({"kind": "rubric", "combine": "implicit", "partial": "skip"}, "partial"),
        ({"kind": "monitor", "view": "full"}, "view"),
        ({"kind": "score", "image_urls": True}, "image_urls"),
        ({"kind": "score", "max_images": 2, "parts": "describe"}, "max_images"),
        ({"kind": "rubric", "max_image_mb": 2.0, "parts": "refuse"}, "max_image_mb"),
    ],
)
def test_a_setting_that_another_setting_turns_off_is_refused(settings: dict[str, Any], name: str) -> None:
    """Of the right kind, but not read."""
    error = problem(**settings)
    assert error is not None
    assert name in str(error.setting)


def test_what_another_package_reads_is_not_known() -> None:
    """Its judge may use any of these settings."""
    assert problem(kind="theirs", **{name: OTHER[name] for name in ("low", "permutations", "ranks", "rounds")}) is None


@pytest.mark.parametrize(
    ("name", "value"), [("permutations", 0), ("rounds", -1), ("min_comparisons", 0), ("schedule", "best")]
)
def test_values_off_their_range_are_refused(name: str, value: object) -> None:
    """By name."""
    kind = "listwise" if name == "permutations" else "pairwise"
    assert name in str(problem(kind=kind, **{name: value}))
