"""Several judges in one run: their terms, what is missing, which endpoints they ask, and what stands in the record."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.engine.harness import run

from referee.config import load
from referee.engine.port import Response, TransportFault
from referee.errors import ConfigError, EndpointClosed
from referee.ledger import JudgeLine, RewardLine, VerdictLine, read
from referee.records import Reward, Sample, Unscored, Verdict
from referee.referee import Referee
from referee.scoring.build import worker_with
from referee.sim import Provider, ProviderSpec, SimTransport

PATIENCE = 50.0
QUALITY = {"name": "quality", "kind": "score", "weight": 0.8, "endpoint": "cheap"}
SAFE = {"name": "safe", "kind": "yes_no", "weight": 0.2, "endpoint": "strong"}
ENDPOINTS = [
    {
        "name": "cheap",
        "url": "http://cheap.test/v1",
        "model": "small",
        "key_env": "",
        "price_in": 1.0,
        "price_out": 1.0,
    },
    {
        "name": "strong",
        "url": "http://strong.test/v1",
        "model": "large",
        "key_env": "",
        "price_in": 9.0,
        "price_out": 9.0,
    },
]


@contextlib.contextmanager
def opened(
    specs: dict[str, ProviderSpec] | None = None, **sections: Any
) -> Iterator[tuple[Referee, dict[str, Provider]]]:
    """A Referee with these sections, and its simulated providers by host."""
    specs = {"cheap.test": ProviderSpec(), "strong.test": ProviderSpec(), **(specs or {})}
    providers = {host: Provider(spec, 1) for host, spec in specs.items()}
    base = {"judge": [QUALITY, SAFE], "endpoint": ENDPOINTS, "cache": {"path": ""}}
    with Referee(load({**base, **sections}), worker_with(lambda: SimTransport(providers))) as referee:
        yield referee, providers


def samples(count: int = 10) -> list[Sample]:
    return [Sample(prompt="p", response=f"[[quality={n % 10 + 1}]] {n}", rule_score=1.0) for n in range(count)]


def check_sum(reward: Reward) -> None:
    quality, safe = reward.terms
    assert isinstance(quality.settled.verdict, Verdict)
    assert isinstance(safe.settled.verdict, Verdict)
    assert quality.value == pytest.approx(0.8 * quality.settled.verdict.value)
    assert safe.value == pytest.approx(0.2 * safe.settled.verdict.value)
    assert reward.judge == pytest.approx((quality.value or 0) + (safe.value or 0))
    assert reward.value == pytest.approx(reward.rule + (reward.judge or 0))


def test_each_judge_is_a_term_of_the_reward() -> None:
    """Rule plus the weighted sum; every judge asks its own endpoint and nobody else's."""
    with opened() as (referee, providers):
        rewards = referee.score(samples(), PATIENCE)
    for reward in rewards:
        check_sum(reward)
        assert [(term.judge, term.weight) for term in reward.terms] == [("quality", 0.8), ("safe", 0.2)]
        assert [term.settled.endpoint for term in reward.terms] == ["cheap", "strong"]
    assert {host: provider.stats().received for host, provider in providers.items()} == {
        "cheap.test": 10,
        "strong.test": 10,
    }


def test_what_several_judges_said_reads_as_one_verdict() -> None:
    """The parts are there by name; its cost is what all of them cost."""
    with opened() as (referee, _):
        reward = referee.score(samples(1), PATIENCE)[0]
    assert isinstance(reward.verdict, Verdict)
    assert [part.name for part in reward.verdict.parts] == ["quality", "safe"]
    assert reward.settled.cost == pytest.approx(sum(term.settled.cost for term in reward.terms))
    assert (reward.settled.model, reward.settled.endpoint) == ("small, large", "cheap, strong")
    assert [(term.settled.model, term.settled.endpoint) for term in reward.terms] == [
        ("small", "cheap"),
        ("large", "strong"),
    ]
    assert 0 <= reward.verdict.value <= 1


def test_a_judge_of_weight_0_is_watched_and_not_rewarded() -> None:
    """It is asked and recorded; the reward is that of the other one alone."""
    with opened(judge=[{**QUALITY, "weight": 1.0}, {**SAFE, "weight": 0.0}]) as (referee, providers):
        rewards = referee.score(samples(), PATIENCE)
    assert providers["strong.test"].stats().received == 10
    for reward in rewards:
        assert reward.judge == reward.terms[0].value
        assert isinstance(reward.terms[1].settled.verdict, Verdict)


