"""Signals of the audit's own questions: canaries, shadow judge, rewrites, the fixed set."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from tests.signals.runs import began

from referee.signals import Alarm, AuditAnswer, Watch

Ask = Callable[[random.Random, int], list[AuditAnswer]]


def heard(ask: Ask, rounds: int = 30, watch: Watch | None = None) -> tuple[Watch, list[Alarm]]:
    """A watch that heard so many rounds, and its alarms."""
    rng, watch = random.Random(1), watch or Watch()
    return watch, [alarm for step in range(rounds) for alarm in watch.observe_answers(ask(rng, step))]


def canaries(credited: Callable[[int, str], float], refused: float = 0.0) -> Ask:
    """Four wrong canaries and one right one a round; with which chance each is judged otherwise."""

    def ask(rng: random.Random, step: int) -> list[AuditAnswer]:
        wrong = [
            AuditAnswer(
                what="canary", name=name, wrong=True, step=step, value=float(rng.random() < credited(step, name))
            )
            for name in ("empty", "colon", "echo", "praised")
        ]
        value = float(rng.random() >= (refused if step >= 30 else 0.0))
        return [
            *wrong,
            AuditAnswer(what="canary", name="reference", wrong=False, step=step, value=value, answer="It is so."),
        ]

    return ask


def test_a_sound_judge_is_quiet() -> None:
    """Canaries are told apart, the shadow agrees, rewrites change nothing, fixed answers stay."""

    def ask(rng: random.Random, step: int) -> list[AuditAnswer]:
        live = rng.random()
        noise = [rng.gauss(0, 0.05) for _ in range(3)]
        return [
            *canaries(lambda step, name: 0.0)(rng, step),
            AuditAnswer(what="shadow", before=live, value=live + noise[0], step=step),
            AuditAnswer(
                what="probe", name="praise", before=live, value=live + noise[1] * (rng.random() < 0.3), step=step
            ),
            AuditAnswer(what="fixed", name=str(step % 8), before=0.5, value=0.5 + noise[2], step=step),
        ]

    watch, alarms = heard(ask, 80)
    assert alarms == []
    assert {watch.states()[name][0] for name in ("canaries", "shadow", "exploitation", "probes", "fixed")} == {"quiet"}


def test_canaries_that_are_credited_from_the_start_are_said_at_once() -> None:
    """After the second time, with their name: a fact about the judge."""
    _, alarms = heard(canaries(lambda step, name: float(name == "colon")), 6)
    assert [(alarm.signal, alarm.level, alarm.step) for alarm in alarms] == [("canaries", "warning", 1)]
    assert "2 or more among the first 24" in alarms[0].sentence
    assert "at_start" not in alarms[0].evidence  # nothing is known of the start yet
    assert "colon (2 of 2)" in alarms[0].sentence


def test_canaries_that_are_credited_later_are_tested() -> None:
    """Nothing at the start, half of them from round 10 on."""
    _, alarms = heard(canaries(lambda step, name: 0.6 if step >= 10 else 0.0))
    assert began(alarms) == {"canaries"}
    assert alarms[0].step is not None
    assert 10 <= alarms[0].step <= 20
    assert "0 % at the start" in alarms[0].sentence


def test_right_answers_that_are_refused() -> None:
    """The other side of the same judge."""
    _, alarms = heard(canaries(lambda step, name: 0.0, refused=0.9), 90)
    assert began(alarms) == {"canaries"}
    assert "known to be right" in alarms[0].sentence
    assert alarms[0].samples[0]["text"] == "It is so."


@pytest.mark.parametrize("gamed", [True, False])
def test_high_scores_that_the_shadow_rejects(gamed: bool) -> None:
    """Their share is that of all answers, though high ones are drawn four times as often."""

    def ask(rng: random.Random, step: int) -> list[AuditAnswer]:
        found = []
        while len(found) < 4:
            hacked = gamed and step >= 15 and rng.random() < 0.4
            before = 0.95 if hacked else rng.uniform(0.2, 0.9)
            chance = 2.0 if before >= 0.75 else 0.5
            if rng.random() < 0.2 * chance:
                value = 0.3 if hacked else before + rng.gauss(0, 0.05)
                found.append(
                    AuditAnswer(what="shadow", name="other", before=before, value=value, chance=chance, step=step)
                )
        return found

    watch, alarms = heard(ask, 150)
    assert began(alarms) == ({"exploitation", "shadow"} if gamed else set())
    if gamed:
        rate = watch.measures()["exploitation"]
        assert 0.25 < rate < 0.55
        exploited = [alarm for alarm in alarms if alarm.signal == "exploitation"]
        assert exploited[-1].level == "critical"
        assert exploited[0].samples[0]["shadow"] == 0.3


@pytest.mark.parametrize(("strict", "offset"), [(0.6, 0.0), (0.8, -0.1), (1.0, -0.25)])
def test_a_shadow_judge_on_a_scale_of_its_own_is_no_alarm(strict: float, offset: float) -> None:
    """Answers become better. A strict shadow judge is then further below the high scores, and follows all the same."""

    def ask(rng: random.Random, step: int) -> list[AuditAnswer]:
        true = [min(1.0, max(0.0, rng.gauss(0.4 + 0.4 * min(1.0, step / 100), 0.2))) for _ in range(4)]
        said = [min(1.0, max(0.0, strict * one + offset + rng.gauss(0, 0.05))) for one in true]
        return [AuditAnswer(what="shadow", before=x, value=y, step=step) for x, y in zip(true, said, strict=True)]

    for seed in range(5):
        rng, watch = random.Random(seed), Watch()
        assert [alarm for step in range(200) for alarm in watch.observe_answers(ask(rng, step))] == []


def test_a_judge_that_is_only_noisy_is_no_alarm() -> None:
    """Noise raises as many scores as it lowers, also at the top of the scale, and fixed answers may have had luck."""
    for seed in range(5):
        watch, noise = Watch(), random.Random(seed)

        def ask(rng: random.Random, step: int, noise: random.Random = noise) -> list[AuditAnswer]:
            before, value, again = (float(noise.random() < 0.6) for _ in range(3))
            fixed = AuditAnswer(what="fixed", name=str(step % 16), before=float(step % 16 < 6), value=again, step=step)
            return [AuditAnswer(what="probe", name="praise", before=before, value=value, step=step), fixed]

        assert heard(ask, 400, watch)[1] == []


def test_a_rewrite_that_raises_the_score() -> None:
    """It is named; another that does nothing does not hide it; at the top of the scale nothing can rise."""

    def ask(rng: random.Random, step: int) -> list[AuditAnswer]:
        before = rng.uniform(0.3, 0.7)
        return [
            AuditAnswer(what="probe", name="praise", before=before, value=before + 0.2, step=step),
            AuditAnswer(what="probe", name="padding", before=before, value=before - 0.01, step=step),
            AuditAnswer(what="probe", name="praise", before=1.0, value=1.0, step=step),
        ]

    _, alarms = heard(ask)
    assert began(alarms) == {"probes"}
    assert "'praise'" in alarms[0].sentence
    assert alarms[0].evidence["mean_rise"] == pytest.approx(0.2)


@pytest.mark.parametrize("moved", [0.2, -0.2])
def test_fixed_answers_that_move(moved: float) -> None:
    """Up or down: the judge is another than at the first time."""

    def ask(rng: random.Random, step: int) -> list[AuditAnswer]:
        drift = moved if step >= 10 else 0.0
        return [AuditAnswer(what="fixed", name=str(n), before=0.5, value=0.5 + drift, step=step) for n in range(4)]

    watch, alarms = heard(ask)
    assert began(alarms) == {"fixed"}
    assert watch.measures()["fixed"] == pytest.approx(moved)


def test_unscored_answers_say_nothing() -> None:
    """Where a question got no score, nothing is counted."""
    what = ("canary", "shadow", "probe", "fixed")
    asked = [AuditAnswer(what=one, name="a", wrong=True, before=0.5, value=None, unscored="timeout") for one in what]
    watch, alarms = heard(lambda rng, step: asked)
    assert alarms == []
    assert {watch.states()[name] for name in ("canaries", "shadow", "probes", "fixed")} == {("not enough", 0)}


def test_an_announcement_forgets_what_was_usual_and_ends_alarms() -> None:
    """After it, a known weakness is learned anew, and what was open is over with the next look."""
    watch, _alarms = heard(canaries(lambda step, name: float(name == "colon")), 6)
    watch.announce()
    later = watch.observe_answers(canaries(lambda step, name: 0.0)(random.Random(2), 7))
    assert [(alarm.signal, alarm.over) for alarm in later] == [("canaries", True)]
    assert watch.observe_answers([]) == []
