"""Intervals cover the truth of simulated populations. Seeded; with 500 samples: `python -m bench.run coverage`."""

from __future__ import annotations

import pytest
from bench.coverage import Case, cases, covered

SEEDS = 60
CASES = list(cases())


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_an_interval_covers_the_truth(case: Case) -> None:
    """Of 60 samples at a promised 95 %, fewer than 52 would come up by chance once in 250 populations."""
    found = covered(case, 48 if case.grouped else 50, SEEDS, resamples=60)
    assert found["missing"] <= SEEDS / 10
    assert found["covered"] >= 52 / 60


@pytest.mark.parametrize("case", [case for case in CASES if case.name in ("groups: accuracy", "groups: kappa")])
def test_an_interval_that_is_not_told_of_groups_does_not(case: Case) -> None:
    """Answers to one prompt are not independent: taken for it, far fewer samples are covered."""
    assert covered(case, 200, SEEDS, 0, told=False)["covered"] < 0.88 < covered(case, 200, SEEDS, 0)["covered"]
