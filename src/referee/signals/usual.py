"""A number that is compared with what was usual at the start of the run. Used by most signals."""

from __future__ import annotations

import math
from collections import deque

from referee.signals.evidence import Evidence

SURE = 2.0
"""Standard errors of the start that are tolerated besides: with what is tolerated anyway, three or more."""


class Usual:
    """The mean of numbers in [low, high] against that of the first ones: has it grown by more than `tolerated`?

    `first`: numbers that say what is usual, while nothing is tested. `window`: the latest, which say how it is now.
    """

    def __init__(
        self, tolerated: float, first: int, window: int, low: float = 0.0, high: float = 1.0, usual: float | None = None
    ) -> None:
        """`usual`: where it is known, so that nothing has to be learned."""
        self._tolerated, self._first, self._range = tolerated, first, (low, high)
        self._start: list[tuple[float, float]] = []
        self._recent: deque[tuple[float, float]] = deque(maxlen=window)
        self._evidence: Evidence | None = None
        self._open = False
        self.usual = 0.0
        if usual is not None:
            self._begin(usual)

    def _begin(self, usual: float) -> None:
        low, high = self._range
        self.usual = usual
        null = max(low, min(usual + self._tolerated + self._margin(), high - 0.05 * (high - low)))
        self._evidence = Evidence(null, low, high)

    def _margin(self) -> float:
        """What the start may be off by: without it, a long run would find the start's own error."""
        total = math.fsum(weight for _, weight in self._start)
        if not total:
            return 0.0
        mean = _mean(self._start)
        return SURE * math.sqrt(math.fsum((weight * (x - mean)) ** 2 for x, weight in self._start)) / total

    def add(self, x: float, weight: float = 1.0) -> None:
        """One number; `weight` (0 to 1) makes up for some being drawn more often than others."""
        self._recent.append((x, weight))
        if self._evidence is not None:
            null = self._evidence.null
            self._evidence.add(null + weight * (x - null))
            return
        self._start.append((x, weight))
        if len(self._start) >= self._first:
            self._begin(_mean(self._start))
            self._start.clear()

    def restart(self) -> None:
        """A new round begins."""
        if self._evidence is not None:
            self._evidence.restart()

    def passed(self, alpha: float) -> bool:
        """Whether it has grown; and, once it has, until half of what is tolerated is left of the growth."""
        evidence = self._evidence
        if evidence is None or not evidence.passed(alpha):
            return False
        self._open = self.now() > self.usual + self._tolerated * (0.5 if self._open else 1.0)
        return self._open

    @property
    def ready(self) -> bool:
        """Whether what is usual is known and something was compared with it."""
        return self._evidence is not None and self._evidence.looked_at > 0

    @property
    def count(self) -> int:
        """How many the mean of the latest is of."""
        return len(self._recent)

    def now(self) -> float:
        """The mean of the latest."""
        return _mean(self._recent)

    def log(self) -> float:
        """The log of the evidence at its height."""
        return max(0.0, self._evidence.best) if self._evidence is not None else 0.0


def _mean(pairs: deque[tuple[float, float]] | list[tuple[float, float]]) -> float:
    weight = math.fsum(w for _, w in pairs)
    return math.fsum(x * w for x, w in pairs) / weight if weight else 0.0
