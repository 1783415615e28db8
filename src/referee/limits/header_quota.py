"""What a server's headers say is left of its minute, less what was sent since. Pure: `now` is an argument.

Headers come late and in any order: each speaks of the moment when its own request was sent, and knows nothing of those
sent after it. So the latest moment counts, and everything sent since is taken off.
"""

from __future__ import annotations

import math
from collections import deque

from referee.limits.limit import Outcome

LONGEST = 60.0
"""Seconds a server's headers can hold us up: after that we ask again and are told again."""
EVEN = 1.5
"""How far apart the speeds may be at which a limit seems to fill, if it fills evenly. Where it comes back as a whole,
they are as far apart as what was used when they were told."""
FIRST_TRY = 1.0
"""Seconds until one request tries whether a server that says so really has nothing left for longer than LONGEST."""
DUST = 1e-6
"""A shortage this small is rounding, and no wait is shorter than this: a clock must be able to show it."""


class HeaderQuota:
    """Told of everything sent, and of what the answers say. Ask `wait` before each. Knows nothing before the first."""

    def __init__(self) -> None:
        self._before = math.inf
        self._at = -math.inf
        self._renewed = -math.inf
        self._turn = math.inf
        self._limit: float | None = None
        self._sent: deque[tuple[float, float]] = deque()
        self._since = 0.0
        self._slowest, self._fastest = math.inf, 0.0
        self._least_used, self._most_used = math.inf, 0.0

    def sent(self, amount: float, now: float) -> None:
        """This amount goes out."""
        if self._before < math.inf:
            self._sent.append((now, amount))
            self._since += amount

    def heard(
        self, limit: float | None, remaining: float | None, reset: float | None, amount: float, sent: float, now: float
    ) -> None:
        """What the answer to a request of this amount says, which was sent at that time. `reset`: seconds."""
        if remaining is None or reset is None or not 0 < reset < math.inf or sent < max(self._at, self._renewed):
            return
        self._limit = limit if limit is not None and limit > 0 else None
        before = max(0.0, remaining) + amount
        # Of those sent in the same moment, the first knows of none of the others: it sees the most.
        self._before = max(self._before, before) if sent == self._at else before
        self._at = sent
        while self._sent and self._sent[0][0] < sent:
            self._since -= self._sent.popleft()[1]
        if not self._sent:
            self.sent(amount, sent)
        turn = now + min(reset, LONGEST)
        # An answer that took long tells the turn too late, by as much as it took at most; a quick one tells it better.
        same = sent < self._turn and turn - self._turn <= now - sent
        self._turn = min(self._turn, turn) if same else turn
        if self._limit is not None and remaining < self._limit:
            used = self._limit - remaining
            self._least_used, self._most_used = min(self._least_used, used), max(self._most_used, used)
            self._slowest, self._fastest = min(self._slowest, used / reset), max(self._fastest, used / reset)

    def wait(self, amount: float, now: float) -> float:
        """Seconds until this amount is left; 0: now, or nothing is known. Never longer than LONGEST."""
        if now >= self._turn:
            self._renew()
        if self._before == math.inf or (self._limit is not None and amount > self._limit):
            return 0.0  # an amount that the whole limit does not hold can only be tried
        speed = self._speed()
        short = amount - (self._before - self._since + speed * (now - self._at))
        if short <= DUST * max(1.0, amount):
            return 0.0
        return max(DUST, min(self._turn - now, short / speed if speed > 0 else LONGEST))

    def _speed(self) -> float:
        """How fast the limit fills, as told with little used and with much; 0 if it comes back as a whole."""
        told = self._most_used >= 2 * self._least_used
        return self._slowest if told and self._fastest < EVEN * self._slowest else 0.0

    def _renew(self) -> None:
        """The turn has come: all of it is there again, if it is known how much that is, and if something was heard
        since the last turn."""
        if self._limit is not None and self._at >= self._renewed:
            self._before = self._limit
            self._renewed = self._turn
            self._turn += LONGEST
        else:
            self._before = self._turn = math.inf
            self._sent.clear()
            self._since = 0.0

    def __repr__(self) -> str:
        return f"HeaderQuota({self._before - self._since:g})"


class FarReset:
    """A server's word that nothing is left until a time farther away than LONGEST. A limit per minute cannot mean that:
    it is a limit per day, or it is not true. So one request tries it now and then. One that is served refutes it, and
    such words are ignored until the server refuses something."""

    def __init__(self) -> None:
        self.patience = FIRST_TRY
        """Seconds between two tries; doubled by each that is refused, up to LONGEST."""
        self._said = math.inf
        self._until = -math.inf
        self._refuted = False

    def doubtful(self, now: float) -> bool:
        """Whether what is sent now is sent in spite of the server's word."""
        return self._said <= now < self._until and not self._refuted

    def believed(
        self, remaining: float | None, reset: float | None, outcome: Outcome, sent: float, now: float
    ) -> tuple[bool, float | None]:
        """Whether the answer to a request sent at that time refutes what was said before; and the reset to go by."""
        tried, refuted = self.doubtful(sent), False
        if outcome == "throttled" and (tried or self._refuted):
            self._refuted = False
            self.patience = min(LONGEST, 2 * self.patience)
        elif outcome == "ok" and tried:
            self._refuted = refuted = True
        if reset is None or remaining is None or remaining > 0 or not reset > LONGEST:
            return refuted, reset
        if self._refuted:
            return refuted, None
        if now >= self._until:
            self._said = now
        self._until = now + reset
        return refuted, self.patience
