"""Sequential evidence that may be looked at after every sample: test supermartingales, by betting.

To test "the mean of x, given all that came before, is at most `null`", for x in [low, high], stake a part of a capital
of 1 on every x: capital *= 1 + stake * (x - null). Where that is so, the capital does not grow on average, and the
probability that it ever reaches 1/a is at most a (Ville's inequality), however often one looks. A mixture of stakes
and of starting times has the same property. See `referee docs design/audit`.
"""

from __future__ import annotations

import math

STAKES = (0.1, 0.3, 0.6, 0.9)
"""Parts of the largest stake that cannot lose everything; the capital is divided evenly among them."""
SELDOM = 4
"""Rounds from one start to the next: more starts leave less capital for each."""


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
