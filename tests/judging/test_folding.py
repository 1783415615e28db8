"""Every rule that folds criteria into a number, against tables computed by hand."""

from __future__ import annotations

import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from referee.judging.folding import RULES, Credit, fold
from referee.rollouts import read_rubric

HEALTHBENCH = [
    Credit(5, True, 1),
    Credit(10, True, 0),
    Credit(3, True, 1),
    Credit(8, False, 1),
    Credit(2, False, 0),
]
"""Points 5, 10, 3, -8, -2; met: the first, the third and the fourth."""


@pytest.mark.parametrize(
    ("combine", "expected"),
    [
        ("healthbench", (5 + 3 - 8) / (5 + 10 + 3)),
        ("signed", (5 + 3 - 8) / (5 + 10 + 3 + 8 + 2)),
        ("weighted", (5 + 3 + 2) / (5 + 10 + 3 + 8 + 2)),
        ("all", 0.0),
        ("any", 1.0),
    ],
)
def test_one_rubric_by_every_rule(combine: str, expected: float) -> None:
    """The arithmetic of HealthBench, of open-instruct, of RaR, and all or any."""
    assert fold(HEALTHBENCH, combine, 0.5, clip=False) == pytest.approx(expected, abs=1e-12)


def test_healthbench_may_be_negative_and_is_clipped_only_if_asked() -> None:
    """Met faults of more points than met merits: below zero, as published; the mean over examples is what is clipped
    there."""
    credits = [Credit(5, True, 0), Credit(5, True, 1), Credit(8, False, 1)]
    assert fold(credits, "healthbench", 0.5, clip=False) == pytest.approx(-0.3)
    assert fold(credits, "healthbench", 0.5, clip=True) == 0.0


def test_the_example_that_healthbench_publishes() -> None:
    """The one of simple-evals' own test: points 7, 5, 10 and -6, all met but the second."""
    read = read_rubric([{"criterion": "test", "points": points} for points in (7, 5, 10, -6)])
    met = (1.0, 0.0, 1.0, 1.0)
    credits = [Credit(each.weight, each.true_is == "good", value) for each, value in zip(read, met, strict=True)]
    assert fold(credits, "healthbench", 0.5, clip=False) == (7 + 0 + 10 - 6) / (7 + 5 + 10) == 0.5


@pytest.mark.parametrize("combine", ["weighted", "healthbench", "signed"])
def test_the_bias_of_sums_is_that_of_their_criteria(combine: str) -> None:
    """A judge that is wrong at known rates: over all that it may say, the mean of the score is the score of the
    means."""
    wrongly_yes, wrongly_no = 0.2, 0.1
    chances = [1 - wrongly_no if credit.met else wrongly_yes for credit in HEALTHBENCH]
    mean = 0.0
    for said in itertools.product((0.0, 1.0), repeat=len(HEALTHBENCH)):
        likely = math.prod(chance if met else 1 - chance for chance, met in zip(chances, said, strict=True))
        credits = [credit._replace(met=met) for credit, met in zip(HEALTHBENCH, said, strict=True)]
        mean += likely * (fold(credits, combine, 0.5, False) or 0.0)
    expected = [credit._replace(met=chance) for credit, chance in zip(HEALTHBENCH, chances, strict=True)]
    assert mean == pytest.approx(fold(expected, combine, 0.5, False))


def test_a_rubric_of_nothing_but_faults() -> None:
    """Full marks for none of them, none for all of them."""
    assert fold([Credit(3, False, 0), Credit(1, False, 0)], "healthbench", 0.5, False) == 1.0
    assert fold([Credit(3, False, 1), Credit(1, False, 0)], "healthbench", 0.5, False) == 0.25
    assert fold([Credit(3, False, 1), Credit(1, False, 1)], "healthbench", 0.5, False) == 0.0


def test_threshold_and_passing() -> None:
    """The weighted mean reaches the threshold or not; a half is not passed."""
    assert fold([Credit(3, True, 1), Credit(1, True, 0)], "threshold", 0.75, False) == 1.0
    assert fold([Credit(3, True, 1), Credit(1, True, 0)], "threshold", 0.76, False) == 0.0
    assert fold([Credit(1, True, 0.5)], "all", 0.5, False) == 0.0
    assert fold([Credit(1, True, 0.5), Credit(1, False, 0.2)], "any", 0.5, False) == 1.0


@pytest.mark.parametrize("combine", [*RULES, "threshold"])
def test_nothing_that_counts_is_no_number(combine: str) -> None:
    """Without criteria, or with weights of 0 only, there is nothing to say."""
    assert fold([], combine, 0.5, False) is None
    assert fold([Credit(0, True, 1), Credit(0, False, 1)], combine, 0.5, False) is None


credits = st.lists(
    st.builds(Credit, st.integers(0, 10).map(float), st.booleans(), st.integers(0, 4).map(lambda n: n / 4)), max_size=9
)


@given(credits, st.randoms(use_true_random=False), st.sampled_from([*RULES, "threshold"]))
def test_order_and_repetition_do_not_matter(given_credits: list[Credit], random: object, combine: str) -> None:
    """Any order gives the same number, and so does the whole rubric twice."""
    first = fold(given_credits, combine, 0.5, False)
    mixed = list(given_credits)
    random.shuffle(mixed)  # type: ignore[attr-defined]
    for other in (fold(mixed, combine, 0.5, False), fold([*mixed, *mixed], combine, 0.5, False)):
        assert (first is None) == (other is None)
        if first is not None and other is not None:
            assert math.isclose(first, other, abs_tol=1e-9)


@given(credits)
def test_ranges(given_credits: list[Credit]) -> None:
    """weighted is in [0, 1], signed in [-1, 1], healthbench at most 1; clipping keeps to [0, 1]."""
    for combine, low in (("weighted", 0.0), ("signed", -1.0), ("healthbench", -math.inf), ("all", 0.0), ("any", 0.0)):
        folded = fold(given_credits, combine, 0.5, False)
        assert folded is None or low - 1e-9 <= folded <= 1 + 1e-9
        clipped = fold(given_credits, combine, 0.5, True)
        assert clipped is None or 0 <= clipped <= 1
