"""Judges that others name (`alone`) are inside them: what is left at the top are the terms of the reward."""

from __future__ import annotations

import itertools
import pickle
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from referee.config import Config, JudgeConfig, all_judges, anchored, load
from referee.errors import ConfigError
from referee.runtime.messages import pack_config, unpack_config
from referee.scoring.build import columns_shown, with_rubrics

GROUP: dict[str, Any] = {"name": "group", "kind": "listwise", "alone": "one"}
ONE: dict[str, Any] = {"name": "one", "kind": "score", "high": 5}


def names(config: Config) -> list[tuple[str, list[str]]]:
    return [(judge.name, [inner.name for inner in judge.uses]) for judge in config.judge]


def refused(*judges: dict[str, Any], env: dict[str, str] | None = None) -> str:
    with pytest.raises(ConfigError) as caught:
        load({"judge": list(judges)}, env)
    return str(caught.value)


@pytest.mark.parametrize("judges", list(itertools.permutations([GROUP, ONE, {"name": "other"}])))
def test_a_named_judge_moves_inside(judges: tuple[dict[str, Any], ...]) -> None:
    """Wherever it stands; terms keep their order."""
    config = load({"judge": list(judges)})
    terms = [judge["name"] for judge in judges if judge["name"] != "one"]
    assert names(config) == [(name, ["one"] if name == "group" else []) for name in terms]
    assert {judge.name for judge in all_judges(config.judge)} == {"group", "one", "other"}


def test_two_may_use_the_same_one() -> None:
    """Each has it inside, and its name is not taken twice for that."""
    config = load({"judge": [GROUP, {**GROUP, "name": "second", "kind": "pairwise"}, ONE]})
    assert names(config) == [("group", ["one"]), ("second", ["one"])]
    assert config.judge[0].uses == config.judge[1].uses


@pytest.mark.parametrize("carry", [load, lambda c: load(c.public()), lambda c: unpack_config(pack_config(c))])
def test_it_stays_as_it_is(carry: Any) -> None:
    """Loaded again, from its public form, or packed for another process; with pickle too."""
    config = load({"judge": [GROUP, ONE], "endpoint": {"model": "m"}})
    assert carry(config) == config
    assert carry(carry(config)) == config
    assert pickle.loads(pickle.dumps(config)) == config
    assert load(config) is config


def test_a_config_made_in_python_is_the_same() -> None:
    """Flat, or with the judge inside already."""
    group, one = JudgeConfig(**GROUP), JudgeConfig(**ONE)
    loaded = load({"judge": [GROUP, ONE]})
    assert load(Config(judge=(group, one))) == loaded
    assert load(Config(judge=(replace(group, uses=(one,)),))) == loaded
    assert load(Config(judge=(one, group))).digest() == loaded.digest()


@pytest.mark.parametrize(
    "judges",
    [
        (replace(JudgeConfig(**GROUP), uses=(JudgeConfig(**ONE),)), JudgeConfig(**{**ONE, "high": 7})),
        (replace(JudgeConfig(**GROUP), uses=(JudgeConfig(**ONE, weight=0.5),)),),
        (
            replace(JudgeConfig(**GROUP), uses=(JudgeConfig(**ONE),)),
            replace(JudgeConfig(**{**GROUP, "name": "g2"}), uses=(JudgeConfig(**{**ONE, "high": 7}),)),
        ),
        (replace(JudgeConfig(**{**GROUP, "alone": "unscored"}), uses=(JudgeConfig(**ONE),)),),
    ],
    ids=["also at the top", "a weight inside", "two of one name", "not named"],
)
def test_a_judge_inside_that_would_be_read_past_is_refused(judges: tuple[JudgeConfig, ...]) -> None:
    """Only Python can write such a configuration."""
    with pytest.raises(ConfigError, match="one"):
        load(Config(judge=judges))


def test_unknown_names_are_refused() -> None:
    """Whether there is one judge or several; the message says what to write."""
    assert "no judge is named 'one'" in refused(GROUP)
    assert "[[judge]]" in refused({"kind": "listwise", "alone": "one"})
    assert "no judge is named ''" in refused({"kind": "listwise", "alone": ""})
    assert "judge[1].alone" in refused({"name": "a"}, {**GROUP, "alone": "b"})


