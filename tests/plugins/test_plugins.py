"""Judges and dialects of other packages: found by name, imported when named, and clear about what is wrong."""

from __future__ import annotations

import os
import sys
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from tests.plugins.install import install_by_hand

from referee import Referee, Sample, plugins
from referee.config import EndpointConfig, JudgeConfig, LimitsConfig
from referee.engine import Endpoint
from referee.errors import ConfigError
from referee.judging import KINDS, Judge, JudgeFactory, Question, first_round, make_judge, needs_groups
from referee.testing import build_judge
from referee.wire import CHAT, find_dialect

SECRET = b"0123456789abcdef"
SAMPLES = [Sample(prompt="a question", response="an answer")]
JUDGES = """
from referee.judging import KINDS, JudgeFactory

class Ranked:
    unit = "group"
    def deliberate(self, samples, form):
        yield ()
        return []

plain = JudgeFactory(lambda config, question: question(KINDS["score"](config)))
ranked = JudgeFactory(lambda config, question: Ranked(), unit="group")
mixed = JudgeFactory(lambda config, question: Ranked())
broken = JudgeFactory(lambda config, question: config.options["scale"])
function = lambda config, question: None
"""
DIALECTS = """
from referee.wire import Chat

class Other(Chat):
    name = "other/1"

class Elsewhere(Chat):
    name = "elsewhere/1"
    def url(self, endpoint):
        return "https://collector.example/v1"

other, elsewhere, kind = Other(), Elsewhere(), Other
"""
Install = Callable[..., None]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """Puts packages on this process's module path, and takes them off again."""
    monkeypatch.syspath_prepend(tmp_path)
    before = set(sys.modules)
    plugins.load.cache_clear()

    def put(name: str, groups: dict[str, dict[str, str]], **modules: str) -> None:
        install_by_hand(tmp_path, name, groups, **modules)

    yield put
    plugins.load.cache_clear()
    for name in set(sys.modules) - before:
        if name.startswith("plugin_"):
            del sys.modules[name]


@pytest.fixture
def judges(install: Install) -> None:
    """Some judges."""
    names = ("plain", "ranked", "mixed", "broken", "function")
    install("some-judges", {plugins.JUDGES: {name: f"plugin_judges:{name}" for name in names}}, plugin_judges=JUDGES)


@pytest.fixture
def dialects(install: Install) -> None:
    """Some dialects."""
    names = ("other", "elsewhere", "kind")
    install(
        "some-apis", {plugins.DIALECTS: {name: f"plugin_dialects:{name}" for name in names}}, plugin_dialects=DIALECTS
    )


@pytest.mark.usefixtures("judges")
def test_a_judge_is_found_by_its_name() -> None:
    """It is made of its settings, and whether it needs groups is known without making it."""
    assert make_judge(JudgeConfig(kind="plain"), SECRET).unit == "sample"
    assert make_judge(JudgeConfig(kind="ranked"), SECRET).unit == "group"
    kinds = ("plain", "ranked", *KINDS)
    assert [kind for kind in kinds if needs_groups((JudgeConfig(kind=kind),))] == ["ranked"]


@pytest.mark.usefixtures("dialects")
def test_a_dialect_is_found_by_its_name() -> None:
    """And its name is part of every key."""
    ours, theirs = (Endpoint(EndpointConfig(api=api), LimitsConfig(), None) for api in ("chat", "other"))
    assert (ours.dialect, theirs.dialect.name) == (CHAT, "other/1")


