"""Juries, cascades and what rests on uncertainty: what does not go together is refused by name, before anything is
spent."""

from __future__ import annotations

from typing import Any

import pytest

from referee.config import load
from referee.errors import ConfigError

ENDPOINTS = [
    {"name": name, "url": f"http://{name}.test/v1", "model": name, "key_env": ""} for name in ("one", "two", "three")
]
ONE, TWO, THREE = ({"name": name, "endpoint": name} for name in ("one", "two", "three"))
SURE = {**ONE, "kind": "yes_no"}
JURY = {"name": "panel", "kind": "jury", "members": ["one", "two"]}
CASCADE = {"name": "stairs", "kind": "cascade", "members": ["one", "two"]}
NAN = float("nan")


def refused(*judges: dict[str, Any]) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        load({"judge": list(judges), "endpoint": ENDPOINTS})
    return caught.value


@pytest.mark.parametrize(
    ("outer", "setting", "words"),
    [
        ({**JURY, "members": []}, "members", "two or more"),
        ({**JURY, "members": ["one", "one"]}, "members", "each once"),
        ({**JURY, "members": ["one", "four"]}, "members", "no judge is named 'four'"),
        ({**JURY, "combine": "weighted"}, "combine", "mean, median, majority, min, trimmed"),
        ({**JURY, "combine": "trimmed"}, "combine", "three members"),
        ({**JURY, "quorum": 0}, "quorum", "from 1 to 2"),
        ({**JURY, "quorum": 3}, "quorum", "not 3"),
        ({**JURY, "until": {"uncertainty": 0.2}}, "until", "for kind = 'cascade'"),
        ({**JURY, "ask": "one", "quorum": 1}, "quorum", "one verdict"),
        ({**JURY, "ask": "one", "combine": "mean"}, "combine", "one verdict"),
        ({**JURY, "endpoint": "one"}, "endpoint", "asks nothing itself"),
        ({**JURY, "criteria": "good?"}, "criteria", "one, two"),
        ({**JURY, "temperature": 0.7}, "temperature", "asks nothing itself"),
        ({**JURY, "gates": {"echo": "off"}}, "gates", "asks nothing itself"),
        ({**JURY, "partial": "skip"}, "partial", "asks nothing itself"),
        ({**JURY, "repeat": 0}, "repeat", "at least 1"),
        ({**JURY, "abstain_above": -1.0}, "abstain_above", "at least 0"),
        ({**CASCADE, "quorum": 1}, "quorum", "for kind = 'jury'"),
        ({**CASCADE, "ask": "one"}, "ask", "for kind = 'jury'"),
        ({**CASCADE, "combine": "mean"}, "combine", "'rubric' or 'jury'"),
        ({**CASCADE, "until": {"uncertainty": 0.2}}, "until.uncertainty", "'one' never says how certain"),
        ({**CASCADE, "until": {"outside": [0.7, 0.3]}}, "until.outside", "smaller one first"),
        ({**CASCADE, "until": {"outside": [0.3, NAN]}}, "until.outside", "nan"),
    ],
)
def test_what_a_judge_made_of_others_cannot_do(outer: dict[str, Any], setting: str, words: str) -> None:
    """The setting by name, and what to write instead."""
    error = refused(outer, ONE, TWO)
    assert error.setting.endswith(f".{setting}") or setting == "members"
    assert words in str(error)


