"""Sequential evidence that may be looked at after every sample: test supermartingales, by betting. And a number that is
compared with its baseline, the mean of the first ones, in this way.

To test "the mean of x, given all that came before, is at most `null`", for x in [low, high], stake a part of a capital
of 1 on every x: capital *= 1 + stake * (x - null). Where that is so, the capital does not grow on average, and the
probability that it ever reaches 1/a is at most a (Ville's inequality), however often one looks. A mixture of stakes
and of starting times has the same property. See `referee docs design/audit`.
"""

from __future__ import annotations

import math
from collections import deque

STAKES = (0.1, 0.3, 0.6, 0.9)
"""Parts of the largest stake that cannot lose everything; the capital is divided evenly among them."""
SELDOM = 4
"""Rounds from one start to the next: more starts leave less capital for each."""

SURE = 2.0
"""Standard errors of the start that are tolerated besides: with what is tolerated anyway, three or more."""


class Evidence:
    """Evidence that the mean of x in [low, high] is above `null`. x outside is clipped: the claim is about that."""

    __slots__ = ("_clipped", "_logs", "_rounds", "_stakes", "best", "looked_at", "null")

    def __init__(self, null: float, low: float, high: float) -> None:
        if not low < high or not low <= null < high:
            raise ValueError(f"{null} is no mean of numbers from {low} to {high} that could be passed")
        self.null = null
        self._clipped = (low, high)
        room = max(null - low, 0.05 * (high - low))  # a null at the least value would allow an unbounded stake
        self._stakes = tuple(part / room for part in STAKES)
        self._logs = [-math.inf] * len(STAKES)
        self._rounds = 0
        self.looked_at = 0
        self.best = -math.inf
        """The largest log of the capital so far."""
        self.restart()

    def restart(self) -> None:
        """A round begins. Every fourth is a start too, and 1/(k(k+1)) of the capital is kept for the k-th: a change
        late in a long run is then found as fast as an early one, but for that factor."""
        starts, rest = divmod(self._rounds, SELDOM)
        self._rounds += 1
        if rest:
            return
        part = -math.log((starts + 1) * (starts + 2))
        self._logs = [_added(one, part) for one in self._logs]

    def add(self, x: float) -> None:
        """One number."""
        low, high = self._clipped
        x = (low if x < low else high if x > high else x) - self.null
        self._logs = [one + math.log1p(stake * x) for one, stake in zip(self._logs, self._stakes, strict=True)]
        self.looked_at += 1
        self.best = max(self.best, self.log())

    def log(self) -> float:
        """The log of the capital now."""
        top = max(self._logs)
        return top + math.log(sum(math.exp(one - top) for one in self._logs) / len(self._logs))

    def passed(self, alpha: float) -> bool:
        """Whether the capital has ever reached 1/alpha."""
        return self.best >= -math.log(alpha)


def _added(one: float, other: float) -> float:
    """log(exp(one) + exp(other))."""
    high, low = max(one, other), min(one, other)
    return high + math.log1p(math.exp(low - high))


class Baseline:
    """The mean of numbers in [low, high] against that of the first ones: has it grown by more than `tolerated`?

    `first`: numbers that are the baseline, while nothing is tested. `window`: the latest, which say how it is now.
    """

    def __init__(
        self,
        tolerated: float,
        first: int,
        window: int,
        low: float = 0.0,
        high: float = 1.0,
        at_start: float | None = None,
    ) -> None:
        """`at_start`: where it is known, so that nothing has to be learned."""
        self._tolerated, self._first, self._range = tolerated, first, (low, high)
        self._start: list[tuple[float, float]] = []
        self._recent: deque[tuple[float, float]] = deque(maxlen=window)
        self._evidence: Evidence | None = None
        self._open = False
        self.at_start = 0.0
        if at_start is not None:
            self._begin(at_start)

    def _begin(self, at_start: float) -> None:
        low, high = self._range
        self.at_start = at_start
        null = max(low, min(at_start + self._tolerated + self._margin(), high - 0.05 * (high - low)))
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
        self._open = self.now() > self.at_start + self._tolerated * (0.5 if self._open else 1.0)
        return self._open

    @property
    def ready(self) -> bool:
        """Whether the baseline is known and something was compared with it."""
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
