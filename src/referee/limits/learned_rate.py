"""So many requests per minute, learned from a provider that says so only by refusing. Pure: `now` is an argument.

A window that ran out refuses everything, also a request that is alone. When it opens again, what was served before is
what it holds, and from then on no more than that is sent in the same time. Now and then, when all of it is used, one
request more looks whether the provider takes it.
"""

from __future__ import annotations

import math
from collections import deque

LONGEST = 60.0
"""Seconds a window lasts at most: providers count per minute, or in shorter pieces."""
GRAINS = 120
"""Parts of a window in which requests are counted together."""
HOLD = 5
"""Windows without a look after one that was refused: looking costs a refusal."""
FIRST_STEP = 0.05
"""What a look that was served adds, doubling with the next: a wrong guess is soon left behind."""


class LearnedRate:
    """Told of every request sent, served and refused. Ask `wait` before each."""

    def __init__(self) -> None:
        self.budget = math.inf
        """Requests in one window; infinite until a window has closed and opened."""
        self.seconds = LONGEST
        """How long it lasts."""
        self._sent: deque[list[float]] = deque()
        self._count = 0
        self._since = math.inf
        self._look = math.inf
        self._look_at = -math.inf
        self._step = FIRST_STEP

    def wait(self, now: float) -> float:
        """Seconds until one more may be sent; 0: now."""
        if self.budget == math.inf:
            return 0.0
        self._forget(now)
        if self._count < self.budget or self._may_look(now):
            return 0.0
        return self._sent[0][0] - now

    def opens(self) -> float:
        """When there is room again for what was sent first; long ago if that is not known."""
        return self._sent[0][0] if self._sent and self.budget < math.inf else -math.inf

    def sent(self, now: float) -> None:
        """One more goes out."""
        self._forget(now)
        if self._since == math.inf:
            self._since = now
        if self._count >= self.budget:
            self._look = now
        self._count += 1
        if self._sent and now + self.seconds < self._sent[-1][0]:
            self._sent[-1][1] += 1
        else:
            self._sent.append([now + self.seconds * (1 + 1 / GRAINS), 1])

    def served(self, sent: float) -> None:
        """An answer to a request of that time. If it was the look, there is room for more."""
        if self._look < math.inf and sent >= self._look:
            self._look = math.inf
            self.budget = math.ceil(self.budget * (1 + self._step))
            self._step *= 2

    def refused(self, now: float) -> None:
        """One was not taken, and does not count."""
        if self._sent:
            self._count -= 1
            self._sent[-1][1] -= 1
        if self._look < math.inf:
            self._look = math.inf
            self._look_at = now + HOLD * self.seconds
            self._step = FIRST_STEP

    def opened(self, now: float, closed: float) -> None:
        """A window that had run out at `closed` is served again: what went before is what it holds."""
        self._forget(closed)
        if self._count > 0:
            known = self.seconds if self.budget < math.inf else 0.0
            self.seconds = min(LONGEST, max(known, now - self._since))
            self.budget = float(self._count)
            self._look_at, self._step = now, FIRST_STEP
        self._sent.clear()
        self._count = 0
        self._since = now

    def _may_look(self, now: float) -> bool:
        """Best at the end of a burst, when there is nothing to send for a while: before, a look says little."""
        due = self._look_at
        if self._sent[0][0] - now < self.seconds / 4:
            due += HOLD * self.seconds
        lost = now - self._look > self.seconds
        return now >= due and (self._look == math.inf or lost)

    def _forget(self, now: float) -> None:
        """Drop what was sent more than a window ago."""
        while self._sent and self._sent[0][0] <= now:
            self._count -= int(self._sent.popleft()[1])
            self._since = self._sent[0][0] - self.seconds if self._sent else math.inf

    def __repr__(self) -> str:
        return f"LearnedRate({self._count} of {self.budget:g} in {self.seconds:g} s)"
