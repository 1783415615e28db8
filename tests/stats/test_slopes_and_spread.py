"""What should not move a score, and what a judge says when asked again: hand values, and silence without bias."""

from __future__ import annotations

import math
import random

import pytest

from referee.stats import flips, length_slope, position_bias, within_sd


def test_a_slope_by_hand() -> None:
    """Logs 0, 1, 2 and scores 0, 2, 4: 2 for each log, whose standard deviation is 1; on the line, so without noise."""
    found = length_slope([0, 2, 4], [1, math.e, math.e**2])
    assert (found.low, found.value, found.high) == pytest.approx((2.0, 2.0, 2.0))


def test_a_slope_within_groups_ignores_what_groups_differ_in() -> None:
    """Long prompts have low scores, but longer answers to one prompt the higher ones: 1 for each log within groups."""
    logs = [group + extra for group in range(5) for extra in (0.0, 1.0)]
    lengths = [math.exp(log) for log in logs]
    scores = [-3 * group + extra for group in range(5) for extra in (0.0, 1.0)]
    names = [group for group in range(5) for _ in range(2)]
    within = length_slope(scores, lengths, names)
    assert within.value == pytest.approx(1.0 * math.sqrt(0.5))
    assert within.groups == 5
    across = length_slope(scores, lengths)
    assert across.value is not None
    assert across.value < 0


def test_a_judge_without_a_taste_for_length_has_no_slope() -> None:
    """Noise alone: 0 is inside the interval. With 0.5 for each log it is not."""
    chance = random.Random(2)
    lengths = [math.exp(chance.gauss(5, 0.6)) for _ in range(200)]
    noise = [chance.gauss(0, 1) for _ in lengths]
    silent = length_slope(noise, lengths)
    loud = length_slope([y + 0.5 * math.log(size) for y, size in zip(noise, lengths, strict=True)], lengths)
    assert silent.low < 0 < silent.high  # type: ignore[operator]
    assert loud.low > 0  # type: ignore[operator]


def test_what_labels_explain_is_no_taste_for_length() -> None:
    """Good answers are longer, and the judge gives them 0.6 and the others 0.4: less than people, not by length. With
    more for each log on top it is."""
    chance = random.Random(4)
    labels = [float(place % 2) for place in range(200)]
    lengths = [math.exp(chance.gauss(5 + yes, 0.4)) for yes in labels]
    said = [0.4 + 0.2 * yes + chance.gauss(0, 0.05) for yes in labels]
    found = length_slope(said, lengths, labels=labels)
    assert found.low < 0 < found.high  # type: ignore[operator]
    more = [y + 0.1 * math.log(size) for y, size in zip(said, lengths, strict=True)]
    assert length_slope(more, lengths, labels=labels).low > 0.03  # type: ignore[operator]
    alike = length_slope(said, [1 + 9 * yes for yes in labels], labels=labels)
    assert (alike.value, alike.reason) == (None, "lengths do not differ")


def test_lengths_that_do_not_differ_have_no_slope() -> None:
    """Nor do those that differ between groups only."""
    assert length_slope([1, 2, 3], [5, 5, 5]).reason == "lengths do not differ"
    found = length_slope([1, 2, 3, 4, 5, 6], [5, 5, 6, 6, 7, 7], [0, 0, 1, 1, 2, 2])
    assert (found.value, found.reason) == (None, "lengths do not differ within enough groups")
    assert length_slope([], []).value is None


def test_position_by_hand() -> None:
    """Three of four decided comparisons go to the first; a tie is left out."""
    found = position_bias([True, True, None, True, False])
    assert (found.value, found.n) == (0.75, 4)
    assert position_bias([None]).reason == "no rows"


def test_a_judge_that_keeps_to_its_choice_has_no_position_bias() -> None:
    """Each pair in both orders: once first, once second. Half of them always first: the interval leaves 0.5."""
    pairs = [pair for pair in range(40) for _ in range(2)]
    steady = position_bias([True, False] * 40, pairs)
    assert steady.value == 0.5
    assert steady.low < 0.5 < steady.high  # type: ignore[operator]
    mixed = position_bias([True, False] * 30 + [True, True] * 10, pairs)
    assert mixed.value == 0.625
    assert mixed.low > 0.5  # type: ignore[operator]
    free = position_bias([True, False] * 30 + [True, True] * 10)
    assert free.low < mixed.low  # type: ignore[operator]


def test_spread_by_hand() -> None:
    """1, 3 and 2, 2: squares 2, two degrees of freedom. a, a, b differ in 2 of 3 pairs."""
    assert within_sd([[1, 3], [2, 2], [5], []]) == 1.0
    assert within_sd([[1]]) is None
    assert flips([["a", "a", "b"], ["a"]]).value == pytest.approx(2 / 3)