@pytest.mark.usefixtures("judges")
@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("scores", ["judge.kind: 'scores' is not known. Did you mean 'score'?", "referee.judges"]),
        ("plane", ["Did you mean 'plain'?", "installed wherever judging runs", f"process {os.getpid()} on "]),
        ("helpfulness", ["Known here: score, yes_no", "plain"]),
        ("function", ["entry point 'function' of the package some-judges 1.0", "must name a", "JudgeFactory"]),
        ("broken", ["'broken' of the package some-judges 1.0 could not make a judge", "KeyError: 'scale'"]),
        ("mixed", ["'mixed' of the package some-judges 1.0 made", "no judge of a sample"]),
    ],
)
def test_a_judge_that_cannot_be_had_says_why(kind: str, words: list[str]) -> None:
    """With what there is, what to install, and whose fault it is."""
    with pytest.raises(ConfigError) as caught:
        make_judge(JudgeConfig(kind=kind), SECRET)
    assert [word for word in words if word not in str(caught.value)] == []
    assert caught.value.setting == "judge.kind"


@pytest.mark.usefixtures("dialects")
@pytest.mark.parametrize(
    ("api", "words"),
    [
        ("chats", ["endpoint.api: 'chats' is not known. Did you mean 'chat'?", "referee.dialects"]),
        ("soap", ["Known here: ", "other"]),
        ("kind", ["entry point 'kind' of the package some-apis 1.0", "an object"]),
    ],
)
def test_a_dialect_that_cannot_be_had_says_why(api: str, words: list[str]) -> None:
    """With what there is, and what to install."""
    with pytest.raises(ConfigError) as caught:
        find_dialect(api)
    assert [word for word in words if word not in str(caught.value)] == []


@pytest.mark.usefixtures("dialects")
@pytest.mark.parametrize("api", ["chats", "elsewhere"])
def test_a_wrong_api_is_refused_before_anything_is_sent(api: str) -> None:
    """By the process that trains, not only by the one that judges. A key does not follow a dialect to another host."""
    with pytest.raises(ConfigError, match=r"endpoint\.api"):
        Referee.from_config({"endpoint": {"api": api, "key_env": ""}, "cache": {"path": ""}})


def test_a_package_that_cannot_be_imported_is_named(install: Install) -> None:
    """With the error of the import, and the process it happened in."""
    install("half-done", {plugins.JUDGES: {"half": "plugin_half:make"}}, plugin_half="import no_such_module\n")
    with pytest.raises(
        ConfigError, match=r"package half-done 1\.0, .*No module named 'no_such_module'.*process \d+ on"
    ):
        make_judge(JudgeConfig(kind="half"), SECRET)


def test_a_name_of_two_packages_is_refused(install: Install) -> None:
    """Which of them judges must not depend on the module path."""
    for name in ("first", "second"):
        install(name, {plugins.JUDGES: {"both": f"plugin_{name}:plain"}}, **{f"plugin_{name}": JUDGES})
    with pytest.raises(ConfigError, match=r"(first|second) 1\.0 and (first|second) 1\.0"):
        make_judge(JudgeConfig(kind="both"), SECRET)


def test_a_shipped_name_is_always_ours(install: Install) -> None:
    """No package changes what `score` means."""
    install("usurper", {plugins.JUDGES: {"score": "plugin_none:x"}, plugins.DIALECTS: {"chat": "plugin_none:x"}})
    assert make_judge(JudgeConfig(), SECRET).unit == "sample"
    assert find_dialect("chat") is CHAT


def test_a_worker_that_lacks_the_package_says_so(install: Install, monkeypatch: pytest.MonkeyPatch) -> None:
    """Here it can be imported, in a worker process it cannot: the error names the package and that process."""
    install("only-here", {plugins.JUDGES: {"ghost": "plugin_ghost:make"}})
    module: Any = types.ModuleType("plugin_ghost")
    module.make = JudgeFactory(lambda config, question: question(KINDS["score"](config)))
    monkeypatch.setitem(sys.modules, "plugin_ghost", module)
    settings = {"judge": {"kind": "ghost"}, "endpoint": {"url": "http://127.0.0.1:9/v1", "key_env": ""}}
    with pytest.raises(ConfigError, match=r"only-here 1\.0, which cannot be imported") as caught:
        Referee.from_config({**settings, "runtime": "processes", "workers": 1, "cache": {"path": ""}}).score(SAMPLES)
    assert f"process {os.getpid()} " not in str(caught.value)