BROKEN = {"strong.test": ProviderSpec(faults={"no_verdict": 1.0})}


@pytest.mark.parametrize("optional", [False, True])
def test_a_missing_term_makes_the_reward_unscored_unless_it_is_optional(optional: bool) -> None:
    """Optional: the other weights stay as they are, and the row says what is missing."""
    judges = [QUALITY, {**SAFE, "optional": optional}]
    with opened(BROKEN, judge=judges, missing={"abort_above": 1.0}) as (referee, _):
        rewards = referee.score(samples(), PATIENCE)
    for reward in rewards:
        assert isinstance(reward.terms[1].settled.verdict, Unscored)
        assert reward.terms[1].value is None
        if optional:
            assert reward.judge == reward.terms[0].value
            assert isinstance(reward.verdict, Verdict)
            assert isinstance(reward.verdict.parts[1].verdict, Unscored)
        else:
            assert reward.value is None
            assert isinstance(reward.verdict, Unscored)
            assert "judge safe" in reward.verdict.detail


@pytest.mark.parametrize("optional", [False, True])
def test_a_closed_endpoint_is_an_error_only_where_its_judge_is_needed(optional: bool) -> None:
    """A wrong key for an optional judge costs its term, not the run."""
    judges = [QUALITY, {**SAFE, "optional": optional}]
    closed = {"strong.test": ProviderSpec(key="another")}
    with opened(closed, judge=judges, missing={"abort_above": 1.0}) as (referee, _):
        if optional:
            assert all(reward.scored for reward in referee.score(samples(), PATIENCE))
        else:
            with pytest.raises(EndpointClosed, match="strong"):
                referee.score(samples(), PATIENCE)


def test_equal_judges_share_what_they_ask() -> None:
    """Two names for one question: one flight per key, whoever asks."""
    judges = [{**QUALITY, "name": name} for name in ("one", "other")]
    with opened(judge=judges) as (referee, providers):
        rewards = referee.score(samples(), PATIENCE)
    assert providers["cheap.test"].stats().received == 10
    assert {term.settled.origin for reward in rewards for term in reward.terms} == {"call", "shared"}


def test_one_budget_holds_for_all_judges() -> None:
    """Money spent by one is not there for the other, and what it could not pay for is unscored (budget)."""
    with opened(limits={"budget_usd": 0.02, "concurrency": 4}, missing={"abort_above": 1.0}) as (referee, _):
        rewards = referee.score(samples(100), PATIENCE)
        spent = referee.metrics()["budget_spent_usd"]
    assert 0 < spent <= 0.02
    assert any("budget" in str(r.verdict.reason) for r in rewards if isinstance(r.verdict, Unscored))


@pytest.mark.parametrize("runtime", ["thread", "inline"])
def test_the_ledger_holds_every_judge_and_counts_every_sample_once(runtime: str, tmp_path: Path) -> None:
    """A line for each judge, one verdict line for the sample, one reward line with the terms."""
    with opened(ledger={"dir": str(tmp_path)}, runtime=runtime) as (referee, _):
        rewards = referee.score(samples(5), PATIENCE)
        metrics = referee.metrics()
    lines = list(read(tmp_path))
    judged = [line for line in lines if isinstance(line, JudgeLine)]
    assert sorted((line.index, line.judge) for line in judged) == [
        (index, name) for index in range(5) for name in ("quality", "safe")
    ]
    assert all(line.asked and line.reply for line in judged)
    verdicts = [line for line in lines if isinstance(line, VerdictLine)]
    assert [line.index for line in sorted(verdicts, key=lambda line: line.index)] == list(range(5))
    for line in verdicts:
        assert line.tokens_in == sum(other.tokens_in for other in judged if other.index == line.index)
    (first,) = [line for line in lines if isinstance(line, RewardLine) and line.index == 0]
    assert first.terms == {term.judge: term.value for term in rewards[0].terms}
    assert metrics["samples"] == 5


@pytest.mark.parametrize(
    ("judges", "words"),
    [
        ([{"kind": "score"}, SAFE], "judge[0].name"),
        ([SAFE, SAFE], "judge[0].name"),
        ([QUALITY, {**SAFE, "endpoint": "weak"}], "no endpoint is named 'weak'"),
        ([QUALITY, {"name": "any"}], "small and large"),
        ([{**QUALITY, "weight": 0}, {**SAFE, "weight": 0}], "judge.weight"),
        ([{**QUALITY, "weight": float("inf")}, SAFE], "judge[0].weight"),
    ],
)
def test_what_does_not_go_together_is_refused_by_name(judges: list[dict[str, Any]], words: str) -> None:
    """Before anything is spent, with the setting to change."""
    with pytest.raises(ConfigError) as caught:
        load({"judge": judges, "endpoint": ENDPOINTS})
    assert words in str(caught.value)


