"""Sequential evidence is valid at every look, and grows where there is something to find."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from referee.signals.evidence import Baseline, Evidence


def crossed(rng: random.Random, null: float, draw: str, length: int, alpha: float) -> bool:
    """Whether a run under the null ever reaches 1/alpha, with a restart every eighth number."""
    evidence = Evidence(null, 0.0, 1.0)
    for count in range(length):
        if count % 8 == 0:
            evidence.restart()
        if draw == "coin":
            x = float(rng.random() < null)
        elif draw == "even":
            x = null + rng.uniform(-1, 1) * min(null, 1 - null)
        else:  # the mean drifts below and comes back: what comes next depends on what came
            mean = null if evidence.log() > 0 else null * rng.random()
            x = float(rng.random() < mean)
        evidence.add(x)
    return evidence.passed(alpha)


@settings(max_examples=12, deadline=None, derandomize=True)
@given(null=st.sampled_from([0.1, 0.35, 0.65, 0.9]), draw=st.sampled_from(["coin", "even", "drift"]))
def test_the_false_alarm_rate_holds_over_a_whole_run(null: float, draw: str) -> None:
    """Looked at after every number, at most alpha of the runs under the null ever pass, but for chance."""
    alpha, runs = 0.1, 80
    passed = sum(crossed(random.Random(f"{null}{draw}{seed}"), null, draw, 160, alpha) for seed in range(runs))
    assert passed <= alpha * runs + 3 * math.sqrt(alpha * (1 - alpha) * runs)


def test_a_mean_above_the_null_is_found_and_stays_found() -> None:
    """Evidence grows where the mean is above the null, and what was shown is not taken back."""
    evidence, rng = Evidence(0.5, 0.0, 1.0), random.Random(1)
    for _ in range(200):
        evidence.add(float(rng.random() < 0.8))
    assert evidence.passed(1e-6)
    for _ in range(500):
        evidence.add(0.0)
    assert evidence.log() < 0
    assert evidence.passed(1e-6)


def test_a_late_change_is_found_about_as_fast_as_an_early_one() -> None:
    """Restarts keep capital for later: without them a long quiet time costs more than it can win back."""

    def looks(quiet: int, restarts: bool) -> int:
        evidence, rng = Evidence(0.5, 0.0, 1.0), random.Random(2)
        for count in range(quiet + 2000):
            if restarts and count % 16 == 0:
                evidence.restart()
            evidence.add(float(rng.random() < (0.3 if count < quiet else 0.8)))
            if evidence.passed(0.01):
                return count - quiet
        return 2000

    assert looks(3000, True) < looks(0, True) + 80
    assert looks(3000, False) == 2000


def test_numbers_outside_are_clipped_and_bad_nulls_refused() -> None:
    """One huge number is no more than the largest; a null at the edge cannot be tested."""
    evidence = Evidence(0.5, 0.0, 1.0)
    evidence.add(1e9)
    assert evidence.log() < math.log(2)
    with pytest.raises(ValueError, match="no mean of numbers"):
        Evidence(1.0, 0.0, 1.0)


def test_what_is_usual_is_learned_first_and_then_compared() -> None:
    """A share that stays passes nothing; one that rises passes, and ends when it falls back."""
    usual, rng = Baseline(0.1, 40, 40), random.Random(3)
    for _ in range(300):
        usual.add(float(rng.random() < 0.2))
    assert usual.ready
    assert not usual.passed(0.01)
    for count in range(120):
        if count % 8 == 0:
            usual.restart()
        usual.add(float(rng.random() < 0.7))
    assert usual.passed(0.01)
    assert usual.now() > 0.5
    for _ in range(80):
        usual.add(float(rng.random() < 0.1))
    assert not usual.passed(0.01)


def test_weights_make_up_for_uneven_draws() -> None:
    """Where high numbers are drawn four times as often, weights of a quarter give the mean of all."""
    usual, rng = Baseline(0.1, 10, 4000, at_start=0.5), random.Random(4)
    for _ in range(4000):
        high = rng.random() < 0.8
        usual.add(float(high), 0.25 if high else 1.0)
    assert usual.now() == pytest.approx(0.5, abs=0.04)
    assert not usual.passed(0.05)
