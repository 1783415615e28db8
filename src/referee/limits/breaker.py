"""One endpoint's health: may something be sent, and if not, when to ask again. Pure: `now` and chance are arguments.

    healthy ──faults in a row──► suspended: a probe now and then ──an answer──► healthy
       └──────── wrong key, no quota, never reachable ────────► closed, for good
A pause (the server's Retry-After, or a run of refusals without one) holds sending back in any state. In a run of
refusals one request at a time asks whether it is over; what the run teaches about the provider's minute is `pace`'s.
"""

from __future__ import annotations

import math

from referee.limits.learned_rate import LearnedRate
from referee.records import Unscored

FAULTS = 5
"""Faults in a row, with no success between them, that suspend an endpoint."""
PROBE_FIRST, PROBE_MOST = 0.5, 1.5
"""Seconds between probes, growing: recovery is noticed within two seconds, and an outage costs few requests."""
PATIENCE = 0.25
"""Seconds, at least, before a probe that is still out is followed by another. Where failing is quick, one that has not
failed by then may well succeed; where requests hang, it does not hold up the next for long. In refusals too."""
REFUSALS = 6
"""Refusals in a row, with nothing served that was sent after the first, after which sending pauses even if the server
names no time."""
PAUSE_FIRST, PAUSE_MOST = 1.0, 8.0
"""Seconds of such a pause, doubling with every further refusal."""
LONGEST_PAUSE = 300.0
"""Seconds a server's Retry-After can hold us up: after that we ask again and are told again."""
UNREACHABLE_TRIES, UNREACHABLE_SECONDS = 3, 3.0
"""An endpoint that has never answered and cannot be connected to is a wrong address, not an outage."""


