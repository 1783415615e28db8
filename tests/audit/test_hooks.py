"""What an alarm does reaches the trainer through every hook: stop is raised and not swallowed, weight counts."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType, SimpleNamespace
from typing import Any

import httpx
import pytest
from msgspec.structs import replace
from tests.audit.world import MAIN, PATIENCE, Scored, critical, look, merit, scripted

from referee.audit import auditor as module
from referee.config import load
from referee.errors import ConfigError, RewardHacked
from referee.records import Sample
from referee.referee import Referee
from referee.scoring.batch import depends_on_siblings
from referee.scoring.build import worker_with
from referee.server.app import make_app
from referee.sim import Provider, ProviderSpec, SimTransport
from referee.trainers import openrlhf, shared, slime
from referee.trainers import trl as trl_adapter
from referee.trainers.shared import Judged, close_all
from referee.trainers.siblings import spread_over_ranks
from referee.trainers.verl.backend import Backend
from referee.trainers.verl.config import LengthPenaltyConfig
from referee.trainers.verl.loop_groups import packed_error, unpacked_outcome
from referee.trainers.verl.loop_manager import RefereeRewardManager
from referee.trainers.verl.sharing import job_wide

SECTIONS: dict[str, Any] = {
    "endpoint": MAIN,
    "cache": {"path": ""},
    "ledger": {"dir": ""},
    "judge": {"gates": {"truncated": "off"}},
}


@pytest.fixture
def simulated(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Hooks open their Referees on a simulated judge; its first batch is an alarm."""
    build = worker_with(
        lambda: SimTransport(Provider(ProviderSpec(), judge=Scored(merit))), random.Random(0), b"the same nonces"
    )
    monkeypatch.setattr(shared, "Referee", lambda config: Referee(config, build))
    monkeypatch.setattr(module, "Watch", scripted({1: critical()}))
    yield
    close_all()


def settings(on_alarm: str, **more: Any) -> dict[str, Any]:
    return {**SECTIONS, "audit": {"enable": True, "on_alarm": on_alarm}, **more}


def alarmed(judged: Judged) -> Judged:
    """After the alarm."""
    look(judged.referee)
    return judged


def answer(quality: int, **more: Any) -> Sample:
    return Sample(prompt="Why?", response=f"Because of it. [[quality={quality}]]", **more)


def through_trl(config: dict[str, Any]) -> list[Any]:
    func: Callable[..., Any] = trl_adapter.reward_func(config)
    found: list[Any] = func(["Why?"], ["Because of it. [[quality=7]]"])
    return found


def through_trl_terms(config: dict[str, Any]) -> list[Any]:
    (func,) = trl_adapter.reward_funcs(config)
    found: list[Any] = func(["Why?"], ["Because of it. [[quality=7]]"])
    return found


def through_slime(config: dict[str, Any]) -> list[Any]:
    judged = Judged(config)
    sample = SimpleNamespace(
        prompt="Why?", response="Because of it. [[quality=7]]", label=None, metadata={}, response_length=3,
        tokens=[1, 2, 3], status=None, index=0, group_index=0, reward=None,
    )  # fmt: skip
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(slime, "from_environment", lambda: judged)
        found: list[Any] = asyncio.run(slime.custom_rm(None, [sample]))
    return found


def through_submit(config: dict[str, Any]) -> list[Any]:
    return [reward.value for reward in Judged(config).score([answer(7)])]


def through_openrlhf(config: dict[str, Any]) -> list[Any]:
    judged = Judged({**config, "missing": {"policy": "value", "value": 0.0}})
    alarmed(judged)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(openrlhf, "_judged", lambda: judged)
        found = asyncio.run(openrlhf.judge_answer("Why?", "Because of it. [[quality=7]]"))
    return [float(found["rewards"][0])]


WAYS = [through_openrlhf, through_submit, through_trl, through_trl_terms, through_slime]


@pytest.mark.parametrize("way", WAYS)
def test_stop_is_raised(simulated: None, way: Callable[[dict[str, Any]], list[Any]]) -> None:
    """The policy for unscored samples does not swallow it."""
    alarmed(Judged(settings("stop")))
    with pytest.raises(RewardHacked, match="delve"):
        way(settings("stop"))


