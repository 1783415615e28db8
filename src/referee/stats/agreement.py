"""How well a judge agrees with people. Every function takes one value per row and side; None where undefined."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any

from referee.stats.clusters import mean


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


def weighted_kappa(human: Sequence[float], judged: Sequence[float]) -> float | None:
    """Kappa for scores on a scale, with quadratic weights: 1 - mean squared distance / that of two independent draws.

    Of the values themselves: give ordered choices as 0, 1, 2, ...
    """
    if not human:
        return None
    seen = mean((a - b) ** 2 for a, b in zip(human, judged, strict=True))
    expected = _chance_square(human, judged)
    return None if expected <= 1e-18 else 1.0 - seen / expected


def _chance_square(a: Sequence[float], b: Sequence[float]) -> float:
    """E(A - B)^2 of independent draws: both variances and the squared difference of the means."""
    mean_a, mean_b = mean(a), mean(b)
    return mean((x - mean_a) ** 2 for x in a) + mean((y - mean_b) ** 2 for y in b) + (mean_a - mean_b) ** 2