@pytest.mark.parametrize(
    ("judge", "setting", "words"),
    [
        ({"combine": "weighted"}, "combine", "rubric"),
        ({"kind": "rubric", "combine": "mean"}, "combine", "weighted, healthbench"),
        ({"kind": "yes_no", "expected": True}, "expected", "'score' or 'rubric'"),
        ({"expected": True}, "expected", "the scale is 1 to 10"),
        ({"expected": True, "low": -1, "high": 5}, "expected", "-1 to 5"),
        ({"kind": "rubric", "expected": True}, "expected", "criteria_per_call = 1"),
        ({"kind": "rubric", "expected": True, "combine": "implicit"}, "expected", "1 to 10"),
        ({"abstain_above": 0.2}, "abstain_above", "never says how certain"),
        ({"kind": "reference", "abstain_above": 0.2}, "abstain_above", "repeat = 3"),
        ({"kind": "pairwise", "abstain_above": 0.2}, "abstain_above", "never says how certain"),
        ({"kind": "yes_no", "abstain_above": NAN}, "abstain_above", "nan"),
    ],
)
def test_what_a_kind_would_read_past(judge: dict[str, Any], setting: str, words: str) -> None:
    """Also where it could never take effect."""
    error = refused({"name": "one", "endpoint": "one", **judge})
    assert (error.setting or "").endswith(setting)
    assert words in str(error)


@pytest.mark.parametrize(
    "sure",
    [
        {**ONE, "kind": "yes_no"},
        {**ONE, "repeat": 3},
        {**ONE, "low": 1, "high": 5, "expected": True},
        {**ONE, "kind": "rubric", "criteria_per_call": 1},
        {**ONE, "kind": "listwise", "permutations": 2},
    ],
)
def test_judges_that_say_how_certain_they_are(sure: dict[str, Any]) -> None:
    """May be followed by others while they are not, and may abstain."""
    config = load(
        {
            "judge": [{**CASCADE, "until": {"uncertainty": 0.2}}, {**sure, "abstain_above": 0.4}, TWO],
            "endpoint": ENDPOINTS,
        }
    )
    assert [judge.name for judge in config.judge] == ["stairs"]
    assert [judge.name for judge in config.judge[0].uses] == ["one", "two"]


def test_two_names_for_one_question_are_no_jury() -> None:
    """They would be one answer, counted twice."""
    assert "repeat = 2" in str(refused(JURY, ONE, {**ONE, "name": "two"}))
    for kind, setting, value in (
        ("score", "ask_again", 3),
        ("score", "repeat", 2),
        ("listwise", "ranks", True),
        ("pairwise", "strength", "win_rate"),
        ("pairwise", "alone", "three"),
    ):
        same = {**ONE, "kind": kind}
        assert "repeat = 2" in str(refused(JURY, same, {**same, "name": "two", setting: value}, THREE))


def test_only_judges_made_of_others_have_members() -> None:
    """Otherwise a judge that is named would be no term of the reward, and asked by nobody."""
    for kind in ("score", "of_another_package"):
        assert "for kind = 'jury' or 'cascade'" in str(refused({**ONE, "kind": kind, "members": ["two"]}, TWO))


def test_members_are_no_terms_of_the_reward() -> None:
    """So a weight of theirs would be read past."""
    assert "judge.weight" in str(refused(JURY, ONE, {**TWO, "weight": 0.5}))


def test_a_jury_may_not_be_its_own_member() -> None:
    """Directly or by another one."""
    assert "cannot use itself" in str(refused({**JURY, "members": ["panel", "one"]}, ONE))
    assert "cannot use itself" in str(
        refused({**JURY, "members": ["stairs", "one"]}, {**CASCADE, "members": ["panel", "one"]}, ONE)
    )


def test_they_stand_inside_each_other() -> None:
    """A cascade of a jury and a strong judge, beside another term that uses the same member."""
    inner = {"name": "panel", "kind": "jury", "members": ["one", "two"], "combine": "median"}
    outer = {**CASCADE, "members": ["panel", "three"], "until": {"uncertainty": 0.1}, "weight": 0.5}
    other = {"name": "other", "kind": "jury", "members": ["two", "three"], "weight": 0.5}
    config = load({"judge": [outer, inner, ONE, TWO, THREE, other], "endpoint": ENDPOINTS})
    assert [judge.name for judge in config.judge] == ["stairs", "other"]
    assert [judge.combined_by for judge in config.judge[0].uses] == ["median", "weighted"]
    assert load(config) == config