class Breaker:
    """Told of every send, answer and fault. Ask `wait` before each send."""

    def __init__(self) -> None:
        self.closed: Unscored | None = None
        """Why nothing will ever be sent here again."""
        self.suspended = False
        self._asked = -math.inf
        self._in_flight = 0
        self._paused_until = -math.inf
        self._faults = 0
        self._trouble_since = -math.inf
        self._burst = 0
        self._refusals = 0
        self._refused_since = math.inf
        self._asking: list[float] = []
        self._refusal = PATIENCE
        self._alone = False
        self._pace = LearnedRate()
        self._probing = False
        self._probed = -math.inf
        self._patience = PROBE_MOST
        self._probe_at = -math.inf
        self._interval = PROBE_FIRST
        self._answered = False
        self._misses = 0
        self._first_miss = math.inf

    def wait(self, now: float) -> float:
        """Seconds until something may be sent; 0: now."""
        self._asked = now
        until = max(self._paused_until, self._probe_at) if self.suspended else self._paused_until
        return max(0.0, until - now, 0.0 if self._shut else self._pace.wait(now))

    def on_send(self) -> None:
        """A request goes out, at the time `wait` was last asked."""
        self._in_flight += 1
        if self._shut:
            self.pause(self._asked + self._refusal / 2 ** min(3, len(self._asking)))
            self._asking.append(self._asked)
        else:
            self._pace.sent(self._asked)
        if self.suspended:
            self._probing = True
            self._probed = self._asked
            self._probe_at = self._asked + self._patience

    def on_gone(self) -> None:
        """A request is over, one way or another. What it taught is told first."""
        self._in_flight -= 1
        self._burst -= 1

    def on_answer(self) -> None:
        """The server said something: it can be reached."""
        self._answered = True

    def on_ok(self, sent: float) -> None:
        """It did the work. One success ends a suspension: the limiter kept its limit and goes on from there.

        An answer to a request sent before the trouble began says nothing about now.
        """
        self._answered = True
        self._pace.served(sent)
        if sent >= self._refused_since:
            self._end_refusals(sent)
        if sent >= self._trouble_since:
            self.suspended = False
            self._trouble_since = -math.inf
            self._faults = 0
            self._interval = PROBE_FIRST

    def on_fault(self, now: float, chance: float, connecting: bool = False) -> None:
        """Overloaded, timed out or out of reach."""
        if connecting and not self._answered:
            self._misses += 1
            self._first_miss = min(self._first_miss, now)
        if self._faults == 0:
            self._trouble_since = now
            self._burst = self._in_flight
        self._faults += 1
        if self.suspended:
            if self._probing and self._burst <= 0:
                self._patience = min(PROBE_MOST, max(PATIENCE, 4 * (now - self._probed)))
                self._interval = min(PROBE_MOST, self._interval * 1.5)
                self._probe_later(now, chance)
        elif self._faults >= FAULTS and self._burst <= 0:
            # Requests that were out together fail together, say when a load balancer restarts. So as many must be over
            # as were out at the first fault: then something sent after it has failed too.
            self.suspended = True
            self._patience = PROBE_MOST
            self._burst = self._in_flight  # their faults, still to come, are not a probe's
            self._probe_later(now, chance)

    def _probe_later(self, now: float, chance: float) -> None:
        self._probing = False
        self._probe_at = now + self._interval * (0.75 + 0.5 * chance)

    def on_throttled(
        self,
        now: float,
        chance: float,
        retry_after: float | None = None,
        latency: float = PAUSE_FIRST,
        explained: bool = False,
        late: bool = False,
    ) -> None:
        """Refused: too many. Obeys the time the server names; without one, waits once refusals come in a row.

        `latency`: what an answer usually takes there, so that a fast server is not left idle for many answers' time.
        `explained`: it was one more than the server takes at once, and there will be fewer. Then the time it names is
        no reason to leave the places of the others empty as they come free; a run of refusals is.
        `late`: it was sent before the limit was last lowered. That has answered it, so it does not make the run longer.
        """
        self._answered = True
        self._refused_since = min(self._refused_since, now)
        self._refusals += not late
        asked = bool(self._asking)
        self._refusal = min(PATIENCE, latency)
        if asked:
            self._refusal = max(self._refusal, min(PROBE_MOST, 2 * (now - self._asking[0])))
            if len(self._asking) > 1:
                self._refusals = REFUSALS  # one before it was taken: places are free now and then
            self._asking.clear()
        self._alone = self._alone or (asked and self._in_flight == 1)
        if not asked:
            self._pace.refused(now)
        if retry_after is not None and (self._shut or not explained):
            self.pause(now + min(retry_after, LONGEST_PAUSE) * (1 + 0.1 * chance))
        elif self._shut and (asked or now >= self._paused_until):
            first = min(PAUSE_FIRST, latency)
            seconds = min(PAUSE_MOST, first * 2.0 ** min(8, self._refusals - REFUSALS))
            self.pause(now + seconds * (0.75 + 0.5 * chance))
            if self._alone:
                self.pause(self._pace.opens())

    @property
    def _shut(self) -> bool:
        """True in a run of refusals: one request at a time asks whether it is over."""
        return self._refusals >= REFUSALS

    def _end_refusals(self, sent: float) -> None:
        """Something sent after the first refusal was served. If even a request that was alone had been refused before,
        it was no matter of how many are in flight: a quota had run out."""
        asking, self._asking = self._asking, []
        if self._alone:
            self._pace.opened(sent, self._refused_since)
        for at in asking:
            self._pace.sent(at)
        self._refusals = 0
        self._refused_since = math.inf
        self._alone = False

    def pause(self, until: float) -> None:
        """Send nothing until then."""
        self._paused_until = max(self._paused_until, until)

    def unreachable(self, now: float) -> bool:
        """True once it is clear that nobody is there."""
        return (
            not self._answered and self._misses >= UNREACHABLE_TRIES and now - self._first_miss >= UNREACHABLE_SECONDS
        )

    def close(self, why: Unscored) -> None:
        """For good. The first reason stays."""
        self.closed = self.closed or why

    def __repr__(self) -> str:
        state = "closed" if self.closed else "suspended" if self.suspended else "healthy"
        return f"Breaker({state}, {self._faults} faults in a row)"
