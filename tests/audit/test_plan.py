"""What the audit asks, and how much: its share, its draws, its canaries for each kind of judge."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.audit.world import JUDGES, MAIN, SHADOW, rollouts

from referee.audit.clients import narrowed, without_share
from referee.audit.judged import JudgedSample, judged_samples
from referee.audit.plan import Plan
from referee.audit.questions import Question, answer_of, canary_round, drawn, probe_questions
from referee.config import AuditConfig, Config, JudgeConfig, load
from referee.probes.canaries import canaries, fits, good_canaries
from referee.records import Reply, Reward, Sample, Settled, Term, Verdict
from referee.runtime.ray_settings import far_config

SETTINGS: dict[str, Any] = {"endpoint": [MAIN, SHADOW], "judge": JUDGES}


def config(**audit: Any) -> Config:
    return load({**SETTINGS, "audit": {"enable": True, "shadow": "check", **audit}})


def ended(value: float, attempts: int = 1) -> Settled:
    verdict = Verdict(score=value, value=value)
    return Settled(verdict=verdict, origin="call", attempts=attempts, reply=Reply(text=""))


def judged(samples: list[Sample], values: list[float], attempts: int = 1) -> list[Reward]:
    """Rewards of one judge."""
    ends = [ended(value, attempts) for value in values]
    return [
        Reward(index=i, id="", group="", value=1.0, settled=end, terms=(Term("quality", 1.0, 1.0, end),))
        for i, end in enumerate(ends)
    ]


def batch(plan: Plan, step: int, size: int, attempts: int = 1) -> None:
    """A finished batch of the run."""
    samples = rollouts(step, size)
    rewards = judged(samples, [place % 9 / 9 for place in range(size)], attempts)
    plan.record_batch(judged_samples("b", samples, rewards, False), rewards)


def answered(plan: Plan, questions: list[Question], value: float = 0.1) -> None:
    """All of these questions, judge by judge."""
    for judge in {one.judge for one in questions}:
        mine = [one for one in questions if one.judge == judge]
        ends = [[ended(value)] * len(one.cases) for one in mine]
        plan.share.count_audit(judge, [end for case in ends for end in case])
        plan.record_answers(judge, [(o, answer_of(o, c, True, None)) for o, c in zip(mine, ends, strict=True)])


def live(number: int, value: float, **sample: Any) -> JudgedSample:
    given = Sample(**{"prompt": f"Question {number}?", "response": "It is so. Quite so.", **sample})
    return JudgedSample("1-1", number, given, value, (value,), True)


@settings(max_examples=60)
@given(
    share=st.floats(0.005, 0.5),
    every=st.integers(1, 30),
    batches=st.lists(st.tuples(st.integers(1, 80), st.integers(1, 3), st.booleans()), max_size=60),
)
def test_the_share_is_kept_at_all_times(share: float, every: int, batches: list[tuple[int, int, bool]]) -> None:
    """However batches, retries and answers come: requests of the audit are within the share and its first round."""
    plan = Plan(config(share=share, every=every), [])
    waiting: list[Question] = []
    for step, (size, attempts, answers) in enumerate(batches):
        batch(plan, step, size, attempts)
        waiting += plan.next_questions()
        if answers:
            answered(plan, waiting, 0.5)
            waiting = []
        asked = plan.share.asked + sum(len(one.cases) for one in waiting)
        assert asked <= plan.share.first + share * plan.share.requests + 1e-9
        assert plan.share.first <= 24 * max(attempts for _, attempts, _ in batches[: step + 1])


def test_a_long_run_asks_everything_in_turn() -> None:
    """Canaries, the fixed set, the shadow judge and probes, and most of what is allowed."""
    plan, kinds = Plan(config(share=0.05, every=10), []), Counter[str]()
    for step in range(200):
        batch(plan, step, 32)
        while new := plan.next_questions():
            kinds.update(one.what for one in new)
            answered(plan, new)
    assert set(kinds) == {"canary", "fixed", "shadow", "probe"}
    assert min(kinds.values()) > 5
    assert plan.share.asked > 0.8 * plan.share.share * plan.share.requests


def test_a_draw_says_its_chance() -> None:
    """Of many draws each sample comes as often as was said, and high scores more often."""
    pool = [live(number, number / 20) for number in range(20)]
    weights = [3.0 if one.value >= 0.75 else 1.0 for one in pool]
    rng, times, chances = random.Random(1), Counter[int](), dict[int, float]()
    for _ in range(4000):
        found = drawn(pool, weights, 5, rng)
        assert len(found) == 5
        for one, chance in found:
            times[one.index] += 1
            chances[one.index] = chance
    assert sum(chances.values()) == pytest.approx(5)
    for number, chance in chances.items():
        assert times[number] / 4000 == pytest.approx(chance, abs=0.04)
    assert chances[19] == pytest.approx(3 * chances[0])


@pytest.mark.parametrize("count", [0, 3, 7])
def test_a_draw_of_all_or_none(count: int) -> None:
    """As many as there are at most, those with chance 1."""
    pool = [live(number, 0.5) for number in range(3)]
    found = drawn(pool, [1.0, 1.0, 5.0], count, random.Random(2))
    assert [chance for _, chance in found] == [1.0] * min(3, count)


def test_canaries_follow_the_kind_and_its_gates() -> None:
    """What a gate would answer is not asked; the verdict speaks the judge's words."""
    plain = {one.name: one for one in canaries(JudgeConfig(), "What is 2+2?", 0)}
    assert set(plain) == {"opener", "verdict", "self-praise"}
    assert plain["verdict"].response == "Score: 10"
    assert canaries(JudgeConfig(kind="yes_no"), "?", 0)[1].response == "Verdict: yes"
    off = load({"judge": {"gates": {"empty": "off", "no_alphanumerics": "off", "echo": "off"}}}).judge[0]
    names = {one.name: one.response for one in canaries(off, "What is 2+2?", 0)}
    assert (names["colon"], names["empty"], names["echo"]) == (":", "", "What is 2+2?")
    assert not fits(JudgeConfig(kind="monitor"))
    assert {one.response for turn in range(9) for one in canaries(JudgeConfig(), "?", turn)[:1]} > {"Thought process:"}


