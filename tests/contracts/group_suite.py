"""What the shipped judges of groups promise wherever they run: the verdicts that they give when driven by hand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace
from tests.contracts.runtime_suite import BASE, PATIENCE, Make, Opening, grouped, reasons, until

from referee.config import EndpointConfig, load
from referee.judging import make_judge
from referee.records import Ask, Reply, Reward, Sample, Unscored, Verdict
from referee.referee import Referee
from referee.sim import HonestJudge, ProviderSpec
from referee.sim.chat import ChatRequest
from referee.sim.chat import ask as read
from referee.testing import deliberate
from referee.wire import CHAT

KINDS: dict[str, dict[str, Any]] = {
    "listwise": {"kind": "listwise"},
    "pairwise": {"kind": "pairwise"},
    "listwise, ranks of two orders in text": {"kind": "listwise", "permutations": 2, "ranks": True, "reply": "text"},
    "pairwise, swiss in one order": {"kind": "pairwise", "schedule": "swiss", "both_orders": False},
}


def answer(ask: Ask) -> Verdict | Unscored:
    """What the simulated provider says to a question, as its reader reads it."""
    chat = msgspec.json.decode(CHAT.encoder(EndpointConfig()).encode(ask), type=ChatRequest)
    return ask.read(ask, Reply(text=HonestJudge().answer(read(chat)).text, finish="stop"))


def by_hand(given: Sequence[Sample], settings: dict[str, Any]) -> tuple[list[Verdict | Unscored], int]:
    """The verdict on every sample, each group judged by itself, and how many questions that takes."""
    judge = make_judge(load({"judge": {**settings, "alone": "unscored"}}).judge[0], b"another secret")
    groups: dict[str, list[int]] = {}
    for place, sample in enumerate(given):
        groups.setdefault(sample.group or f"#{place}", []).append(place)
    found: dict[int, Verdict | Unscored] = {}
    asked = 0
    form = "text" if settings.get("reply") == "text" else "schema"
    for places in groups.values():
        done = deliberate(judge, [given[place] for place in places], answer, form)  # type: ignore[arg-type]
        found |= dict(zip(places, done.verdicts, strict=True))
        asked += len(done.asks)
    return [found[place] for place in range(len(given))], asked


def verdicts(rewards: Sequence[Reward], judge: int = 0) -> list[Verdict | Unscored]:
    """What one judge said of each sample."""
    return [reward.judged[judge].verdict for reward in rewards]


def unscored(rewards: Sequence[Reward]) -> list[Unscored]:
    """What has no verdict, whole responses and parts."""
    found = verdicts(rewards)
    every = [*found, *(part.verdict for verdict in found for part in getattr(verdict, "parts", ()))]
    return [verdict for verdict in every if isinstance(verdict, Unscored)]


class ShippedGroupContract(Opening):
    """Listwise and pairwise judges, wherever they run."""

    @pytest.fixture(params=list(KINDS))
    def settings(self, request: pytest.FixtureRequest) -> dict[str, Any]:
        """Of one judge of groups."""
        return KINDS[request.param]

    def test_verdicts_are_those_of_the_judge_by_itself(self, make: Make, settings: dict[str, Any]) -> None:
        """Rows of five groups in turn, some without one: the same verdicts with their parts, in the caller's order."""
        given = grouped(60, 5)
        wanted, asked = by_hand(given, settings)
        referee = make(judge=settings)
        rewards = referee.score(given)
        assert verdicts(rewards) == wanted
        assert {str(verdict.reason) for verdict in wanted if isinstance(verdict, Unscored)} == {"alone"}
        assert [reward.value is None for reward in rewards] == [not sample.group for sample in given]
        assert referee.metrics()["requests"] == asked

    def test_a_second_time_costs_nothing(self, make: Make, settings: dict[str, Any]) -> None:
        """The same groups, their rows in another order, are answered from the cache."""
        given = [sample for sample in grouped(40, 4) if sample.group]
        referee = make(judge=settings)
        first = referee.score(given)
        paid = referee.metrics()["requests"]
        again = referee.score(given[::-1])
        assert [reward.value for reward in again] == pytest.approx([reward.value for reward in first[::-1]])
        assert referee.metrics()["requests"] == paid

    def test_what_a_group_cost_is_in_the_rewards_once(self, make: Make, settings: dict[str, Any]) -> None:
        """The shares of its samples add up to what was spent."""
        referee = make(judge=settings, endpoint={**BASE["endpoint"], "price_in": 1.0, "price_out": 1.0})
        rewards = referee.score(grouped(28, 2))
        spent = referee.metrics()["budget_spent_usd"]
        assert spent > 0
        assert sum(reward.settled.cost for reward in rewards) == pytest.approx(spent)

    def test_a_judge_of_samples_beside_it(self, make: Make, settings: dict[str, Any]) -> None:
        """Each is a term of the reward; a sample without siblings has the other term only, so no reward."""
        given = grouped(30, 3)
        judges = [{"name": "quality", "kind": "score"}, {"name": "rank", **settings}]
        rewards = make(judge=judges).score(given)
        assert verdicts(rewards, 1) == by_hand(given, settings)[0]
        for sample, reward in zip(given, rewards, strict=True):
            quality, rank = (term.settled.verdict for term in reward.terms)
            assert isinstance(quality, Verdict)
            assert reward.judge == (pytest.approx(quality.value + rank.value) if sample.group else None)  # type: ignore[union-attr]

    def test_a_sample_without_siblings_goes_to_the_judge_that_is_named(
        self, make: Make, settings: dict[str, Any]
    ) -> None:
        """That one is no term, and judges nobody else."""
        given = grouped(14, 1)
        judges = [{"name": "rank", **settings, "alone": "one"}, {"name": "one", "kind": "score"}]
        rewards = make(judge=judges).score(given)
        assert [len(reward.terms) for reward in rewards] == [1] * 14
        found = verdicts(rewards)
        alone = [verdict.value for verdict in found if verdict.how not in ("listwise", "pairwise")]  # type: ignore[union-attr]
        assert alone == pytest.approx([6 / 9, 3 / 9])
        wanted, _ = by_hand(given, settings)
        assert [a for a, b in zip(found, given, strict=True) if b.group] == [
            a for a, b in zip(wanted, given, strict=True) if b.group
        ]

    def test_confused_labels_are_asked_again(self, make: Make, settings: dict[str, Any]) -> None:
        """A judge that misses, doubles or invents a label now and then changes no verdict."""
        given = [sample for sample in grouped(40, 4) if sample.group]
        faults = {"label_missing": 0.1, "label_twice": 0.1, "label_unknown": 0.1}
        referee = make(ProviderSpec(faults=faults), judge={**settings, "reply": "text", "ask_again": 20})  # type: ignore[arg-type]
        assert verdicts(referee.score(given)) == by_hand(given, {**settings, "reply": "text"})[0]

    def test_one_unscorable_member_leaves_the_others_ranked(self, make: Make, settings: dict[str, Any]) -> None:
        """Cut off, and a gate says that such rollouts have no score: with group_mean it gets its siblings' mean."""
        given = [replace(sample, group="g", truncated=n == 3) for n, sample in enumerate(grouped(8, 1))]
        settings = {**settings, "gates": {"truncated": "unscored"}}
        rewards = make(judge=settings, missing={"policy": "group_mean"}).score(given)
        others = [n for n in range(8) if n != 3]
        wanted, _ = by_hand([given[n] for n in others], settings)
        assert [verdicts(rewards)[n] for n in others] == wanted
        assert (rewards[3].filled, str(rewards[3].verdict.reason)) == ("group_mean", "truncated")
        assert rewards[3].value == pytest.approx(sum(rewards[n].value or 0.0 for n in others) / 7)

    def test_samples_without_siblings_do_not_stop_a_run(self, make: Make, settings: dict[str, Any]) -> None:
        """However many: they are no failures of the judge. A judge that fails does stop it."""
        alone = [replace(sample, group="") for sample in grouped(300, 1)]
        strict = {"abort_above": 0.02}
        assert reasons(make(judge=settings, missing=strict).score(alone)) == {"alone"}
        refusing = ProviderSpec(faults={"refusal": 1.0})
        with pytest.raises(Exception, match="not scored") as caught:
            make(refusing, judge=settings, missing=strict).score([sample for sample in grouped(60, 6) if sample.group])
        assert len(caught.value.rewards) == 52  # type: ignore[attr-defined]

    def test_the_deadline_ends_each_sample_once(self, make: Make, settings: dict[str, Any]) -> None:
        """Some answers never come: what can be said without them is said, and the rest is unscored."""
        given = [sample for sample in grouped(40, 4) if sample.group]
        spec = ProviderSpec(faults={"hang": 0.2})
        limits = {"deadline": 0.5, "attempt_timeout": 30.0}
        rewards = make(spec, judge=settings, limits=limits, missing={"abort_above": 1.0}).score(given)
        assert [reward.index for reward in rewards] == list(range(len(given)))
        ended = {str(missing.reason) for missing in unscored(rewards)}
        assert ended
        assert ended <= {"deadline", "timeout"}

    def test_a_budget_ends_what_it_does_not_pay(self, make: Make, settings: dict[str, Any]) -> None:
        """What was not asked says why, whole responses or single comparisons, and no more is spent than was allowed."""
        given = [sample for sample in grouped(140, 20) if sample.group]
        priced = {**BASE["endpoint"], "price_in": 1.0, "price_out": 1.0}
        whole = make(judge=settings, endpoint=priced)
        whole.score(given)
        limits = {"budget_usd": whole.metrics()["budget_spent_usd"] / 2, "concurrency": 2}
        referee = make(judge=settings, endpoint=priced, limits=limits, missing={"abort_above": 1.0})
        rewards = referee.score(given)
        assert {str(missing.reason) for missing in unscored(rewards)} == {"budget"}
        assert any(reward.scored for reward in rewards)
        assert referee.metrics()["budget_spent_usd"] <= limits["budget_usd"]