@pytest.mark.parametrize(
    "judges",
    [
        [{"kind": "listwise", "alone": "judge"}],
        [{**GROUP, "alone": "group"}],
        [{**GROUP, "alone": "b"}, {**GROUP, "name": "b", "alone": "group"}],
        [{"name": "term"}, {**GROUP, "alone": "b"}, {**GROUP, "name": "b", "alone": "group"}],
        [GROUP, {**GROUP, "name": "one", "alone": "c"}, {**GROUP, "name": "c", "alone": "one"}],
    ],
)
def test_judges_that_use_themselves_are_refused(judges: list[dict[str, Any]]) -> None:
    """Also where other judges are terms: nobody would miss them otherwise."""
    assert "cannot use itself" in refused(*judges)


@pytest.mark.parametrize("setting", [{"weight": 0.5}, {"weight": 0.0}, {"optional": True}])
def test_what_is_no_term_has_no_weight(setting: dict[str, Any]) -> None:
    """It would be read past."""
    message = refused(GROUP, {**ONE, **setting})
    assert "'one'" in message
    assert "'group'" in message


def test_two_judges_of_one_name_are_refused_although_one_is_used() -> None:
    """Neither vanishes inside another."""
    assert "is the name of 2 judges" in refused(GROUP, ONE, {**ONE, "high": 7})
    assert "is the name of 2 judges" in refused(GROUP, GROUP, ONE)


def test_a_judge_cannot_be_called_what_stands_for_none() -> None:
    """alone = "unscored" must mean one thing."""
    assert "'unscored' cannot be a name" in refused({"name": "unscored"}, {"name": "b"})


def test_unnamed_judges_are_refused_as_before() -> None:
    """Several judges need names, used or not."""
    assert "needs a name" in refused(GROUP, ONE, {"kind": "score"})


def test_mistakes_inside_are_found_by_name() -> None:
    """A number would lead to another table: terms come first there."""
    message = refused({"name": "first"}, {**GROUP}, {"name": "last"}, {**ONE, "low": 9})
    assert "judge 'one'.low" in message


def test_endpoints_of_judges_inside_are_checked() -> None:
    """They are asked like any other."""
    assert "no endpoint is named 'x'" in refused(GROUP, {**ONE, "endpoint": "x"})


def test_the_environment_overrides_the_first_judge() -> None:
    """`alone` too."""
    config = load({"judge": [{"name": "group", "kind": "pairwise"}, ONE]}, {"REFEREE_JUDGE_ALONE": "one"})
    assert names(config) == [("group", ["one"])]
    assert "no judge is named 'none'" in refused(GROUP, ONE, env={"REFEREE_JUDGE_ALONE": "none"})


def test_digests_know_the_judges_inside(tmp_path: Path) -> None:
    """Other settings, another digest; the same file elsewhere, the same one."""
    digest = load({"judge": [GROUP, ONE]}).digest()
    assert load({"judge": [GROUP, {**ONE, "high": 7}]}).digest() != digest
    here, there = (
        load({"judge": [GROUP, {**ONE, "prompt_file": str(tmp_path / folder / "t.txt")}]}).digest() for folder in "ab"
    )
    assert here == there != digest


def test_files_of_judges_inside_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Relative to the TOML file, and absolute from then on; rubric files are read."""
    (tmp_path / "t.txt").write_text("{{prompt}} {{columns.topic}} {{response}}")
    (tmp_path / "r.toml").write_text('[[criterion]]\ntext = "It is right."\n')
    (tmp_path / "referee.toml").write_text(
        '[[judge]]\nname = "group"\nkind = "listwise"\nalone = "one"\n'
        '[[judge]]\nname = "one"\nprompt_file = "t.txt"\n'
        '[[judge]]\nname = "second"\nkind = "pairwise"\nalone = "rubric"\n'
        '[[judge]]\nname = "rubric"\nkind = "rubric"\nrubric_file = "r.toml"\n'
    )
    config = load(tmp_path / "referee.toml")
    assert config.judge[0].uses[0].prompt_file == str(tmp_path / "t.txt")
    assert columns_shown(config) == ("topic",)
    [criterion] = with_rubrics(config).judge[1].uses[0].criterion
    assert criterion.text == "It is right."
    monkeypatch.chdir(tmp_path)
    relative = Config(judge=(replace(config.judge[0], uses=(JudgeConfig(name="one", prompt_file="t.txt"),)),))
    assert anchored(relative).judge[0].uses[0].prompt_file == str(tmp_path / "t.txt")
