"""One endpoint's circuit breaker: may something be sent, and if not, when to ask again. `now` and chance are arguments.

    healthy ──faults in a row──► suspended: a probe now and then ──an answer──► healthy
       └──────── wrong key, no quota, never reachable ────────► closed, for good
A pause (the server's Retry-After, or a run of refusals without one) holds sending back in any state. During a run of
refusals single probes are sent; what the run teaches about the provider's quota is kept in `learned_rate`.
"""

from __future__ import annotations

import math

from referee.limits.learned_rate import LearnedRate
from referee.records import Unscored


class Breaker:
    """Fed with every send, answer and fault. Call `wait` before each send."""

    FAULTS_TO_SUSPEND = 5
    """Faults in a row, with no success between them."""
    PROBE_MIN_S, PROBE_MAX_S = 0.5, 1.5
    """Growing interval between probes: recovery is noticed within two seconds, and an outage costs few requests."""
    PROBE_TIMEOUT_S = 0.25
    """Least time before an unanswered probe is followed by another, while suspended and during refusals. Where failures
    are quick, a probe that has not failed by then may succeed; where requests hang, it must not block the next."""
    REFUSALS_TO_PAUSE = 6
    """Refusals in a row, with nothing served that was sent after the first, that pause sending without Retry-After."""
    PAUSE_MIN_S, PAUSE_MAX_S = 1.0, 8.0
    """Length of such a pause, doubling with every further refusal."""
    RETRY_AFTER_MAX_S = 300.0
    """Longest Retry-After obeyed: then the server is asked again and may repeat it."""
    UNREACHABLE_TRIES, UNREACHABLE_S = 3, 3.0
    """Failed connections over that time, without any answer ever, mean a wrong address and not an outage."""

    def __init__(self) -> None:
        self.closed: Unscored | None = None
        """Why nothing will ever be sent here again."""
        self.suspended = False
        self._checked = -math.inf
        self._in_flight = 0
        self._paused_until = -math.inf
        self._faults = 0
        self._first_fault = -math.inf
        self._earlier = 0
        self._refusals = 0
        self._first_refusal = math.inf
        self._refusal_probes: list[float] = []
        self._refusal_probe_gap = self.PROBE_TIMEOUT_S
        self._refused_alone = False
        self._rate = LearnedRate()
        self._probing = False
        self._probe_sent = -math.inf
        self._probe_timeout = self.PROBE_MAX_S
        self._next_probe = -math.inf
        self._probe_interval = self.PROBE_MIN_S
        self._answered = False
        self._connect_failures = 0
        self._first_connect_failure = math.inf

    def wait(self, now: float) -> float:
        """Seconds until something may be sent; 0: now."""
        self._checked = now
        until = max(self._paused_until, self._next_probe) if self.suspended else self._paused_until
        return max(0.0, until - now, 0.0 if self._refusing else self._rate.wait(now))

    def on_send(self) -> None:
        """A request goes out, at the time `wait` was last called."""
        self._in_flight += 1
        if self._refusing:
            self.pause(self._checked + self._refusal_probe_gap / 2 ** min(3, len(self._refusal_probes)))
            self._refusal_probes.append(self._checked)
        else:
            self._rate.on_send(self._checked)
        if self.suspended:
            self._probing = True
            self._probe_sent = self._checked
            self._next_probe = self._checked + self._probe_timeout

    def on_gone(self) -> None:
        """A request has finished, in any way. Its outcome is reported first."""
        self._in_flight -= 1
        self._earlier -= 1

    def on_answer(self) -> None:
        """The server can be reached."""
        self._answered = True

    def on_ok(self, sent: float) -> None:
        """The server did the work. One success ends a suspension: the limiter kept its limit and goes on from there.

        A reply to a request sent before the first fault says nothing about now.
        """
        self._answered = True
        self._rate.on_ok(sent)
        if sent >= self._first_refusal:
            self._end_refusals(sent)
        if sent >= self._first_fault:
            self.suspended = False
            self._first_fault = -math.inf
            self._faults = 0
            self._probe_interval = self.PROBE_MIN_S

    def on_fault(self, now: float, chance: float, connecting: bool = False) -> None:
        """Overloaded, timed out or unreachable."""
        if connecting and not self._answered:
            self._connect_failures += 1
            self._first_connect_failure = min(self._first_connect_failure, now)
        if self._faults == 0:
            self._first_fault = now
            self._earlier = self._in_flight
        self._faults += 1
        if self.suspended:
            if self._probing and self._earlier <= 0:
                self._probe_timeout = min(self.PROBE_MAX_S, max(self.PROBE_TIMEOUT_S, 4 * (now - self._probe_sent)))
                self._probe_interval = min(self.PROBE_MAX_S, self._probe_interval * 1.5)
                self._schedule_probe(now, chance)
        elif self._faults >= self.FAULTS_TO_SUSPEND and self._earlier <= 0:
            # Requests in flight together fail together, say when a load balancer restarts. So as many must have
            # finished as were in flight at the first fault: then something sent after it has failed too.
            self.suspended = True
            self._probe_timeout = self.PROBE_MAX_S
            self._earlier = self._in_flight  # their faults, still to come, are not a probe's
            self._schedule_probe(now, chance)

    def _schedule_probe(self, now: float, chance: float) -> None:
        self._probing = False
        self._next_probe = now + self._probe_interval * (0.75 + 0.5 * chance)

    def on_throttled(
        self,
        now: float,
        chance: float,
        retry_after: float | None = None,
        latency: float = PAUSE_MIN_S,
        over_limit: bool = False,
        stale: bool = False,
    ) -> None:
        """Refused. Obeys Retry-After; without one, pauses once refusals come in a row.

        `latency`: the usual latency there, so that a fast server does not idle for many round trips.
        `over_limit`: caused by our concurrency, which will come down. Then Retry-After is no reason to leave slots
        empty as they come free; a run of refusals is.
        `stale`: sent before the limit was last cut. The cut has answered it, so it does not make the run longer.
        """
        self._answered = True
        self._first_refusal = min(self._first_refusal, now)
        self._refusals += not stale
        probed = bool(self._refusal_probes)
        self._refusal_probe_gap = min(self.PROBE_TIMEOUT_S, latency)
        if probed:
            if len(self._refusal_probes) > 1:
                self._refusals = self.REFUSALS_TO_PAUSE  # an earlier probe was accepted: slots come free now and then
            self._refusal_probes.clear()
        else:
            self._rate.on_refusal(now)
        self._refused_alone = self._refused_alone or (probed and self._in_flight == 1)
        if retry_after is not None and (self._refusing or not over_limit):
            self.obey(retry_after, now, chance)
        elif self._refusing and (probed or now >= self._paused_until):
            first = min(self.PAUSE_MIN_S, latency)
            seconds = min(self.PAUSE_MAX_S, first * 2.0 ** min(8, self._refusals - self.REFUSALS_TO_PAUSE))
            self.pause(now + seconds * (0.75 + 0.5 * chance))
            if self._refused_alone:
                self.pause(self._rate.reopens_at())

    @property
    def _refusing(self) -> bool:
        """True in a run of refusals, in which single probes are sent."""
        return self._refusals >= self.REFUSALS_TO_PAUSE

    def _end_refusals(self, sent: float) -> None:
        """Something sent after the first refusal was served. If a request alone in flight had been refused, concurrency
        was not the cause: a quota had run out."""
        probes, self._refusal_probes = self._refusal_probes, []
        if self._refused_alone:
            self._rate.on_reopen(sent, self._first_refusal)
        for at in probes:
            self._rate.on_send(at)
        self._refusals = 0
        self._first_refusal = math.inf
        self._refused_alone = False

    def obey(self, retry_after: float, now: float, chance: float) -> None:
        """Pause as long as the server says, with jitter."""
        self.pause(now + min(retry_after, self.RETRY_AFTER_MAX_S) * (1 + 0.1 * chance))

    def pause(self, until: float) -> None:
        """Send nothing until then."""
        self._paused_until = max(self._paused_until, until)

    def unreachable(self, now: float) -> bool:
        """True once it is clear that no server is there."""
        return (
            not self._answered
            and self._connect_failures >= self.UNREACHABLE_TRIES
            and now - self._first_connect_failure >= self.UNREACHABLE_S
        )

    def close(self, why: Unscored) -> None:
        """For good. The first reason stays."""
        self.closed = self.closed or why

    def __repr__(self) -> str:
        state = "closed" if self.closed else "suspended" if self.suspended else "healthy"
        return f"Breaker({state}, {self._faults} faults in a row)"