class BackgroundGroupContract(ShippedGroupContract):
    """What those promise as well that judge while the caller goes on."""

    def test_cancel_ends_every_group(self, make: Make, settings: dict[str, Any]) -> None:
        """Each sample has an end: unscored, cancelled."""
        given = [sample for sample in grouped(40, 4) if sample.group]
        ticket = make(ProviderSpec(latency_median=60.0), judge=settings).submit(given)
        ticket.cancel()
        rewards = ticket.result(timeout=PATIENCE)
        assert reasons(rewards) == {"cancelled"}
        assert len(rewards) == len(given)


class LostGroupContract(BackgroundGroupContract):
    """What those promise as well whose workers may die."""

    @pytest.fixture(params=["listwise", "pairwise, swiss in one order"])
    def settings(self, request: pytest.FixtureRequest) -> dict[str, Any]:
        """Of one judge of groups: in one round, and in several. What else tells kinds apart, workers do not see."""
        return KINDS[request.param]

    def lose(self, referee: Referee) -> None:
        """End a worker of this Referee without a word."""
        raise NotImplementedError

    def test_groups_of_a_lost_worker_are_judged_again(self, make: Make, settings: dict[str, Any]) -> None:
        """With the same verdicts."""
        given = [sample for sample in grouped(60, 6) if sample.group]
        wanted, asked = by_hand(given, settings)
        # As slow as it takes for a worker to be lost in the middle, whatever the kind asks.
        referee = make(ProviderSpec(latency_median=4 / asked), judge=settings, limits={"concurrency": 4})
        ticket = referee.submit(given)
        until(ticket.landed)
        self.lose(referee)
        assert verdicts(ticket.result(PATIENCE)) == wanted
