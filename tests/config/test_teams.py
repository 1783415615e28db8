"""`[[team]]` in a configuration: every mistake is named, by team and setting, with what would be right."""

from __future__ import annotations

from typing import Any

import pytest

from referee.config import load
from referee.errors import ConfigError

JUDGES = [
    {"name": "quality"},
    {"name": "safe", "kind": "yes_no"},
    {"name": "watched", "kind": "integer", "weight": 0.0},
    {"name": "panel", "kind": "jury", "members": ["a", "b"]},
    {"name": "a", "criteria": "a"},
    {"name": "b", "criteria": "b"},
]
PRICED = {"url": "http://a.test/v1", "model": "m", "key_env": "", "price_in": 1.0, "price_out": 1.0}
SECRET = "sk-1234567890abcdef1234567890"


def made(*teams: dict[str, Any], **sections: Any) -> Any:
    return load({"endpoint": PRICED, "judge": JUDGES, **sections, "team": list(teams)})


def math(**more: Any) -> dict[str, Any]:
    return {"name": "math", "token_env": "MATH_TOKEN", **more}


def test_a_team_may_use_every_term_of_the_reward() -> None:
    """A jury by its own name; one table is a team, too."""
    config = made(math(judges=["panel", "watched"], budget_usd_day=5, budget_usd_month=9.5, rpm=60))
    assert config.team[0].judges == ("panel", "watched")
    assert load({"endpoint": PRICED, "team": math()}).team == made(math()).team


@pytest.mark.parametrize(
    ("team", "says"),
    [
        (math(name="Math"), "team[0].name: must be lower-case letters, digits and hyphens"),
        (math(name=""), "team[0].name: must be"),
        (math(token_env=""), "such as MATH_TOKEN"),
        (math(token_env=SECRET), "What is there now is not shown"),
        (
            math(judges=["qualty"]),
            "team[0].judges: of team 'math': no judge is named 'qualty'. Did you mean 'quality'?",
        ),
        (math(judges=["a"]), "judge 'a' is used by 'panel' and so is no term of the reward: name 'panel'"),
        (math(judges=["safe", "safe"]), "names a judge twice"),
        (math(judges=["watched"]), "weight 0, so nothing would be rewarded"),
        (math(budget_usd_day=0.0), "team[0].budget_usd_day: must be above 0"),
        (math(budget_usd_month=1e9), "team[0].budget_usd_month: must be above 0"),
        (math(rpm=0), "team[0].rpm: must be at least 1"),
        (math(budget_usd=1.0), "unknown key `team.budget_usd`. Did you mean `budget_usd_"),
    ],
)
def test_a_mistake_is_named(team: dict[str, Any], says: str) -> None:
    """With the nearest name where one is close, and never with a secret."""
    with pytest.raises(ConfigError) as caught:
        made(team)
    assert says in str(caught.value)
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize(
    ("teams", "sections", "says"),
    [
        ([math(), math(token_env="B")], {}, "'math' is also the name of team[0]"),
        ([math(), math(name="code")], {}, "MATH_TOKEN is that of team 'math' too"),
        ([math()], {"serve": {"token_env": "MATH_TOKEN"}}, "MATH_TOKEN is that of [serve] token_env too"),
        ([math()], {"runtime": "processes"}, 'with [[team]] it must be "thread"'),
        ([math()], {"serve": {"state": ""}}, "serve.state: must name a file"),
        ([math(budget_usd_day=1.0)], {"endpoint": {**PRICED, "price_in": None, "price_out": None}}, "price_in"),
    ],
)
def test_what_does_not_go_together_is_named(teams: list[dict[str, Any]], sections: dict[str, Any], says: str) -> None:
    """Teams with each other, and with other settings."""
    with pytest.raises(ConfigError) as caught:
        made(*teams, **sections)
    assert says in str(caught.value)
