"""Critical values of the normal and of Student's distribution, for two-sided intervals."""

from __future__ import annotations

import math
from functools import cache
from statistics import NormalDist

NORMAL = NormalDist()
EXACT_DF = 200
"""Degrees of freedom up to which Student's value is found exactly; beyond, an expansion is right to 1e-6."""


def normal(level: float) -> float:
    """z with P(|Z| <= z) = level: 1.96 for 0.95."""
    return NORMAL.inv_cdf((1.0 + level) / 2.0)


@cache
def student(level: float, df: int) -> float:
    """t with P(|T| <= t) = level at that many degrees of freedom; infinite at none."""
    if df < 1:
        return math.inf
    z = normal(level)
    if df > EXACT_DF:
        return z + (z**3 + z) / (4 * df) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * df**2)
    low, high = 0.0, math.pi / 2
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if _inside(middle, df) < level else (low, middle)
    return math.tan(low) * math.sqrt(df)


def _inside(angle: float, df: int) -> float:
    """P(|T| <= sqrt(df) tan(angle)): for whole degrees of freedom a finite sum of powers of the cosine."""
    sine, cosine = math.sin(angle), math.cos(angle)
    odd = df % 2
    term, total = (cosine if odd else 1.0), 0.0
    for power in range(2 + odd, df + 1, 2):
        total += term
        term *= cosine * cosine * (power - 1) / power
    return (angle + sine * total) * 2 / math.pi if odd else sine * total
