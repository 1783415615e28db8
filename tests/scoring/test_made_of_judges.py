"""Juries, cascades and repeated questions in a run: their endpoints, forms, money, deadlines, cache and records."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from tests.contracts.group_judges import KIND, RankJudge, registered
from tests.engine.harness import Run, run

from referee.config import load
from referee.errors import EndpointClosed
from referee.ledger import AskLine, VerdictLine, read
from referee.records import Reason, Reward, Sample, Unscored, Verdict
from referee.referee import Referee
from referee.scoring.build import worker_with
from referee.sim import Provider, ProviderSpec, SimTransport, start_server_process

PATIENCE = 50.0
HOSTS = ("one", "two", "three")
ENDPOINTS = [{"name": name, "model": name, "price_in": 1.0, "price_out": 1.0} for name in HOSTS]
MEMBERS = [{"name": name, "endpoint": name, "low": 0, "high": 10} for name in HOSTS]
JURY = {"name": "panel", "kind": "jury", "members": [*HOSTS]}
CASCADE = {"name": "stairs", "kind": "cascade", "members": ["one", "two"], "until": {"uncertainty": 0.4}}
SURE = [{"name": "one", "endpoint": "one", "kind": "yes_no"}, MEMBERS[1]]
DOWN = ProviderSpec(outages=((0.0, 1e9),), refuse_latency=0.0)
CALM = {"missing": {"abort_above": 1.0}}


def judged(
    given: list[Sample], judges: list[dict[str, Any]], specs: dict[str, ProviderSpec] | None = None, **more: Any
) -> Run:
    """Judge these in virtual time, each endpoint a provider of its own."""
    found = {f"{name}.test": (specs or {}).get(name, ProviderSpec()) for name in HOSTS}
    return run(given, found, endpoints=ENDPOINTS, judge=judges, **more)


def samples(count: int = 10) -> list[Sample]:
    return [Sample(prompt="p", response=f"[[quality={n % 10}]] {n}", id=str(n)) for n in range(count)]


def received(found: Run) -> dict[str, int]:
    return {host.removesuffix(".test"): stats.received for host, stats in found.stats.items()}


def verdict(reward: Reward | None) -> Verdict:
    assert reward is not None
    assert isinstance(reward.verdict, Verdict), reward.verdict
    return reward.verdict


def test_every_juror_asks_its_own_endpoint() -> None:
    """The reward is what they say together; rows name each, cost and models are of all of them."""
    found = judged(samples(), [JURY, *MEMBERS])
    assert received(found) == {"one": 10, "two": 10, "three": 10}
    for number, reward in enumerate(found.rewards):
        assert verdict(reward).value == pytest.approx(number / 10)
        assert reward is not None
        row = reward.to_dict()
        assert [part["name"] for part in row["parts"]] == [*HOSTS]
        assert (row["model"], row["uncertainty"]) == ("one, three, two", pytest.approx(0.0))
        assert row["cost"] > 0


TEXT_ONLY = ProviderSpec(unsupported=("response_format",))


def test_each_member_learns_for_itself_whether_its_endpoint_takes_schemas() -> None:
    """One that refuses them is asked in text from then on, and the others are not."""
    found = judged(samples(200), [JURY, *MEMBERS], {"two": TEXT_ONLY}, limits={"concurrency": 4})
    parts = [{part.name: part.verdict for part in verdict(reward).parts} for reward in found.rewards]
    hows = {name: {getattr(said[name], "how", "") for said in parts} for name in HOSTS}
    assert hows == {"one": {"schema"}, "two": {"tag"}, "three": {"schema"}}
    assert received(found)["one"] == received(found)["three"] == 200
    assert received(found)["two"] < 200 + 64 + 16  # those begun before its first refusal, once more


def test_the_reply_setting_of_each_member_holds() -> None:
    """Text for one of them, whatever the others are asked for."""
    members = [{**MEMBERS[0], "reply": "text"}, *MEMBERS[1:]]
    [reward] = judged(samples(1), [JURY, *members]).rewards
    assert [getattr(part.verdict, "how", "") for part in verdict(reward).parts] == ["tag", "schema", "schema"]


def test_a_cascade_pays_for_the_strong_judge_only_where_the_cheap_one_is_unsure() -> None:
    """Far from one half, P(yes) is certain enough."""
    found = judged(samples(), [CASCADE, *SURE])
    unsure = [reward for reward in found.rewards if len(verdict(reward).parts) > 1]
    assert received(found) == {"one": 10, "two": len(unsure), "three": 0}
    assert 0 < len(unsure) < 10
    for reward in found.rewards:
        assert verdict(reward).parts[-1].label == "decided"
        assert reward is not None
        assert (reward.settled.endpoint == "one") is (len(verdict(reward).parts) == 1)


def test_a_quorum_decides_at_the_deadline() -> None:
    """A juror that is down neither holds back the others nor their verdict."""
    jury = {**JURY, "quorum": 2}
    found = judged(samples(600), [jury, *MEMBERS], {"three": DOWN}, limits={"deadline": 20.0, "concurrency": 8}, **CALM)
    assert found.reasons() == {"scored": 600}
    for reward in found.rewards:
        last = verdict(reward).parts[2].verdict
        assert isinstance(last, Unscored)
        assert last.reason is Reason.DEADLINE


def test_without_a_quorum_a_juror_that_is_down_leaves_no_verdict() -> None:
    """What the others said is kept."""
    found = judged(samples(5), [JURY, *MEMBERS], {"three": DOWN}, limits={"deadline": 5.0}, **CALM)
    assert found.reasons() == {"deadline": 5}
    for reward in found.rewards:
        assert reward is not None
        row = reward.to_dict()
        assert [part["value"] is None for part in row["parts"]] == [False, False, True]


def test_an_unsure_cascade_at_the_deadline_has_no_verdict_unless_told_to() -> None:
    """The sure ones keep theirs."""
    for partial, scored in (("unscored", False), ("skip", True)):
        found = judged(
            samples(), [{**CASCADE, "partial": partial}, *SURE], {"two": DOWN}, limits={"deadline": 5.0}, **CALM
        )
        reasons = found.reasons()
        assert (reasons.get("deadline", 0) == 0) is scored
        assert reasons["scored"] > 0


WRONG_KEY = ProviderSpec(key="another")


@pytest.mark.parametrize(
    ("outer", "fatal"),
    [(JURY, True), ({**JURY, "quorum": 2}, False), ({**JURY, "quorum": 3}, True), (CASCADE, True)],
)
def test_a_wrong_key_is_one_clear_error_only_where_a_verdict_depends_on_it(outer: dict[str, Any], fatal: bool) -> None:
    """A jury with a quorum does without that member."""
    members = [*SURE, MEMBERS[2]] if outer["kind"] == "jury" else SURE
    found = judged(samples(), [outer, *members], {"two": WRONG_KEY}, **CALM)
    assert isinstance(found.error, EndpointClosed) is fatal
    if not fatal:
        assert found.reasons() == {"scored": 10}


def test_repeats_that_agree_end_early() -> None:
    """Of five answers three are enough where each is yes or no."""
    given = [replace(sample, reference="7") for sample in samples()]
    found = judged(given, [{"name": "one", "endpoint": "one", "kind": "reference", "repeat": 5}])
    assert received(found)["one"] == 30
    assert all(len(verdict(reward).parts) == 3 for reward in found.rewards)


def test_one_budget_holds_for_all_members_and_answers() -> None:
    """What it could not pay for has no verdict, and nothing is spent beyond it."""
    members = [MEMBERS[0], {**MEMBERS[1], "repeat": 3}, MEMBERS[2]]
    found = judged(samples(200), [JURY, *members], limits={"budget_usd": 0.05, "concurrency": 4}, **CALM)
    assert 0 < found.metrics["budget_spent_usd"] <= 0.05
    assert set(found.reasons()) == {"scored", "budget"}


def test_expected_levels_come_from_the_providers_log_probabilities() -> None:
    """Nine tenths on the level it names, the rest on its neighbours; without any, the level itself."""
    five = {"name": "one", "endpoint": "one", "low": 0, "high": 9, "expected": True}
    found = judged(samples(), [five])
    first = verdict(found.rewards[0])
    assert (first.how, first.score) == ("logprob", pytest.approx(0.099 / 0.999))
    assert verdict(found.rewards[5]).score == pytest.approx(5.0)
    without = judged(samples(), [five], {"one": ProviderSpec(unsupported=("logprobs",))})
    assert [verdict(reward).score for reward in without.rewards] == [float(n) for n in range(10)]


def test_verdicts_too_uncertain_are_unscored_and_do_not_stop_the_run() -> None:
    """However many there are."""
    judge = {"name": "one", "endpoint": "one", "kind": "yes_no", "abstain_above": 0.01}
    found = judged(samples(400), [judge], missing={"abort_above": 0.1})
    assert found.error is None
    assert found.reasons() == {"uncertain": 400}


def test_a_judge_of_another_package_is_repeated_too() -> None:
    """And may be a juror beside a judge of single samples: both are given the group."""
    group = [replace(sample, group="g") for sample in samples(4)]
    ranks = {**MEMBERS[0], "kind": KIND}
    with registered(lambda given: RankJudge(replace(given, config=replace(given.config, repeat=1)))):
        found = judged(group, [{**ranks, "repeat": 2}])
        assert received(found)["one"] == 2 * 2 * 4
        assert all(verdict(reward).how == "repeat" for reward in found.rewards)
        judges = [{"name": "panel", "kind": "jury", "members": ["one", "two"]}, ranks, MEMBERS[1]]
        found = judged(group, judges)
    assert received(found) == {"one": 2 * 4, "two": 4, "three": 0}
    assert [verdict(reward).value for reward in found.rewards] == pytest.approx([0.0, 0.175, 0.35, 0.525])


@contextlib.contextmanager
def opened(runtime: str, **sections: Any) -> Iterator[Referee]:
    """A Referee in this runtime; providers are a process of their own where workers are."""
    with contextlib.ExitStack() as stack:
        urls = {name: f"http://{name}.test/v1" for name in HOSTS}
        build = worker_with(lambda: SimTransport({f"{name}.test": Provider(ProviderSpec(), 1) for name in HOSTS}))
        if runtime == "processes":
            urls = {name: stack.enter_context(start_server_process(ProviderSpec(), 1)).url for name in HOSTS}
        endpoints = [{**endpoint, "url": urls[str(endpoint["name"])], "key_env": ""} for endpoint in ENDPOINTS]
        config = load({"cache": {"path": ""}, "runtime": runtime, **sections, "endpoint": endpoints})
        yield stack.enter_context(Referee(config) if runtime == "processes" else Referee(config, build))


def test_repeats_are_asked_apart_and_found_again_in_the_cache(tmp_path: Path) -> None:
    """Three calls for each sample; a second run makes none, and one that asks once finds the first answer."""
    cache = {"path": str(tmp_path / "cache.sqlite")}

    def calls(**more: Any) -> int:
        with opened("thread", judge={**MEMBERS[0], **more}, cache=cache) as referee:
            return sum(reward.settled.attempts for reward in referee.score(samples(), PATIENCE))

    assert [calls(repeat=3), calls(repeat=3), calls(), calls(repeat=4)] == [30, 0, 0, 10]


NESTED = [
    {"name": "stairs", "kind": "cascade", "members": ["one", "panel"], "until": {"outside": [0.3, 0.7]}},
    {"name": "panel", "kind": "jury", "members": ["two", "group"], "combine": "min", "repeat": 2},
    {"name": "one", "endpoint": "one", "kind": "yes_no", "repeat": 2},
    MEMBERS[1],
    {"name": "group", "kind": "jury", "members": ["three", "strict"], "quorum": 1},
    MEMBERS[2],
    {"name": "strict", "endpoint": "three", "criteria": "Be strict.", "low": 0, "high": 10},
]


@pytest.mark.parametrize("runtime", ["thread", "processes"])
def test_nested_judges_say_the_same_in_every_runtime(runtime: str, tmp_path: Path) -> None:
    """A cascade of a repeated judge and a repeated jury of a jury: verdicts, parts and records travel whole."""
    with opened(runtime, judge=NESTED, ledger={"dir": str(tmp_path)}) as referee:
        rewards = referee.score(samples(), PATIENCE)
    for number, reward in enumerate(rewards):
        said = verdict(reward)
        names = [part.name for part in said.parts]
        assert names in (["one"], ["one", "panel"])
        if len(names) == 2:
            assert said.value == pytest.approx(number / 10)
            [first, *_] = reward.to_dict()["parts"][1]["parts"]
            assert [part["name"] for part in first["parts"]] == ["two", "group"]
    lines = list(read(tmp_path))
    [line] = [line for line in lines if isinstance(line, VerdictLine) and line.id == "5"]
    assert [part["name"] for part in line.parts] == [part.name for part in verdict(rewards[5]).parts]
    assert line.how == "cascade"
    asked = [line for line in lines if isinstance(line, AskLine)]
    assert {line.endpoint for line in asked} == {*HOSTS}
    total = sum(line.cost for line in lines if isinstance(line, VerdictLine))
    assert total == pytest.approx(sum(line.cost for line in asked))


@pytest.mark.parametrize("runtime", ["thread", "processes"])
def test_what_a_jury_without_verdict_heard_travels_too(runtime: str, tmp_path: Path) -> None:
    """Parts of an absence: in rewards, rows and the ledger."""
    jury = {"name": "panel", "kind": "jury", "members": ["one", "two"], "abstain_above": 0.05}
    strict = {**MEMBERS[1], "low": 4, "high": 10}  # 5 is near the bottom of its scale
    with opened(runtime, judge=[jury, MEMBERS[0], strict], ledger={"dir": str(tmp_path)}) as referee:
        [reward] = referee.score([Sample(prompt="p", response="[[quality=5]]")], PATIENCE)
    assert isinstance(reward.verdict, Unscored)
    assert reward.verdict.reason is Reason.UNCERTAIN
    assert [(part["name"], part["value"]) for part in reward.to_dict()["parts"]] == [
        ("one", 0.5),
        ("two", pytest.approx(1 / 6)),
    ]
    [line] = [line for line in read(tmp_path) if isinstance(line, VerdictLine)]
    assert (line.unscored, [part["name"] for part in line.parts]) == ("uncertain", ["one", "two"])
