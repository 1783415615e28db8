"""How well a judge agrees with people. Every function takes one value per row and side; None where undefined."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal

from referee.stats.clusters import mean


def accuracy(human: Sequence[Hashable], judged: Sequence[Hashable]) -> float | None:
    """Share of rows with the same label."""
    return sum(a == b for a, b in zip(human, judged, strict=True)) / len(human) if human else None


@dataclass(frozen=True, slots=True)
class Confusion:
    """Counts by label: `counts[i][j]` rows that people call `labels[i]` and the judge `labels[j]`."""

    labels: tuple[Any, ...]
    counts: tuple[tuple[int, ...], ...]


def confusion(
    human: Sequence[Hashable], judged: Sequence[Hashable], labels: Sequence[Hashable] | None = None
) -> Confusion:
    """The confusion matrix, its labels in the order given, else sorted; a label that is not among them is an error."""
    cells = Counter(zip(human, judged, strict=True))
    seen = {label for cell in cells for label in cell}
    if labels is None:
        numbers = all(isinstance(label, int | float) for label in seen)
        order = sorted(seen) if numbers else sorted(seen, key=str)  # type: ignore[type-var]
    else:
        order = list(labels)
        if seen - set(order):
            raise ValueError(f"labels outside the given ones: {sorted(map(str, seen - set(order)))}")
    return Confusion(tuple(order), tuple(tuple(cells[row, column] for column in order) for row in order))


def kappa(human: Sequence[Hashable], judged: Sequence[Hashable]) -> float | None:
    """Cohen's kappa, (agreed - by chance) / (1 - by chance). None where chance alone agrees fully (one label only)."""
    if not human:
        return None
    count = len(human)
    agreed = sum(a == b for a, b in zip(human, judged, strict=True))
    rows, columns = Counter(human), Counter(judged)
    by_chance = sum(times * columns[label] for label, times in rows.items())
    return None if by_chance == count**2 else (agreed * count - by_chance) / (count**2 - by_chance)


def weighted_kappa(
    human: Sequence[float], judged: Sequence[float], weights: Literal["linear", "quadratic"] = "quadratic"
) -> float | None:
    """Kappa for scores on a scale: 1 - mean distance / mean distance of two independent draws.

    The distance is |a - b| or its square, of the values themselves: give ordered choices as 0, 1, 2, ...
    """
    if not human:
        return None
    power = 1 if weights == "linear" else 2
    seen = mean(abs(a - b) ** power for a, b in zip(human, judged, strict=True))
    expected = _chance_distance(human, judged) if weights == "linear" else _chance_square(human, judged)
    return None if expected <= 1e-18 else 1.0 - seen / expected


def _chance_distance(a: Sequence[float], b: Sequence[float]) -> float:
    """E|A - B| of independent draws: the integral of F(1 - G) + G(1 - F), without going through all pairs."""
    counts_a, counts_b = Counter(a), Counter(b)
    below_a = below_b = total = 0.0
    for value, following in pairwise(sorted(counts_a.keys() | counts_b.keys())):
        below_a += counts_a[value] / len(a)
        below_b += counts_b[value] / len(b)
        total += (following - value) * (below_a * (1 - below_b) + below_b * (1 - below_a))
    return total


def _chance_square(a: Sequence[float], b: Sequence[float]) -> float:
    """E(A - B)^2 of independent draws: both variances and the squared difference of the means."""
    mean_a, mean_b = mean(a), mean(b)
    return mean((x - mean_a) ** 2 for x in a) + mean((y - mean_b) ** 2 for y in b) + (mean_a - mean_b) ** 2


def alpha(units: Sequence[Sequence[float]], scale: Literal["nominal", "interval"] = "interval") -> float | None:
    """Krippendorff's alpha of any number of raters, 1 - observed / expected disagreement.

    A unit is the values its raters gave, in any order. Gaps are allowed: a unit with fewer than two is left out.
    """
    pairable = [unit for unit in units if len(unit) > 1]
    values = [value for unit in pairable for value in unit]
    if not values:
        return None
    seen = math.fsum(_disagreement(unit, scale) / (len(unit) - 1) for unit in pairable)
    expected = _disagreement(values, scale) / (len(values) - 1)
    return None if expected <= 1e-18 else 1.0 - seen / expected


def _disagreement(values: Sequence[float], scale: str) -> float:
    """Distances over all ordered pairs: of unequal values, or their squared differences."""
    if scale == "nominal":
        return float(len(values) ** 2 - sum(n * n for n in Counter(values).values()))
    middle = mean(values)
    return 2 * len(values) * math.fsum((value - middle) ** 2 for value in values)


def bias(human: Sequence[float], judged: Sequence[float]) -> float | None:
    """Mean of judge less human: positive where the judge is too generous."""
    return mean(said - true for true, said in zip(human, judged, strict=True)) if human else None


def preference_accuracy(preferred: Sequence[float], rejected: Sequence[float]) -> float | None:
    """Share of pairs in which the preferred response has the higher score; equal scores count half."""
    if not preferred:
        return None
    return mean((a > b) + (a == b) / 2 for a, b in zip(preferred, rejected, strict=True))
