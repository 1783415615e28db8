"""Judges of whole groups in one worker: what they are given, how much they ask at once, and how their samples end."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import pytest
from msgspec.structs import replace
from tests.contracts.group_judges import KIND, registered
from tests.engine.harness import Run, run, samples

from referee.config import JudgeConfig
from referee.engine.port import Response
from referee.judging import Deliberation, Form, make_judge
from referee.records import Ask, Sample, Unscored, Verdict
from referee.scoring.batch import Batch
from referee.scoring.local import Scorer
from referee.scoring.room import PLAN_AHEAD
from referee.sim import Provider, ProviderSpec, SimTransport

LIMIT = 4
Rounds = Callable[[Sequence[Sample], Callable[[str], Ask]], Deliberation]


class GroupJudge:
    """A judge of groups that is one function of its samples and of what makes a question of a text."""

    unit: Literal["group"] = "group"

    def __init__(self, config: JudgeConfig, secret: bytes, rounds: Rounds) -> None:
        self._one = make_judge(replace(config, kind="score"), secret)
        self._rounds = rounds

    def deliberate(self, samples: Sequence[Sample], form: Form) -> Deliberation:
        def ask(text: str) -> Ask:
            planned = self._one.plan(Sample(prompt="p", response=f"[[quality=5]] {text}"), form)
            assert isinstance(planned, Ask)
            return planned

        return self._rounds(samples, ask)


class Watching(SimTransport):
    """Notes how many questions are under way whenever one is sent."""

    scorer: Scorer | None = None
    most = 0

    async def post(self, url: str, headers: Mapping[str, str], body: bytes, timeout: float) -> Response:
        if self.scorer is not None:
            self.most = max(self.most, self.scorer.engine.flying)
        return await super().post(url, headers, body, timeout)


def judged(rounds: Rounds, given: list[Sample], spec: ProviderSpec | None = None, **sections: Any) -> tuple[Run, int]:
    """Judge these, and the most questions that were under way at once."""
    found: list[Watching] = []

    def network(providers: Mapping[str, Provider]) -> Watching:
        found.append(Watching(providers))
        return found[0]

    def during(scorer: Scorer, batch: Batch) -> None:
        found[0].scorer = scorer

    with registered(lambda given: GroupJudge(given.config, given.secret, rounds)):
        sections = {"limits": {"concurrency": LIMIT}, **sections}
        spec = spec or ProviderSpec(latency_median=0.05)
        return run(given, spec, during=during, network=network, judge={"kind": KIND}, **sections), found[0].most


def in_groups(groups: int, size: int) -> list[Sample]:
    return [replace(sample, group=f"g{n % groups}") for n, sample in enumerate(samples(groups * size))]


def pairs(samples: Sequence[Sample]) -> list[str]:
    return [f"{one.id} against {other.id}" for one, other in itertools.permutations(samples, 2)]


def all_pairs(samples: Sequence[Sample], ask: Callable[[str], Ask]) -> Deliberation:
    """Every pair in both orders, in one round: 240 questions for 16 samples."""
    answers = yield [ask(pair) for pair in pairs(samples)]
    return list(answers[: len(samples)])


def pairs_after_one(samples: Sequence[Sample], ask: Callable[[str], Ask]) -> Deliberation:
    """One question first; its answer is followed by all pairs."""
    yield [ask(f"about {samples[0].group}")]
    return (yield from all_pairs(samples, ask))


@pytest.mark.parametrize("rounds", [all_pairs, pairs_after_one])
def test_large_cases_are_begun_one_after_the_other(rounds: Rounds) -> None:
    """Ten groups of 240 questions each: at no time is more under way than the bound and one round."""
    done, most = judged(rounds, in_groups(10, 16))
    assert done.reasons() == {"scored": 160}
    assert most <= PLAN_AHEAD + LIMIT + 240


def test_groups_that_have_begun_are_finished_before_others_begin() -> None:
    """Otherwise all of them would be half done, and none would have its rewards."""
    open_, most_open = 0, 0

    def three_rounds(samples: Sequence[Sample], ask: Callable[[str], Ask]) -> Deliberation:
        nonlocal open_, most_open
        open_ += 1
        most_open = max(most_open, open_)
        for turn in range(3):
            answers = yield [ask(f"{turn}: {pair}") for pair in pairs(samples)]
        open_ -= 1
        return list(answers[: len(samples)])

    done, _ = judged(three_rounds, in_groups(30, 8))
    assert done.reasons() == {"scored": 240}
    # What is planned at a time, and what the bound holds of rounds of 56 questions.
    assert most_open < 15


@pytest.mark.parametrize("rounds", [all_pairs, pairs_after_one])
@pytest.mark.parametrize("seconds", [0.02, 0.5, 2.0])
def test_a_deadline_ends_every_sample_of_every_group_once(rounds: Rounds, seconds: float) -> None:
    """Also of groups whose next round waits for room, and of those that were not begun."""
    done, _ = judged(rounds, in_groups(6, 16), limits={"concurrency": LIMIT, "deadline": seconds})
    assert sum(done.reasons().values()) == 96
    assert set(done.reasons()) <= {"scored", "deadline"}
    assert done.reasons()["deadline"] > 0


def test_a_judge_may_decide_with_what_it_has() -> None:
    """At the deadline open questions are answered Unscored; siblings without an answer are unscored, others not."""

    def each(samples: Sequence[Sample], ask: Callable[[str], Ask]) -> Deliberation:
        return list((yield [ask(sample.id) for sample in samples]))

    spec = ProviderSpec(latency_median=0.05, faults={"hang": 0.3})
    limits = {"concurrency": 50, "deadline": 5.0, "attempt_timeout": 30.0}
    done, _ = judged(each, in_groups(2, 20), spec, limits=limits, missing={"abort_above": 1.0})
    assert set(done.reasons()) == {"scored", "deadline"}
    assert min(done.reasons().values()) > 5


def test_a_judge_that_fails_costs_its_own_group() -> None:
    """One logged traceback for each, and the other groups are judged."""

    def picky(samples: Sequence[Sample], ask: Callable[[str], Ask]) -> Deliberation:
        answers = yield [ask(sample.id) for sample in samples]
        if samples[0].group == "g1":
            raise ValueError("not this one")
        return list(answers) if samples[0].group != "g2" else answers[:-1]

    done, _ = judged(picky, in_groups(4, 5))
    for reward in done.rewards:
        assert reward is not None
        assert reward.scored is (reward.group in ("g0", "g3"))
        if isinstance(reward.verdict, Unscored):
            assert reward.verdict.reason == "config"


def test_a_budget_that_ends_inside_a_group_ends_all_of_it() -> None:
    """What could not be paid for is unscored (budget), each sample once."""

    def each(samples: Sequence[Sample], ask: Callable[[str], Ask]) -> Deliberation:
        return list((yield [ask(sample.id) for sample in samples]))

    done, _ = judged(
        each,
        in_groups(5, 20),
        endpoints=[{"price_in": 1.0, "price_out": 1.0}],
        limits={"concurrency": LIMIT, "budget_usd": 0.03},
        missing={"abort_above": 1.0},
    )
    assert set(done.reasons()) == {"scored", "budget"}
    assert sum(done.reasons().values()) == 100


def test_a_sample_without_a_group_is_judged_alone() -> None:
    """Each is a group of one, also where the batch has others."""
    seen: list[list[str]] = []

    def each(samples: Sequence[Sample], ask: Callable[[str], Ask]) -> Deliberation:
        seen.append([sample.id for sample in samples])
        return list((yield [ask(sample.id) for sample in samples]))

    given = [replace(sample, group="g" if n % 2 else "") for n, sample in enumerate(samples(6))]
    done, _ = judged(each, given)
    assert all(isinstance(verdict, Verdict) for verdict in done.verdicts())
    assert sorted(seen) == [["0"], ["1", "3", "5"], ["2"], ["4"]]
