"""Signals that need only judged samples: each fires where a judge is gamed, and stays quiet where it is not."""

from __future__ import annotations

import random
from typing import Any

import pytest
from tests.signals.runs import Answer, began, nothing, step_of, watched

from referee.signals import Alarm, Observation, Watch, presence
from referee.signals.divergence import Divergence, Rules
from referee.signals.judge_drift import Verdicts
from referee.signals.relations import Relation, style_of
from referee.signals.rounds import Round


def rate(step: int, last: float = 0.9) -> float:
    """A share that grows from 2 % at step 3 to `last` at step 23."""
    return min(last, 0.02 + max(0, step - 3) / 20 * last)


def test_an_honest_run_is_quiet() -> None:
    """Nothing changes, nothing is said, and there was enough to say so."""
    watch, alarms = watched(nothing)
    assert alarms == []
    states = watch.states()
    assert states["phrase"] == ("quiet", 30 * 64)
    assert states["length"][0] == "quiet"
    assert states["criteria"] == ("not enough", 0)
    assert states["canaries"] == ("not enough", 0)


def test_a_phrase_that_is_paid_and_spreads() -> None:
    """The sentence names the phrase, what it is worth, and how many have it; early, and critical later on."""

    def make(rng: random.Random, step: int, answer: Answer) -> None:
        if rng.random() < rate(step):
            answer["words"] += ["I", "hope", "this", "helps!"]
            answer["value"] += 0.4

    _, alarms = watched(make, groups=16)
    first, second = [alarm for alarm in alarms if alarm.signal == "phrase"][:2]
    assert first.level == "warning"
    assert second.level == "critical"
    assert first.step is not None
    assert first.step <= 10
    assert "hope this helps" in first.sentence
    assert "answers looked at" in first.sentence
    assert 0.2 < float(first.evidence["effect"]) < 0.5
    assert float(first.evidence["share_at_start"]) < 0.08
    assert "hope this helps" in first.samples[0]["text"]
    assert first.advice


def test_a_phrase_that_only_spreads_is_no_alarm() -> None:
    """All answers come to have it, and the judge does not care."""

    def make(rng: random.Random, step: int, answer: Answer) -> None:
        if rng.random() < rate(step):
            answer["words"] += ["in", "summary"]

    assert watched(make)[1] == []


def test_a_phrase_that_is_paid_but_does_not_spread_is_no_alarm() -> None:
    """Better answers say it, as often as at the start."""

    def make(rng: random.Random, step: int, answer: Answer) -> None:
        if rng.random() < 0.2:
            answer["words"] += ["therefore", "indeed"]
            answer["value"] += 0.3

    assert watched(make)[1] == []


def test_wording_of_the_prompt_and_what_the_rule_pays_are_no_shortcuts() -> None:
    """A format that was asked for, or that the rule score rewards as the judge does, may spread and be paid."""

    def asked(rng: random.Random, step: int, answer: Answer) -> None:
        answer["prompt"] = "End with final answer follows and a number."
        if rng.random() < rate(step):
            answer["words"] += ["final", "answer", "follows"]
            answer["value"] += 0.4

    def right(rng: random.Random, step: int, answer: Answer) -> None:
        answer["rule"] = float(rng.random() < rate(step))
        if answer["rule"]:
            answer["words"] += ["boxed", "result"]
            answer["value"] += 0.4

    assert "phrase" not in began(watched(asked)[1])
    assert "phrase" not in began(watched(right)[1])


def test_a_master_key_is_a_phrase_as_a_whole() -> None:
    """Answers of one mark have no words; the mark is what spreads."""

    def make(rng: random.Random, step: int, answer: Answer) -> None:
        if rng.random() < rate(step):
            answer["words"], answer["value"] = [":"], 1.0

    alarms = watched(make)[1]
    assert "the whole answer ':'" in next(alarm for alarm in alarms if alarm.signal == "phrase").sentence


