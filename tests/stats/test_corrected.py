"""Corrected means: by hand, where the judge is useless, and where there is no answer."""

from __future__ import annotations

import math
import random

import pytest

from referee.stats import mean_interval, prediction_powered, rogan_gladen, tuned_weight


def test_a_prediction_powered_mean_by_hand() -> None:
    """Judge 15/2 on the others, human less judge -5/2: 5. Both variances 25, of 4 rows: t(3) * sqrt(25/4 + 25/4)."""
    found = prediction_powered([10, 0, 10, 0], [10, 10, 10, 0], [10, 10, 0, 10], weight=1.0)
    half = 3.18245 * math.sqrt(25 / 2)
    assert (found.low, found.value, found.high) == pytest.approx((5 - half, 5, 5 + half), abs=1e-4)
    assert (found.n, found.groups) == (8, 4)


def test_the_tuned_weight_by_hand() -> None:
    """cov = (1/8 - 1/8 + 1/8 + 3/8) / 3 = 1/6; var(judge) = 3/16 on all eight rows; n = N: (1/6) / (2 * 3/16) = 4/9."""
    assert tuned_weight([1, 0, 1, 0], [1, 1, 1, 0], [1, 1, 0, 1]) == pytest.approx(4 / 9)


def test_a_useless_judge_costs_nothing() -> None:
    """A constant judge, or one that says the opposite, has weight 0: the mean of the labels alone remains."""
    human = [0.0, 1.0, 1.0, 0.5, 0.2]
    for judged, others in (([0.5] * 5, [0.5] * 9), ([1 - y for y in human], [0.1, 0.9] * 5), (human, [])):
        found = prediction_powered(human, judged, others)
        assert found.value == pytest.approx(mean_interval(human).value)
        assert tuned_weight(human, judged, others) == 0.0


def test_a_perfect_judge_leaves_the_noise_of_the_others() -> None:
    """Human less judge is 0.1 on every row: the mean of the others and 0.1, with their noise alone."""
    chance = random.Random(1)
    human = [chance.random() for _ in range(30)]
    others = [chance.random() for _ in range(500)]
    found = prediction_powered(human, [y - 0.1 for y in human], others, weight=1.0)
    alone = mean_interval(others)
    assert found.value == pytest.approx(alone.value + 0.1)  # type: ignore[operator]
    assert found.high - found.value == pytest.approx((alone.high - alone.value) * 2.0452 / 1.9647, rel=1e-3)  # type: ignore[operator]


def test_groups_that_both_sides_share_are_added_up() -> None:
    """Rows copied under the name of their group change nothing; errors that cancel in a group narrow the interval."""
    human, judged, others = [9.0, 0.0, 9.0, 0.0], [9.0, 9.0, 9.0, 0.0], [9.0, 9.0, 0.0, 9.0]
    once = prediction_powered(human, judged, others, groups=[*"abcd"], unlabelled_groups=[*"efgh"])
    assert once == prediction_powered(human, judged, others)
    names, more = [*"abcdabcd"], [*"efghefgh"]
    twice = prediction_powered(human * 2, judged * 2, others * 2, groups=names, unlabelled_groups=more, weight=1.0)
    plain = prediction_powered(human, judged, others, weight=1.0)
    assert (twice.low, twice.high) == pytest.approx((plain.low, plain.high))
    # Of group b the judge says 9 on the other row, above its mean, and 9 too much on the labelled one.
    wide, shared = (
        prediction_powered(human, judged, others, groups=[*"abcd"], unlabelled_groups=[*names], weight=1.0)
        for names in ("efgh", "abcd")
    )
    assert shared.high - shared.low < wide.high - wide.low  # type: ignore[operator]


def test_too_little_for_a_corrected_mean_is_said() -> None:
    """No labels, no other rows for a fixed weight, fewer than three labelled groups."""
    assert prediction_powered([], [], [1.0]).reason == "no labelled rows"
    assert prediction_powered([1.0], [1.0], [], weight=1.0).reason == "no unlabelled rows"
    few = prediction_powered([1.0, 0.0, 1.0], [1.0, 0.0, 1.0], [1.0, 0.0], groups=["a", "a", "b"])
    assert few.value is not None
    assert (few.low, few.reason) == (None, "too few independent groups of rows")