def test_two_models_take_turns_only_as_backup() -> None:
    """Endpoints of one judge serve one model; another one may wait for its failures."""
    two = [{"model": "a", "key_env": ""}, {"model": "b", "key_env": ""}]
    with pytest.raises(ConfigError, match="a and b"):
        load({"endpoint": two})
    assert load({"endpoint": [two[0], {**two[1], "backup": True}]}).endpoint[1].backup
    assert len(load({"endpoint": [two[0], two[0]]}).endpoint) == 2


@pytest.mark.parametrize("extra", [{"optional": True}, {"weight": 0.0}])
def test_an_optional_judge_that_is_down_does_not_hold_back_the_others(extra: dict[str, Any]) -> None:
    """Its questions wait for its own endpoint; those of the judge that counts are asked all the same."""
    down = {"strong.test": ProviderSpec(outages=((0.0, 1e9),), refuse_latency=0.0)}
    limits = {"deadline": 5.0, "concurrency": 8}
    with opened(down, judge=[QUALITY, {**SAFE, **extra}], limits=limits, missing={"abort_above": 1.0}) as (referee, _):
        rewards = referee.score(samples(600), PATIENCE)
    assert all(isinstance(reward.terms[0].settled.verdict, Verdict) for reward in rewards)
    assert all(reward.scored for reward in rewards)


def test_an_endpoint_that_is_closed_is_said_to_be_beside_one_that_is_not() -> None:
    """A wrong key of one judge's endpoint is not a refusal to judge."""
    closed = {"strong.test": ProviderSpec(key="another")}
    judges = [QUALITY, {**SAFE, "optional": True}]
    with opened(closed, judge=judges, missing={"abort_above": 1.0}) as (referee, _):
        rewards = referee.score(samples(), PATIENCE)
    assert {str(reward.terms[1].settled.verdict.reason) for reward in rewards} == {"auth"}  # type: ignore[union-attr]


def test_a_lone_optional_judge_is_still_needed() -> None:
    """Where no other term is left, a wrong key is the one clear error."""
    closed = {"cheap.test": ProviderSpec(key="another")}
    with opened(closed, judge={**QUALITY, "optional": True}) as (referee, _), pytest.raises(EndpointClosed):
        referee.score(samples(), PATIENCE)


def test_a_judge_may_name_an_endpoint_only_by_a_name_that_it_has() -> None:
    """Two endpoints at one host are told apart by names of their own, so the host alone names neither."""
    two = [{"url": f"http://a.test/v{n}", "model": "m", "key_env": ""} for n in (1, 2)]
    with pytest.raises(ConfigError, match=r"no endpoint is named 'a\.test'"):
        load({"endpoint": two, "judge": {"endpoint": "a.test"}})


class CheapIsDown(SimTransport):
    """A network in which one endpoint cannot be reached."""

    async def post(self, url: str, headers: Mapping[str, str], body: bytes, timeout: float) -> Response:
        """As ever, elsewhere."""
        if "cheap.test" in url:
            raise TransportFault("connect", "down")
        return await super().post(url, headers, body, timeout)


@pytest.mark.parametrize("backed_first", [True, False])
def test_the_same_question_is_answered_by_each_judges_own_endpoints(backed_first: bool) -> None:
    """A judge with a backup is answered by it, and one without is not, whichever asks first."""
    backed = {"name": "backed", "kind": "score", "weight": 0.5, "endpoint": ["cheap", "strong"]}
    lone = {"name": "lone", "kind": "score", "weight": 0.5, "endpoint": ["cheap"]}
    found = run(
        [Sample(prompt="p", response="[[quality=5]]")],
        {"cheap.test": ProviderSpec(), "strong.test": ProviderSpec()},
        endpoints=[{"name": "cheap"}, {"name": "strong", "backup": True}],
        network=CheapIsDown,
        judge=[backed, lone] if backed_first else [lone, backed],
        limits={"deadline": 20},
        missing={"policy": "abstain", "abort_above": 1.0},
    )
    [reward] = found.rewards
    assert reward is not None
    ends = {term.judge: term.settled for term in reward.terms}
    assert isinstance(ends["backed"].verdict, Verdict)
    assert ends["backed"].endpoint == "strong"
    assert isinstance(ends["lone"].verdict, Unscored)