@pytest.mark.parametrize("way", WAYS[1:])
def test_weight_counts(simulated: None, way: Callable[[dict[str, Any]], list[Any]]) -> None:
    """Also where a hook makes rewards of verdicts itself."""
    alarmed(Judged(settings("weight:0.25")))
    assert way(settings("weight:0.25")) == [pytest.approx(0.25 * 6 / 9)]
    (whole,) = way(settings("log"))
    assert whole == pytest.approx(6 / 9)


def test_one_answer_at_a_time_is_not_weighed(simulated: None) -> None:
    """An alarm could come between siblings."""
    judged = Judged({**settings("weight:0.25"), "missing": {"policy": "value", "value": 0.0}})
    with pytest.raises(ConfigError, match=r"OpenRLHF shows one answer at a time.*weight:0.25"):
        judged.needs("OpenRLHF", can_abstain=False, sees_groups=False)


def manager(referee: dict[str, Any], workers: int = 1) -> RefereeRewardManager:
    reward = {"referee": {"config": referee, "rule": False}, "num_workers": workers}
    rollout = {"n": 1, "val_kwargs": {"n": 1}, "response_length": 8}
    return RefereeRewardManager(
        {"reward": reward, "actor_rollout_ref": {"rollout": rollout}}, SimpleNamespace(decode=lambda *_, **__: "")
    )


class OneRow:
    """A rollout as verl's loop hands it on, as far as the manager reads it."""

    prompt = "Why?"
    length = 3
    extra_info: Mapping[str, Any] = MappingProxyType({})
    step = None
    uid = ""

    def sample(self, judged: Any, rule: float, member: str) -> Sample:
        """The rollout for the judge."""
        return answer(7, rule_score=rule, length=3)


def test_verls_loop_stops_and_weighs(simulated: None) -> None:
    """There each rollout is submitted by itself, and the manager makes the reward."""
    for on_alarm, expected in (("stop", None), ("weight:0.25", 0.25 * 6 / 9)):
        made = manager(settings(on_alarm))
        alarmed(made._judged)
        if expected is None:
            with pytest.raises(RewardHacked):
                asyncio.run(made._by_itself(OneRow(), "a"))  # type: ignore[arg-type]
        else:
            reward, value, _, _ = asyncio.run(made._by_itself(OneRow(), "a"))  # type: ignore[arg-type]
            assert (value, reward.judge) == (pytest.approx(expected), pytest.approx(expected))


@pytest.mark.parametrize("use_async_io", [False, True])
def test_verls_own_manager_stops(simulated: None, use_async_io: bool) -> None:
    """In both of its modes: what was judged before is there, and is not used all the same."""
    keys = {
        "referee": {"cache": {"path": ""}, "audit": {"enable": True, "on_alarm": "stop"}},
        "api_endpoint": "https://main.test/v1",
        "enable_openai_reward": True,
        "use_async_io": use_async_io,
        "api_key": "any",
    }
    judge = Backend(LengthPenaltyConfig.of(keys))
    sample = answer(7, rule_score=1.0)
    alarmed(judge._open())
    with pytest.raises(RewardHacked, match="delve"):
        judge.collect(judge.submit([sample]))
    judge.close()


def test_a_group_that_one_worker_judges_stops_all_siblings() -> None:
    """What their workers are sent is the same error, in words."""
    hacked = RewardHacked("delve is paid", alarm=critical())
    with pytest.raises(RewardHacked, match="delve is paid"):
        unpacked_outcome(packed_error(hacked))


def test_verls_loop_refuses_a_weight_that_siblings_would_not_share() -> None:
    """With several reward workers each has its own audit."""
    with pytest.raises(ConfigError, match="num_workers"):
        manager(settings("weight:0.5"), workers=4)
    manager(settings("stop"), workers=4)


def test_reward_workers_of_one_budget_share_the_audits_part(monkeypatch: pytest.MonkeyPatch) -> None:
    """On Ray they judge through one engine; what each audit sets aside adds up to the share."""
    monkeypatch.setattr("referee.trainers.verl.sharing.on_ray", lambda: True)
    shared_config = job_wide(load(settings("log")), 8)
    assert (shared_config.runtime, shared_config.audit.processes) == ("ray", 8)