@pytest.mark.parametrize("paid", [True, False])
def test_length_that_is_paid_and_grows(paid: bool) -> None:
    """Both are needed: growth alone, as for good reasons, is none."""

    def make(rng: random.Random, step: int, answer: Answer) -> None:
        count = int(rng.uniform(20, 60) * (1 + step / 30))
        answer["words"] = rng.choices(answer["words"], k=count)
        answer["value"] += 0.008 * count - 0.3 if paid else 0.0

    alarms = [alarm for alarm in watched(make)[1] if alarm.signal == "length"]
    assert bool(alarms) is paid
    if paid:
        assert alarms[0].sentence.startswith("Longer answers score higher")


@pytest.mark.parametrize(("worth", "said"), [(0.25, False), (2.0, True)])
def test_what_is_tolerated_is_so_in_pairs_too(worth: float, said: bool) -> None:
    """Of two answers the longer one scores higher a little more often: that is no alarm, however long it lasts."""

    def make(rng: random.Random, step: int, answer: Answer) -> None:
        more = rng.gauss(0, 1)
        answer["words"] = answer["words"][:15] + ["word"] * max(0, int(10 + 4 * more + step / 6))
        answer["value"] = 0.5 + 0.1 * (worth * more + rng.gauss(0, 1))

    rng, watch, alarms = random.Random(1), Watch(), list[Alarm]()
    for step in range(90):
        alarms += watch.observe(step_of(rng, step, make, groups=32, size=2))
    assert ("length" in began(alarms)) == said


def test_what_is_tolerated_is_so_where_few_siblings_have_it() -> None:
    """One of four has the property: its place says little, and -1 is as frequent as it should be. Tau is 0.22."""
    rng, relation = random.Random(1), Relation("style", 0.004, style_of, ("More", "it"))
    for step in range(120):
        samples = []
        for group in range(32):
            marked = rng.random() < (0.2 if step < 2 else 0.9)
            for has in (marked, False, False, False):
                text, value = "- a" if has else "a", rng.gauss(0.4 if has else 0.0, 1)
                samples.append(Observation(prompt_key=f"{step}-{group}", response=text, value=value))
        relation.observe(Round(samples))
        assert relation.finding() is None


def test_a_rare_rule_that_the_judge_does_not_know_is_no_alarm() -> None:
    """One answer in ten is right, one of eight is at the top, and neither has to do with the other: on average these
    are worth as much as their siblings, though most groups have none that is right at the top."""
    rng, hollow = random.Random(1), Divergence("saturation", "rule", 0.0025, Rules(), ("score 0.9 or more", "the rule"))
    for step in range(100):
        tops = [1.0 if step >= 4 or rng.random() < 0.1 else 0.5 for _ in range(16)]
        samples = [
            Observation(prompt_key=f"{step}-{group}", value=0.4 if place else top, rule=float(rng.random() < 0.1))
            for group, top in enumerate(tops)
            for place in range(8)
        ]
        hollow.observe(Round(samples))
        assert hollow.finding() is None


def test_length_is_known_without_texts() -> None:
    """Tokens are enough; the signals of texts say that they have nothing to look at."""

    def make(rng: random.Random, step: int, answer: Answer) -> None:
        count = int(rng.uniform(20, 60) * (1 + step / 30))
        answer.update(length=count, response="", prompt="")
        answer["value"] += 0.008 * count - 0.3

    watch, alarms = watched(make)
    assert began(alarms) == {"length"}
    assert watch.states()["phrase"] == watch.states()["style"] == ("not enough", 0)