def test_references_make_right_and_wrong_canaries() -> None:
    """This prompt's is right; another prompt's is wrong, unless it says the same."""
    found = {one.name: one for one in canaries(JudgeConfig(), "What is 2+2?", 0, reference="4", other="Paris")}
    assert (found["reference"].wrong, found["other reference"].wrong) == (False, True)
    assert found["self-praise"].response.startswith("Paris")
    same = [one.name for one in canaries(JudgeConfig(), "What is 2+2?", 0, reference="4", other=" 4. ")]
    assert "other reference" not in same
    long = "A long answer with many words in it. " * 20
    whole, cut = good_canaries(long)
    assert (whole.wrong, cut.wrong) == (False, True)
    assert len(cut.response) * 10 < len(long)
    assert [one.name for one in good_canaries("Short.")] == ["good answer"]


def test_a_judge_of_groups_sees_a_canary_among_siblings() -> None:
    """As a group of its own, the canary first; a judge of single answers sees it alone."""
    sibling = Sample(prompt="Question 1?", response="Another one.", group="g")
    one = replace(live(1, 0.5, group="g"), siblings=(sibling,))
    listwise = load({"judge": {"kind": "listwise"}}).judge[0]
    groups = [question.cases[0] for question in canary_round(listwise, [one], None, [], 1, False)]
    assert all(len(case) == 2 and case[1].response == "Another one." for case in groups)
    assert len({case[0].group for case in groups}) == len(groups)
    (alone,) = {len(q.cases[0]) for q in canary_round(JudgeConfig(name="q"), [one], None, [], 1, False)}
    assert alone == 1


def test_a_probe_asks_about_both_answers_now() -> None:
    """The one as it was too, and not of scores that cannot rise."""
    pool = [live(1, 0.5), live(2, 1.0)]
    (question,) = probe_questions(JudgeConfig(name="q"), 0, pool, 5, 0, random.Random(0))
    before, after = question.cases
    assert before[0].response == "It is so. Quite so."
    assert str(after[0].response).startswith("It is so. Quite so.\n\n")
    asked = answer_of(question, [ended(0.4), ended(0.9)], True, 7)
    assert asked is not None
    assert (asked.before, asked.value, asked.step, asked.index) == (0.4, 0.9, 7, 1)


def test_a_narrowed_configuration_asks_one_judge_past_the_cache() -> None:
    """With its share of budget and calls, without ledger, shaping, policy or an audit of its own."""
    whole = load(
        {
            **SETTINGS,
            "endpoint": [{**one, "price_in": 1.0, "price_out": 1.0} for one in (MAIN, SHADOW)],
            "limits": {"budget_usd": 100.0, "concurrency": 200, "rpm": 6000},
            "missing": {"policy": "raise"},
            "shaping": {"length": {"enable": True}},
            "ledger": {"dir": "x"},
            "audit": {"enable": True, "shadow": "check", "share": 0.02},
        }
    )
    small = load(narrowed(whole, whole.audit.judge[0], 2))
    assert [judge.name for judge in small.judge] == ["check"]
    assert [endpoint.label for endpoint in small.endpoint] == ["other"]
    assert (small.limits.budget_usd, small.limits.concurrency, small.limits.rpm) == (1.0, 2, 60)
    assert not small.cache.enabled
    assert not small.audit.enable
    assert small.ledger.dir is None
    assert (small.missing.policy, small.shaping.length.enable) == ("abstain", False)
    assert without_share(whole).limits.budget_usd == 98.0
    assert far_config(whole).audit == AuditConfig(), (
        "an engine elsewhere judges what the run asks, and has no such files"
    )


def test_announcing_is_no_free_round() -> None:
    """Only the first round of a run is beyond the share, however often something is announced."""
    plan = Plan(config(share=0.01, every=5), [])
    for step in range(40):
        batch(plan, step, 16)
        answered(plan, plan.next_questions())
        plan.announce()
    assert plan.share.asked <= plan.share.first + 0.01 * plan.share.requests
    assert plan.share.first < 24
