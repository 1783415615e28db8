"""From verdicts on single criteria to one number. Plain arithmetic, one function for each rule in use.

`met` is how far a criterion's sentence is true of the response, from 0 to 1. A criterion is good or bad: whether its
being true speaks for the response or against it. Weights are never negative.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

PASSED = 0.5
"""A criterion has passed if more than this speaks for the response."""


class Credit(NamedTuple):
    """One criterion, judged."""

    weight: float
    good: bool
    met: float

    @property
    def merit(self) -> float:
        """How far it speaks for the response, from 0 to 1."""
        return self.met if self.good else 1.0 - self.met


def weighted(credits: Sequence[Credit]) -> float | None:
    """The weighted mean of merits: a fault that is absent counts like a merit that is there. From 0 to 1."""
    total = sum(credit.weight for credit in credits)
    return sum(credit.weight * credit.merit for credit in credits) / total if total else None


def healthbench(credits: Sequence[Credit]) -> float | None:
    """Points of the criteria met, faults negative, over the points that could be had. Below 0 if faults prevail, as
    HealthBench has it. Of nothing but faults: 1 less the share of them that is met."""
    points, best = _points(credits), sum(credit.weight for credit in credits if credit.good)
    if best:
        return points / best
    faults = sum(credit.weight for credit in credits)
    return 1.0 + points / faults if faults else None


def signed(credits: Sequence[Credit]) -> float | None:
    """Points of the criteria met, faults negative, over all weights. From -1 to 1."""
    total = sum(credit.weight for credit in credits)
    return _points(credits) / total if total else None


def every(credits: Sequence[Credit]) -> float | None:
    """1 if all criteria have passed, else 0; those without weight are left out."""
    counted = [credit.merit > PASSED for credit in credits if credit.weight]
    return float(all(counted)) if counted else None


def some(credits: Sequence[Credit]) -> float | None:
    """1 if one criterion has passed, else 0."""
    counted = [credit.merit > PASSED for credit in credits if credit.weight]
    return float(any(counted)) if counted else None


RULES: Mapping[str, Callable[[Sequence[Credit]], float | None]] = {
    "weighted": weighted,
    "healthbench": healthbench,
    "signed": signed,
    "all": every,
    "any": some,
}


def fold(credits: Sequence[Credit], combine: str, threshold: float, clip: bool) -> float | None:
    """The number, or None: nothing in it counts."""
    if combine == "threshold":
        mean = weighted(credits)
        return None if mean is None else float(mean >= threshold)
    folded = RULES[combine](credits)
    return folded if folded is None or not clip else min(1.0, max(0.0, folded))


def _points(credits: Sequence[Credit]) -> float:
    return sum(credit.weight * credit.met if credit.good else -credit.weight * credit.met for credit in credits)