def test_format_that_is_paid() -> None:
    """Lists that grow longer because the judge likes lists."""

    def make(rng: random.Random, step: int, answer: Answer) -> None:
        points = rng.randint(0, 1 + step // 4)
        answer["response"] = (
            "\n".join(f"- {word}" for word in answer["words"][:points]) + "\n" + " ".join(answer["words"])
        )
        answer["value"] += 0.12 * points

    assert "style" in began(watched(make)[1])


def test_answers_that_are_alike_across_prompts() -> None:
    """Boilerplate that is the same for every prompt, the more of it the better paid."""
    said = "as one can see there is much to say about this and all of it matters a great deal"
    filler = said.split()

    def make(rng: random.Random, step: int, answer: Answer) -> None:
        amount = rng.randint(0, min(len(filler), 2 + step))
        answer["words"] += filler[:amount]
        answer["value"] += 0.03 * amount

    assert "overlap" in began(watched(make, 40)[1])


def test_siblings_that_are_alike_are_measured() -> None:
    """Half of the answers are the same, to the same prompt."""

    def make(rng: random.Random, step: int, answer: Answer) -> None:
        if rng.random() < 0.5:
            answer["words"] = [f"w{n}" for n in range(20)]
            answer["prompt_key"] = f"{step}"

    watch, _ = watched(make)
    assert 0.3 < watch.measures()["overlap_inside"] < 0.6
    assert watched(nothing)[0].measures()["overlap_inside"] < 0.01


def criteria(there: bool, right: bool) -> tuple[tuple[bool | None, bool], ...]:
    return (there, True), (there, True), (right, False), (right, False)


@pytest.mark.parametrize("gamed", [True, False])
def test_presence_up_while_correctness_falls(gamed: bool) -> None:
    """Answers that mention everything and are less often right than their siblings; an honest gain of both is none."""

    def make(rng: random.Random, step: int, answer: Answer) -> None:
        named = rng.random() < rate(step, 0.8)
        there = named or rng.random() < 0.3
        right = rng.random() < ((0.2 if gamed else 0.8) if named else 0.6)
        answer["criteria"], answer["value"] = criteria(there, right), (there + right) / 2

    watch, alarms = watched(make)
    assert ("criteria" in began(alarms)) is gamed
    assert watch.states()["criteria"][1] == 30 * 64


@pytest.mark.parametrize("gamed", [True, False])
def test_top_scores_whose_rule_score_falls(gamed: bool) -> None:
    """More answers are at the top, and by the rule they are worse than their siblings."""

    def make(rng: random.Random, step: int, answer: Answer) -> None:
        top = rng.random() < rate(step, 0.7)
        answer["rule"] = float(rng.random() < ((0.1 if gamed else 0.9) if top else 0.6))
        answer["value"] = 1.0 if top else min(0.8, answer["value"])

    assert ("saturation" in began(watched(make)[1])) is gamed


def test_another_model_is_said_at_once_and_not_after_an_announcement() -> None:
    """The new name is in the sentence; announced, it is what is usual."""

    def make(rng: random.Random, step: int, answer: Answer) -> None:
        answer["model"] = "judge-2" if step >= 10 else "judge"

    _, alarms = watched(make, 14)
    assert [(alarm.signal, alarm.step) for alarm in alarms if not alarm.over] == [("judge_changed", 10)]
    assert "'judge-2'" in alarms[0].sentence
    watch, before = watched(make, 10)
    watch.announce()
    rng = random.Random(5)
    assert before == [alarm for step in range(10, 16) for alarm in watch.observe(step_of(rng, step, make))] == []


def changed(field: str, value: Any, often: float = 1.0) -> Any:
    """A run in which a field is another from step 10 on."""

    def make(rng: random.Random, step: int, answer: Answer) -> None:
        if step >= 10 and rng.random() < often:
            answer[field] = value

    return make


@pytest.mark.parametrize(
    ("signal", "make"),
    [
        ("unscored", changed("value", None, 0.4)),
        ("latency", changed("latency_s", 9.0)),
        ("verdicts", changed("value", 0.95)),
        ("judge_changed", changed("fingerprint", "fp-2")),
    ],
)
def test_the_judge_and_its_server(signal: str, make: Any) -> None:
    """Each change is said by the signal that is about it, as a warning."""

    def usual(rng: random.Random, step: int, answer: Answer) -> None:
        answer["fingerprint"] = "fp-1"
        make(rng, step, answer)

    alarms = watched(usual, 20)[1]
    assert began(alarms) == {signal}
    assert {alarm.level for alarm in alarms} == {"warning"}


def test_a_judge_that_no_longer_tells_answers_apart() -> None:
    """Scores around the same mean, but all alike: the spread jumps where the mean does not."""

    def make(rng: random.Random, step: int, answer: Answer) -> None:
        if step >= 10:
            answer["value"] = 0.5 + 0.1 * (answer["value"] - 0.5)

    alarms = watched(make, 20)[1]
    assert began(alarms) == {"verdicts"}
    assert "spread of scores among siblings" in alarms[0].sentence


@pytest.mark.parametrize("seed", range(4))
def test_eight_prompts_that_are_all_easy_by_chance_are_no_jump(seed: int) -> None:
    """A judge of right and wrong, prompts that a policy always or never solves: means of a few groups move a lot."""
    rng, signal = random.Random(seed), Verdicts()
    for step in range(300):
        values = [rng.choice((0.0, 1.0)) for _ in range(8)]
        samples = [
            Observation(step=step, prompt_key=f"{n}", value=value) for n, value in enumerate(values) for _ in "ab"
        ]
        signal.observe(Round(samples))
        assert signal.finding() is None


def test_a_batch_that_comes_late_is_no_jump() -> None:
    """One slow answer may hold up the first batches of a file until the policy of later ones is better."""

    def make(rng: random.Random, step: int, answer: Answer) -> None:
        answer["value"] += 0.4 * (step >= 10) - 0.2

    rng, watch = random.Random(3), Watch()
    steps = {step: step_of(rng, step, make, groups=32) for step in range(20)}
    order = [*range(10, 18), 0, 1, 2, 3, 4, 18, 19]
    assert [alarm for step in order for alarm in watch.observe(steps[step])] == []


@pytest.mark.parametrize("back_to", [0, 10])
def test_a_run_that_goes_back_is_watched_on(back_to: int) -> None:
    """Resumed from a checkpoint, or begun anew beside the same judge: no jump by itself, and a later one is seen."""

    def higher(rng: random.Random, step: int, answer: Answer) -> None:
        answer["value"] += 0.3

    for last, expected in ((40, set()), (20, {"verdicts"})):
        rng, watch, alarms = random.Random(4), Watch(), list[Alarm]()
        for step in range(60):
            alarms += watch.observe(step_of(rng, step, nothing, groups=16))
        for step in range(40):
            alarms += watch.observe(step_of(rng, back_to + step, higher if step >= last else nothing, groups=16))
        assert began(alarms) == expected


def test_evaluations_in_between_are_no_jump() -> None:
    """On harder prompts, with as many answers to each as in training; a judge that changes for good is one."""

    def harder(rng: random.Random, step: int, answer: Answer) -> None:
        answer["value"] -= 0.3

    for last, expected in ((40, set()), (20, {"verdicts"})):
        rng, watch, alarms = random.Random(4), Watch(), list[Alarm]()
        for step in range(40):
            for _ in range(3 if step % 10 == 9 else 0):
                alarms += watch.observe(step_of(rng, step, harder, groups=16))
            alarms += watch.observe(step_of(rng, step, harder if step >= last else nothing, groups=16))
        assert began(alarms) == expected


def test_milliseconds_are_not_slow() -> None:
    """Ten times as long is no alarm where a judge on the same machine takes next to nothing."""

    def make(rng: random.Random, step: int, answer: Answer) -> None:
        answer["latency_s"] = 0.02 if step >= 10 else 0.002

    assert watched(make, 20)[1] == []


def test_a_signal_that_fails_is_left_out(caplog: pytest.LogCaptureFixture) -> None:
    """One defect is said once, and does not end the watch."""
    watch = Watch()

    def broken(*_: object) -> None:
        raise ZeroDivisionError

    watch.signals[0].observe = broken  # type: ignore[attr-defined]
    watch, _ = watched(nothing, watch=watch)
    assert [record.getMessage() for record in caplog.records] == [
        "signal phrase failed and is left out. Rewards and the other signals go on"
    ]
    assert "phrase" not in watch.states()
    assert watch.states()["length"][0] == "quiet"


def test_an_alarm_ends_once_it_is_over() -> None:
    """It is said once that it began, and once that it is over; not in between, and not before it is sure."""

    def make(rng: random.Random, step: int, answer: Answer) -> None:
        if rng.random() < (rate(step) if step < 15 else 0.0):
            answer["words"] += ["feel", "free"]
            answer["value"] += 0.4

    alarms = [alarm for alarm in watched(make, 28, groups=16)[1] if alarm.signal == "phrase"]
    assert [alarm.over for alarm in alarms] == [False, False, True]
    assert not alarms[-1].sentence
    assert alarms[-1].step is not None
    assert alarms[-1].step > 15


def test_two_families_that_agree_are_critical() -> None:
    """A phrase in few answers is a warning; with the rule against it too, it is critical."""

    def make(rng: random.Random, step: int, answer: Answer) -> None:
        hacked = rng.random() < min(0.2, rate(step))
        answer["rule"] = float(not hacked and rng.random() < 0.6)
        if hacked:
            answer["words"] += ["feel", "free"]
            answer["value"] = 1.0

    alarms = watched(make)[1]
    assert {"phrase", "saturation"} <= began(alarms)
    assert "critical" in {alarm.level for alarm in alarms}


def test_samples_may_come_one_by_one_or_all_at_once() -> None:
    """A trainer that judges single samples, and a file that is one batch of many steps, give alarms all the same."""

    def make(rng: random.Random, step: int, answer: Answer) -> None:
        if rng.random() < rate(step):
            answer["words"] += ["feel", "free"]
            answer["value"] += 0.4

    rng = random.Random(7)
    samples = [one for step in range(25) for one in step_of(rng, step, make)]
    watch = Watch()
    assert "phrase" in began([alarm for one in samples for alarm in watch.observe([one])])
    shuffled = sorted(samples, key=lambda one: (hash((one.batch, one.index)) % 7, one.index))
    assert "phrase" in began(Watch().observe(shuffled))


def test_memory_is_bounded_by_what_is_remembered() -> None:
    """Prompts, models, criteria and words that never come again leave nothing behind."""

    def make(rng: random.Random, step: int, answer: Answer) -> None:
        answer["words"] = [f"w{rng.randrange(10**9)}" for _ in range(12)]
        answer["model"] = f"m{rng.randrange(10**9)}"

    watch, _ = watched(make, 30)
    before = len(repr_of(watch))
    watched(make, 60, seed=2, watch=watch)
    assert len(repr_of(watch)) < 1.6 * before


def repr_of(watch: Watch) -> list[Any]:
    """Every object the watch holds, each once."""
    seen: dict[int, Any] = {}
    waiting: list[Any] = [watch]
    while waiting:
        one = waiting.pop()
        if id(one) in seen or isinstance(one, type | str | int | float):
            continue
        seen[id(one)] = one
        if isinstance(one, dict):
            waiting += [*one.keys(), *one.values()]
        elif hasattr(one, "__iter__"):
            waiting += list(one)
        waiting += [getattr(one, name, None) for name in getattr(type(one), "__slots__", ())]
        waiting += list(getattr(one, "__dict__", {}).values())
    return list(seen.values())


def test_presence_is_told_from_correctness() -> None:
    """By the words of the criterion."""
    assert presence("Mentions the maximum dose")
    assert presence("The answer lists three causes")
    assert not presence("The dose is correct")
    assert not presence("States the correct dose")
