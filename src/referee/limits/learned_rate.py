"""A request quota per window, learned from a provider that shows it only by refusing. `now` is an argument.

An exhausted window refuses everything, even a request alone in flight. When it reopens, the number served before is
the quota, and no more is sent in any window of that length. When the quota is used up, one more request probes now and
then whether the provider takes it.
"""

from __future__ import annotations

import math
from collections import deque


class LearnedRate:
    """Fed with every request sent, served and refused. Call `wait` before each send."""

    MAX_WINDOW_S = 60.0
    """Providers count per minute or in shorter windows."""
    RESOLUTION = 120
    """Parts of a window in which sends are counted together."""
    PROBE_HOLD = 5
    """Windows without a probe after a refused one: each costs a refusal."""
    FIRST_INCREASE = 0.05
    """What an accepted probe adds to the quota, doubling with the next: a guess too low is soon corrected."""

    def __init__(self) -> None:
        self.quota = math.inf
        """Requests per window; infinite until a window has closed and reopened."""
        self.window_s = self.MAX_WINDOW_S
        self._sent: deque[list[float]] = deque()
        """[when it leaves the window, requests], oldest first."""
        self._count = 0
        self._window_start = math.inf
        self._probe_sent = math.inf
        self._next_probe = -math.inf
        self._increase = self.FIRST_INCREASE

    def wait(self, now: float) -> float:
        """Seconds until one more may be sent; 0: now."""
        if self.quota == math.inf:
            return 0.0
        self._expire(now)
        if self._count < self.quota or self._may_probe(now):
            return 0.0
        return self._sent[0][0] - now

    def reopens_at(self) -> float:
        """When the oldest request leaves the window; -inf if no quota is known."""
        return self._sent[0][0] if self._sent and self.quota < math.inf else -math.inf

    def on_send(self, now: float) -> None:
        """One more goes out."""
        self._expire(now)
        if self._window_start == math.inf:
            self._window_start = now
        if self._count >= self.quota:
            self._probe_sent = now
        self._count += 1
        if self._sent and now + self.window_s < self._sent[-1][0]:
            self._sent[-1][1] += 1
        else:
            self._sent.append([now + self.window_s * (1 + 1 / self.RESOLUTION), 1])

    def on_ok(self, sent: float) -> None:
        """A request of that time was served. If it was the probe, the quota is larger."""
        if self._probe_sent < math.inf and sent >= self._probe_sent:
            self._probe_sent = math.inf
            self.quota = math.ceil(self.quota * (1 + self._increase))
            self._increase *= 2

    def on_refusal(self, now: float) -> None:
        """One was not accepted, and does not count."""
        if self._sent:
            self._count -= 1
            self._sent[-1][1] -= 1
        if self._probe_sent < math.inf:
            self._probe_sent = math.inf
            self._next_probe = now + self.PROBE_HOLD * self.window_s
            self._increase = self.FIRST_INCREASE

    def on_reopen(self, now: float, closed: float) -> None:
        """A window exhausted at `closed` serves again: what was sent in it is the quota."""
        self._expire(closed)
        if self._count > 0:
            self.window_s = min(self.MAX_WINDOW_S, now - self._window_start)
            self.quota = float(self._count)
            self._next_probe, self._increase = now, self.FIRST_INCREASE
        self._sent.clear()
        self._count = 0
        self._window_start = now

    def _may_probe(self, now: float) -> bool:
        """Best at the end of a burst, when no slot frees up for a while: before, an accepted probe says little."""
        due = self._next_probe
        if self._sent[0][0] - now < self.window_s / 4:
            due += self.PROBE_HOLD * self.window_s
        lost = now - self._probe_sent > self.window_s
        return now >= due and (self._probe_sent == math.inf or lost)

    def _expire(self, now: float) -> None:
        """Drop what was sent more than a window ago."""
        while self._sent and self._sent[0][0] <= now:
            self._count -= int(self._sent.popleft()[1])
            self._window_start = self._sent[0][0] - self.window_s if self._sent else math.inf

    def __repr__(self) -> str:
        return f"LearnedRate({self._count} of {self.quota:g} in {self.window_s:g} s)"
