"""Agreement of a judge with people: hand tables, bounds, symmetry, and intervals that do not collapse."""

from __future__ import annotations

import random
from typing import Any, Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from referee.stats import (
    confusion,
    kappa,
    kappa_interval,
    roc_auc_interval,
    weighted_kappa,
)

scores = st.lists(st.tuples(st.integers(1, 10), st.integers(1, 10)), max_size=40)


def rows(table: list[list[int]]) -> tuple[list[int], list[int]]:
    """Both sides of a confusion matrix, row by row."""
    cells = [(i, j) for i, counts in enumerate(table) for j, count in enumerate(counts) for _ in range(count)]
    return [i for i, _ in cells], [j for _, j in cells]


def shuffled(columns: tuple[list[Any], ...], seed: int = 1) -> list[list[Any]]:
    order = list(range(len(columns[0])))
    random.Random(seed).shuffle(order)
    return [[column[place] for place in order] for column in columns]


def test_kappa_of_a_hand_table() -> None:
    """20 yes-yes, 5 yes-no, 10 no-yes, 15 no-no: agreed 35/50 = 0.7, by chance 0.5 * 0.6 + 0.5 * 0.4 = 0.5, so 0.4."""
    human, judged = rows([[20, 5], [10, 15]])
    assert kappa(human, judged) == pytest.approx(0.4)


def test_weighted_kappa_of_a_hand_table() -> None:
    """[[2,1,0],[0,2,0],[0,1,2]]: mean squared distance 2/8. By chance, with margins 3,2,3 and 2,4,2:
    (12+24+4+4+24+12)/64 = 5/4, so 1 - 1/5."""
    assert weighted_kappa(*rows([[2, 1, 0], [0, 2, 0], [0, 1, 2]])) == pytest.approx(0.8)


def test_a_confusion_matrix_keeps_the_order_of_labels() -> None:
    """Rows are people's labels, columns the judge's; without an order they are sorted; strange labels are refused."""
    human, judged = ["good", "bad", "good"], ["bad", "bad", "good"]
    assert confusion(human, judged, ["good", "bad"]).counts == ((1, 1), (0, 1))
    assert confusion(human, judged).labels == ("bad", "good")
    assert confusion([10, 9], [9, 10]).labels == (9, 10)
    with pytest.raises(ValueError, match="good"):
        confusion(human, judged, ["bad"])


def test_what_is_not_defined_is_none() -> None:
    """No rows or one label only: no number is made up, and an interval says why there is none."""
    assert kappa([], []) is kappa([1, 1], [1, 1]) is weighted_kappa([0.5, 0.5], [0.5, 0.5]) is None
    assert kappa_interval([], []).reason == "no rows"
    assert kappa_interval([1, 1, 1], [1, 1, 1]).reason == "one label only"
    grouped = kappa_interval([0, 1], [0, 1], groups=["a", "a"])
    assert (grouped.value, grouped.low, grouped.reason) == (1.0, None, "all rows are of one group")
    alone = roc_auc_interval([True, False], [1.0, 0.0], groups=["a", "a"])
    assert (alone.value, alone.low, alone.high) == (1.0, 0.0, 1.0)
    assert roc_auc_interval([True, True], [1.0, 2.0]).reason == "rows of one class only"
    with pytest.raises(ValueError, match="shorter"):
        kappa([1, 2], [1])


@settings(deadline=None)
@given(scores)
def test_kappa_is_one_only_for_equal_lists(pairs: list[tuple[int, int]]) -> None:
    """At most 1, 1 exactly where both say the same, and the same both ways round."""
    a, b = [float(x) for x, _ in pairs], [float(y) for _, y in pairs]
    for measure in (kappa, weighted_kappa):
        found = measure(a, b)
        if found is not None:
            assert found <= 1.0 + 1e-9
            assert (a == b) == (found > 1.0 - 1e-9)
            assert found == pytest.approx(measure(b, a))


@settings(deadline=None)
@given(scores, st.sampled_from(["none", "quadratic"]))
def test_an_interval_of_kappa_holds_kappa(pairs: list[tuple[int, int]], weights: Literal["none", "quadratic"]) -> None:
    """Its value is that of the plain functions, within its bounds, whatever the order of the rows."""
    a, b = [x for x, _ in pairs], [y for _, y in pairs]
    found = kappa_interval(a, b, weights)
    if found.low is None or found.high is None or found.value is None:
        assert found.reason
        return
    assert found.value == pytest.approx(kappa(a, b) if weights == "none" else weighted_kappa(a, b))
    assert found.low <= found.value + 1e-9
    assert found.value <= found.high + 1e-9 <= 1.0 + 2e-9
    again = kappa_interval(*shuffled((a, b)), weights)
    assert (found.low, found.high) == pytest.approx((again.low, again.high))


def test_a_judge_never_wrong_on_few_rows_is_not_certain() -> None:
    """30 of 30 right, two labels: 1 - (Wilson's upper bound of no errors in 30, with t(29) = 2.045) / 0.5."""
    human = [0, 1] * 15
    found = kappa_interval(human, human)
    z2 = 2.0452**2
    assert found.value == found.high == 1.0
    assert found.low == pytest.approx(1 - (z2 / (30 + z2)) / 0.5, abs=1e-4)
    area = roc_auc_interval([bool(label) for label in human], human)
    assert area.value == area.high == 1.0
    assert area.low is not None
    assert 0.7 < area.low < 0.9


def test_the_same_rows_twice_under_one_name_tell_nothing_new() -> None:
    """Every row copied, the copies named as one group: the same interval as before. Not named: a narrower one."""
    chance = random.Random(3)
    human = [chance.random() < 0.5 for _ in range(60)]
    judged = [yes if chance.random() < 0.8 else not yes for yes in human]
    score = [yes + chance.gauss(0, 1) for yes in human]
    names = [*range(60), *range(60)]
    for measure, a, b in ((kappa_interval, human, judged), (roc_auc_interval, human, score)):
        once, named, free = measure(a, b), measure(a * 2, b * 2, groups=names), measure(a * 2, b * 2)
        assert (named.low, named.high) == pytest.approx((once.low, once.high), abs=5e-3)
        assert free.high - free.low < 0.8 * (once.high - once.low)
        assert named.groups == 60


def test_the_area_under_the_curve_is_counted_pair_by_pair() -> None:
    """0.9 and 0.5 against 0.5 and 0.1: three pairs won, one tied, of four."""
    assert roc_auc_interval([True, True, False, False], [0.9, 0.5, 0.5, 0.1]).value == 0.875


def test_kappa_is_never_below_minus_one() -> None:
    """Nor is its interval, where the judge says the opposite."""
    found = kappa_interval([0, 1, 0, 0, 1], [1, 0, 1, 0, 0])
    assert found.value == pytest.approx(-2 / 3)
    assert found.low == -1.0