def test_reward_workers_share_it_where_ray_is_named() -> None:
    """The configuration may say the runtime itself."""
    assert job_wide(load({**settings("log"), "runtime": "ray"}), 8).audit.processes == 8


def test_processes_of_one_run_share_the_false_alarm_rate(monkeypatch: pytest.MonkeyPatch) -> None:
    """Any of them may say an alarm, so eight audits have an eighth each; so have the ranks of a launcher."""
    rates: list[float] = []
    monkeypatch.setattr(module, "Watch", lambda chosen: rates.append(chosen))
    one = load(settings("log"))
    for config in (one, replace(one, audit=replace(one.audit, processes=8))):
        module.Auditor(config, lambda line: None, lambda config: None)  # type: ignore[arg-type, return-value]
    monkeypatch.setenv("WORLD_SIZE", "4")
    module.Auditor(load(settings("log")), lambda line: None, lambda config: None)  # type: ignore[arg-type, return-value]
    assert rates == pytest.approx([0.05, 0.05 / 8, 0.05 / 4])


def test_groups_that_are_weighed_stay_together() -> None:
    """An alarm comes between two batches, and on one rank: siblings must not be on both sides."""
    for action, together in (("log", False), ("stop", False), ("weight:0.5", True)):
        config = load(settings(action))
        assert depends_on_siblings(config) == together
        assert (spread_over_ranks(config, 4, 8, "") is not None) == together
    assert not depends_on_siblings(load({**settings("weight:0.5"), "audit": {"on_alarm": "weight:0.5"}}))


def test_the_service_answers_503_and_spends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the alarm's sentence; what is asked after it is not judged."""
    monkeypatch.setattr(module, "Watch", scripted({2: critical()}))
    judge = Scored(merit)
    build = worker_with(lambda: SimTransport(Provider(ProviderSpec(), judge=judge)), random.Random(0), b"nonces")
    body = {"samples": [{"prompt": "Why?", "response": "Because. [[quality=7]]"}]}

    async def main(referee: Referee) -> str:
        async with serving(referee) as client:
            assert (await client.post("/v1/score", json=body)).status_code == 200
            assert referee.auditor is not None
            assert await asyncio.to_thread(referee.auditor.settle, PATIENCE)
            await asyncio.to_thread(look, referee)
            before = len(judge.asked)
            refused = await client.post("/v1/score", json=body)
            assert refused.status_code == 503
            assert refused.json()["error"] == "reward_hacked"
            assert "delve" in refused.json()["message"]
            assert len(judge.asked) == before
            return (await client.get("/metrics")).text

    with Referee(load(settings("stop")), build) as referee:
        page = asyncio.run(main(referee))
    assert 'referee_audit_alarm{level="critical",signal="phrase"} 1.0' in page
    assert "referee_audit_alarms_total 1.0" in page
    assert "referee_audit_cost_usd_total" in page


@pytest.mark.parametrize("enable", [True, False])
def test_the_service_shows_what_signals_measure(enable: bool) -> None:
    """One family, a label for each; none of it without an audit."""
    build = worker_with(lambda: SimTransport(Provider(ProviderSpec())), random.Random(0), b"nonces")

    async def main(referee: Referee) -> str:
        async with serving(referee) as client:
            return (await client.get("/metrics")).text

    with Referee(load({**SECTIONS, "audit": {"enable": enable}}), build) as referee:
        referee.score([answer(quality % 10 + 1) for quality in range(80)])
        if referee.auditor is not None:
            assert referee.auditor.settle(PATIENCE)
        page = asyncio.run(main(referee))
    assert ('referee_audit_measure{name="' in page) is enable
    assert ("referee_audit_" in page) is enable


def serving(referee: Referee) -> httpx.AsyncClient:
    """A client of the service around this Referee, in process."""
    return httpx.AsyncClient(transport=httpx.ASGITransport(make_app(referee)), base_url="http://localhost")
