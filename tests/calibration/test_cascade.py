"""A cascade's threshold, replayed: who decides, what it costs, which threshold is as good as the strong judge."""

from __future__ import annotations

import random

import pytest

from referee.calibration.cascade import Curve, replay
from referee.config import Until
from referee.records import Reason, Settled, Unscored, Verdict


def settled(value: float, uncertainty: float | None, cost: float) -> Settled:
    return Settled(verdict=Verdict(score=value, value=value, uncertainty=uncertainty), cost=cost)


def population(count: int, hard: float, seed: int = 1) -> Curve:
    """A cheap judge that is right where a row is easy, knows where it is not, and guesses there; a strong one at ten
    times the price that is right."""
    chance = random.Random(seed)
    cheap, strong, human = [], [], []
    for _ in range(count):
        true, difficult = float(chance.random() < 0.5), chance.random() < hard
        guess = float(chance.random() < 0.5) if difficult else true
        cheap.append(settled(guess, 0.5 + 0.2 * chance.random() if difficult else 0.1 * chance.random(), 0.001))
        strong.append(settled(true, None, 0.01))
        human.append(true)
    return replay(("cheap", "strong"), (cheap, strong), human, list(range(count)), "binary", seed=0)


def test_the_chosen_threshold_asks_the_strong_judge_only_where_the_cheap_one_is_unsure() -> None:
    """A fifth of the rows, at a third of the price, and nothing is lost."""
    curve = population(300, hard=0.2)
    assert curve.chosen is not None
    assert curve.chosen.until is not None
    assert curve.chosen.agreement is not None
    assert curve.chosen.agreement > 0.95
    assert curve.chosen.cost_per_1000 == pytest.approx(3.0, abs=1.0)
    assert curve.line().startswith("until = { uncertainty = 0.")
    costs = [point.cost_per_1000 or 0.0 for point in curve.points]
    assert costs == sorted(costs)


def test_the_ends_of_the_curve_are_the_two_judges_alone() -> None:
    """At the largest uncertainty the cheap one decides everything; without a threshold the strong one does, and the
    cheap one is still paid for."""
    curve = population(100, hard=0.5)
    cheapest, dearest = curve.points[0], curve.points[-1]
    assert cheapest.shares == (1.0, 0.0)
    assert cheapest.cost_per_1000 == pytest.approx(1.0)
    assert (dearest.until, dearest.shares, dearest.agreement) == (None, (0.0, 1.0), 1.0)
    assert dearest.cost_per_1000 == pytest.approx(11.0)


def test_a_cheap_judge_that_does_not_know_when_it_is_wrong_saves_nothing() -> None:
    """Then no threshold is as good, and no line is given."""
    chance = random.Random(3)
    human = [float(chance.random() < 0.5) for _ in range(200)]
    cheap = [settled(float(chance.random() < 0.5), chance.random(), 0.001) for _ in human]
    strong = [settled(true, None, 0.01) for true in human]
    curve = replay(("cheap", "strong"), (cheap, strong), human, list(range(200)), "binary", seed=0)
    assert curve.chosen is not None
    assert curve.chosen.shares[1] > 0.9


def test_what_too_few_rows_show_is_not_called_as_good() -> None:
    """Without an interval of the difference only the last member itself is as good as the last member."""
    human = [1.0, 0.0, 1.0]
    cheap = [settled(value, 0.1, 0.001) for value in (0.0, 0.0, 1.0)]
    strong = [settled(true, None, 0.01) for true in human]
    curve = replay(("cheap", "strong"), (cheap, strong), human, ["p", "q", "r"], "binary", seed=0)
    assert curve.chosen is not None
    assert curve.chosen.until is None


def test_what_has_no_verdict_goes_on_and_what_has_no_label_is_left_out() -> None:
    """A row without a verdict of the last member says nothing of a threshold."""
    missing = Settled(verdict=Unscored(reason=Reason.REFUSED), cost=0.001)
    cheap = [missing, settled(1.0, 0.1, 0.001), settled(1.0, 0.1, 0.001), settled(1.0, None, 0.001)]
    strong = [settled(1.0, None, 0.01), settled(0.0, None, 0.01), missing, settled(0.0, None, 0.01)]
    curve = replay(("a", "b"), (cheap, strong), [1.0, 0.0, 1.0, 0.0], ["p", "q", "r", "s"], "binary", seed=0)
    assert curve.rows == 3
    decided = next(point for point in curve.points if point.until is not None)
    assert decided.shares == (1 / 3, 2 / 3)
    assert replay(("a", "b"), (cheap, strong), [None] * 4, ["p"] * 4, "binary", seed=0).chosen is None


def test_without_prices_the_threshold_that_asks_the_strong_judge_least_is_chosen() -> None:
    """Costs of nothing are no reason to ask it always."""
    human = [float(n % 2) for n in range(40)]
    cheap = [settled(true, 0.02 * n, 0.0) for n, true in enumerate(human)]
    curve = replay(("a", "b"), (cheap, cheap), human, list(range(40)), "binary", seed=0, priced=False)
    assert curve.chosen is not None
    assert curve.chosen.shares == (1.0, 0.0)
    assert {point.cost_per_1000 for point in curve.points} == {None}
    assert curve.line() == "until = { uncertainty = 0.78 }"


def test_members_that_do_not_say_how_sure_they_are_are_replayed_by_a_band() -> None:
    """About the middle of the band in the configuration: a value near it goes on, one that is clear does not."""
    human = [float(n % 2) for n in range(80)]
    # Wrong at 0.5 and near it, right at the ends.
    cheap = [settled(true if n < 60 else 0.6 - 0.2 * true, None, 0.001) for n, true in enumerate(human)]
    strong = [settled(true, None, 0.01) for true in human]
    curve = replay(("a", "b"), (cheap, strong), human, list(range(80)), "binary", 0, Until(outside=(0.3, 0.7)))
    assert curve.chosen is not None
    assert (curve.chosen.shares, curve.chosen.agreement) == ((0.75, 0.25), 1.0)
    assert curve.line() == "until = { outside = [0.001, 0.999] }"


def test_a_band_beside_an_uncertainty_is_kept() -> None:
    """Only the uncertainty is varied, and both must hold, as in the run."""
    human = [float(n % 2) for n in range(40)]
    cheap = [settled(0.5 if n < 10 else true, 0.1, 0.001) for n, true in enumerate(human)]
    strong = [settled(true, None, 0.01) for true in human]
    until = Until(uncertainty=0.4, outside=(0.3, 0.7))
    curve = replay(("a", "b"), (cheap, strong), human, list(range(40)), "binary", 0, until)
    assert curve.chosen is not None
    assert curve.chosen.shares == (0.75, 0.25)
    assert curve.line() == "until = { uncertainty = 0.1, outside = [0.3, 0.7] }"