@pytest.mark.parametrize(("share", "count"), [(0.95, 20), (0.98, 20), (0.98, 40)])
def test_labels_that_are_nearly_all_the_same_are_not_certain(share: float, count: int) -> None:
    """Twenty times yes may hide a no: in at least 90 % of draws the interval holds the true share, within 0 and 1."""
    chance, held = random.Random(5), 0
    for _ in range(200):
        rows = [(yes, chance.random() < (0.95 if yes else 0.3)) for yes in _draws(chance, share, count + 100)]
        human = [float(yes) for yes, _ in rows[:count]]
        judged = [float(says) for _, says in rows]
        found = prediction_powered(human, judged[:count], judged[count:])
        assert found.low is not None
        assert found.high is not None
        assert 0.0 <= found.low < found.high <= 1.0
        held += found.low <= share <= found.high
    assert held >= 180


def test_one_label_outside_of_shares_has_no_interval() -> None:
    """How far another one could be is not known."""
    found = prediction_powered([7.0] * 9, [6.0, 7.0, 8.0] * 3, [5.0, 6.0] * 9)
    assert (found.value, found.low, found.reason) == (7.0, None, "one label only")


def _draws(chance: random.Random, share: float, count: int) -> list[bool]:
    return [chance.random() < share for _ in range(count)]


def yes_no(right_yes: int, right_no: int, of: int) -> tuple[list[bool], list[bool]]:
    """Labels, `of` each of yes and no, and a judge that is right that often."""
    human = [True] * of + [False] * of
    judged = [place < right_yes for place in range(of)] + [place >= right_no for place in range(of)]
    return human, judged


def test_rogan_gladen_by_hand() -> None:
    """Sensitivity 0.9, specificity 0.8, judge says yes to half: (0.5 + 0.8 - 1) / 0.7. The interval after Lang and
    Reiczigel: 10/12 and 9/12, p' = 0.5, centre 0.25/0.58333 = 0.42857, and so on to 0.027 and 0.8."""
    found = rogan_gladen(*yes_no(9, 8, 10), [True, False] * 50)
    assert found.value == pytest.approx(3 / 7)
    a, b, z = 10 / 12, 9 / 12, 1.959964
    centre = (0.5 + b - 1) / (a + b - 1)
    shift = 2 * z**2 * (centre * a * (1 - a) / 12 - (1 - centre) * b * (1 - b) / 12)
    error = math.sqrt(0.25 / (100 + z**2) + centre**2 * a * (1 - a) / 12 + (1 - centre) ** 2 * b * (1 - b) / 12)
    expected = [centre + shift - z * error / (a + b - 1), centre + shift + z * error / (a + b - 1)]
    assert [found.low, found.high] == pytest.approx(expected)


def test_a_share_beyond_what_errors_explain_is_held_to_its_bounds() -> None:
    """A judge that never says yes, less often than its own errors would: none, not less than none."""
    found = rogan_gladen(*yes_no(90, 80, 100), [False] * 200)
    assert found.value == found.low == 0.0
    assert found.high is not None
    assert found.high < 0.1


def test_a_judge_that_tells_nothing_has_no_corrected_share() -> None:
    """Sensitivity + specificity at or below 1: nothing to divide by. Above it by noise alone: a value, no interval."""
    none = rogan_gladen(*yes_no(4, 5, 10), [True] * 10)
    assert none.value is none.low is None
    assert none.reason == "sensitivity 0.40 + specificity 0.50 is not above 1: the judge tells nothing"
    noise = rogan_gladen(*yes_no(6, 6, 10), [True, False] * 10)
    assert noise.value == pytest.approx(0.5)
    assert noise.low is None
    assert "no more than noise" in noise.reason
    assert rogan_gladen([False], [False], [True]).reason == "no labelled row that is yes"
    assert rogan_gladen([True], [True], [True]).reason == "no labelled row that is no"
    assert rogan_gladen([True, False], [True, False], []).reason == "no unlabelled row"


def test_grouped_rows_make_a_corrected_share_less_certain() -> None:
    """Labelled rows in ten groups in which the judge is right or wrong together."""
    human, judged = yes_no(40, 40, 50)
    names = [place // 10 for place in range(100)]
    free = rogan_gladen(human, judged, [True, False] * 100)
    grouped = rogan_gladen(human, judged, [True, False] * 100, names)
    assert free.low is not None
    assert grouped.low is None or grouped.low < free.low