def test_a_judge_that_raises_is_named_where_it_is_only_tried() -> None:
    """`referee plan` and `referee doctor` end with an error of ours, not with a traceback."""

    class Raising:
        unit = "sample"

        def deliberate(self, samples: Any, form: Any) -> Any:
            raise ZeroDivisionError("no samples")
            yield

    with pytest.raises(ConfigError, match="while it was planned: ZeroDivisionError: no samples"):
        first_round(Raising(), SAMPLES, "schema")  # type: ignore[arg-type]


def test_options_are_for_other_packages() -> None:
    """A shipped kind has none, and says so instead of reading past them."""
    with pytest.raises(ConfigError, match=r'judge\.options: kind = "score" has no options'):
        make_judge(JudgeConfig(options={"strict": True}), SECRET)


def kind_with(**changes: Any) -> JudgeFactory:
    """A judge that asks a changed `score` question."""

    return JudgeFactory(lambda config, question: question(replace(KINDS["score"](config), **changes)))


def facets(factory: JudgeFactory, **settings: Any) -> dict[str, str]:
    """What the cache knows its question by."""
    (ask,) = first_round(build_judge(factory, **settings), SAMPLES, "schema")
    return dict(ask.facets)


def test_equal_questions_of_two_judges_do_not_share_verdicts() -> None:
    """They may be read in other ways: the kind's own name and its options are in the key."""
    factory = kind_with()
    shipped = make_judge(JudgeConfig(), SECRET)
    assert facets(factory)["judge"] != facets(JudgeFactory(lambda config, question: shipped))["judge"]
    assert facets(factory, kind="a")["judge"] != facets(factory, kind="b")["judge"]
    options = [facets(factory, options={"scale": n}).get("options", "") for n in (1, 2)]
    assert len({*options, facets(factory).get("options", "")}) == 3


@pytest.mark.parametrize(
    "value",
    [
        {"rating": {"type": "integer"}},
        {"verdict": {"type": "string"}},
        {"verdict": {"type": "string", "enum": ["good", "bad"]}},
        {"score": {"enum": [True, False]}},
        {"reason": {"type": "string"}, "score": {"type": "integer"}, "grade": {"type": "integer"}},
    ],
)
def test_a_verdict_that_the_guard_does_not_know_is_refused(value: dict[str, Any]) -> None:
    """A candidate could write it, and a judge that copies it would have given it."""
    sampling = KINDS["score"](JudgeConfig()).sampling
    schema = replace(sampling["schema"], schema={"type": "object", "properties": value})
    factory = kind_with(sampling={"schema": schema, "text": sampling["text"]})
    with pytest.raises(ConfigError, match="Ask for score or verdict"):
        build_judge(factory)


def test_one_template_is_not_used_for_two_questions() -> None:
    """judge.prompt_file is refused by a judge that asks several."""

    def make(config: JudgeConfig, question: Question) -> Judge:
        question(KINDS["score"](config))
        return question(KINDS["yes_no"](config))

    template = "{{criteria}} {{prompt}} {{response}} {{reply}}"
    assert build_judge(kind_with(), template).unit == "sample"
    with pytest.raises(ConfigError, match=r"judge\.prompt_file: .*several questions"):
        build_judge(JudgeFactory(make), template)


def test_criteria_that_no_question_uses_are_refused() -> None:
    """The error names the judge, whose template it is. One of several questions is enough."""

    def make(config: JudgeConfig, question: Question) -> Judge:
        question(replace(KINDS["score"](config), template="{{response}}"))
        return question(KINDS["score"](config))

    assert build_judge(JudgeFactory(make), criteria="Be brief.").unit == "sample"
    with pytest.raises(ConfigError, match=r'judge\.criteria: .*template of kind = "tested"'):
        build_judge(kind_with(template="{{response}}"), criteria="Be brief.")
