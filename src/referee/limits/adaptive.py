"""The concurrency limit, found while working. A state machine: events in, an integer out; no clock, task or queue.

    ramp   slow start: one more per success, so the limit doubles every round trip
    edge   the server refuses above some level: back off to it, hold it, then probe above it
    hill   the server queues instead of refusing: climb to the lowest level with about the best throughput

    ramp ──refused──► edge ──no longer refused──► ramp
    ramp ──more in flight adds no throughput──► hill ──it does again──► ramp          hill ──refused──► edge

Reasons and measurements: `referee docs design/adaptive-limit`.
"""

from __future__ import annotations

import math
from typing import Literal

from referee.config import LimitsConfig
from referee.limits.limit import FixedLimit, Limit, Outcome, Stamp
from referee.limits.queue_detection import QueueDetector
from referee.limits.throughput_search import Meter, ThroughputSearch


def make_limit(limits: LimitsConfig) -> Limit:
    """The limit of one endpoint as configured: adaptive, or a fixed number."""
    return AdaptiveLimit(limits.max_concurrency) if limits.concurrency == "auto" else FixedLimit(limits.concurrency)


class AdaptiveLimit:
    """Starts at `start`, stays between 1 and `ceiling`."""

    START = 60
    """Usual concurrency of judge batch jobs. Half of it costs 2 % of a batch of 1024 on a server with capacity 60 and
    4 to 8 % on larger ones; the price is more refusals on smaller servers."""
    SATURATED = 0.8
    """Share of the limit that must be in use for an outcome to say anything about the limit."""
    STRIKES_TO_CUT = 3.0
    """Refusals above the base rate that trigger a cut: one may be chance, above the edge several come together."""
    OVERLOAD_STRIKE = 1 / 3
    """Strikes of an overloaded outcome; a refusal is 1."""
    STRIKE_DECAY = 3.0
    """What a success takes off the strikes, in multiples of the base rate of refusals."""
    BASE_RATE_ALPHA = 1 / 256
    """Weight of one outcome in the moving average of refusals at or below the edge."""
    CUT, HARD_CUT = 0.98, 0.7
    """Factors of a cut. The first is small, because what is in flight at a refusal was accepted; the second applies if
    nothing sent since the previous cut was served."""
    HOLD_ROUNDS, HOLD_SUCCESSES = 6, 120
    """Rounds at the edge before a probe above it, and at least as many successes: a probe costs three refusals."""
    OVERLOAD_PAUSE = 8
    """Successes without growth after an overloaded outcome."""
    RAMP_GAIN = 0.5
    """Least gain of a doubling for the ramp to go on."""
    BLIND_GROWTH = 1 / 8
    """Part of a window before its throughput is consulted."""
    MAX_STALE = 1 / 8
    """Part of a level that may still be requests sent before it when its measurement starts: on a server that degrades
    under load, those come back long after the others."""

    def __init__(self, ceiling: int, start: int = START) -> None:
        self.ceiling = max(1, ceiling)
        self.mode: Literal["ramp", "edge", "hill"] = "ramp"
        self._size = 1.0
        self._epoch = 0
        self._epoch_successes = 0
        self._stale_in_flight = 0
        self._strikes = 0.0
        self._base_rate = 0.0
        self._no_growth = 0
        self._successes = 0.0
        self._busy_s = 0.0
        self._last_success = 0.0
        self._mean_latency = 0.0
        self._queue = QueueDetector()
        self._size_before_queue = 0.0
        self._edge = math.inf
        self._accepted = math.inf
        self._held = 0
        self._meter = Meter()
        self._ramp_levels: list[tuple[int, float]] = []
        self._projected = 0.0
        self._search = ThroughputSearch(self.ceiling, max(1, start))
        self._discard_window = False
        self._resize(start)

    def admit(self, now: float, in_flight: int) -> Stamp:
        """A request is being sent; `in_flight` includes it."""
        if not self._meter.level:
            self._meter.start(self.limit, now, 0)
            self._last_success = now
        return Stamp(self._epoch)

    def release(
        self, stamp: Stamp, outcome: Outcome, now: float, in_flight: int, latency: float, tokens_out: int
    ) -> None:
        """It has finished; `in_flight` excludes it. `tokens_out`: length of the reply, 0 if unknown."""
        self._stale_in_flight -= stamp < self._epoch
        self._queue.on_finished(outcome == "ok", now, in_flight, latency)
        if outcome == "ok":
            self._on_ok(stamp, now, in_flight, latency, tokens_out)
        elif outcome == "throttled":
            self._on_throttled(stamp, in_flight)
        elif outcome == "overloaded":
            self._on_overloaded(stamp, now, in_flight, latency)

    def caused_refusal(self, in_flight: int) -> bool:
        """Whether a refusal at this concurrency, itself included, was caused by it: then the limit will come down."""
        return in_flight >= self.SATURATED * self.limit

    def is_stale(self, stamp: Stamp) -> bool:
        """Whether the limit was cut after that request was sent: its refusal is no news."""
        return stamp < self._epoch

    def _on_ok(self, stamp: Stamp, now: float, in_flight: int, latency: float, tokens: int) -> None:
        self._count(now, latency)
        current = stamp == self._epoch
        if current:
            self._epoch_successes += 1
            self._strikes = max(0.0, self._strikes - self.STRIKE_DECAY * self._base_rate)
            self._update_base_rate(0.0)
        if self._size_before_queue and self._queue.reordered:  # no queue after all, only slow replies
            self._resize(self._size_before_queue)
            self._enter_ramp([], now, in_flight)
        if in_flight + 1 < self.SATURATED * self.limit:
            self._restart(now, in_flight)
            return
        paused = self._no_growth > 0
        self._no_growth -= paused
        if self.mode == "edge":
            if current and not paused:
                self._track_edge(now, in_flight)
            return
        if self.mode == "hill" and (in_flight > self.limit or self._stale_in_flight > self.MAX_STALE * self.limit):
            self._restart(now, in_flight)  # too much of what is in flight was sent at another level
            return
        throughput = self._meter.add(tokens, now, in_flight, latency)
        if self.mode == "ramp":
            done = self._first_window_done(now)
            if done < QueueDetector.QUEUED:
                size = self._size
                self._enter_hill(self._meter.count, now, in_flight)
                self._size_before_queue = size
                return
            if not paused and done >= QueueDetector.PERHAPS_QUEUED:
                self._grow(now)
            if throughput is None and self._got_worse(now):
                throughput = self._meter.throughput(now)
            if throughput is not None:
                self._on_ramp_window(throughput, now, in_flight)
        elif throughput is not None:
            self._on_hill_window(throughput, now, in_flight)

    def _count(self, now: float, latency: float) -> None:
        self._mean_latency += (latency - self._mean_latency) * (0.05 if self._mean_latency else 1.0)
        self._successes += 1
        self._busy_s += min(now - self._last_success, self._mean_latency)  # idle time between batches does not count
        self._last_success = now
        if self._successes > 8 * max(self.limit, self.HOLD_SUCCESSES):  # a recent rate, not the mean of the run
            self._successes /= 2
            self._busy_s /= 2

    # ramp

    def _grow(self, now: float) -> None:
        """One more, unless the open window already shows too little gain from the last doubling."""
        meter = self._meter
        if self._size >= 2 * meter.level:
            return
        early = not self._ramp_levels or meter.count < self.BLIND_GROWTH * meter.level
        if early or self._improved(2**self.RAMP_GAIN, now):
            self._resize(self._size + 1)

    def _first_window_done(self, now: float) -> float:
        """Finished share of the first window, where a small one means a queue; 1 if unknown, and after that window."""
        meter = self._meter
        if self._ramp_levels or self._discard_window or self._epoch:
            return 1.0
        return self._queue.done_share(meter.count, meter.level, meter.age(now))

    def _got_worse(self, now: float) -> bool:
        """True if half a window shows less throughput than the previous level: no need to wait for the rest."""
        meter = self._meter
        if self._discard_window or not self._ramp_levels or 2 * meter.count < meter.level:
            return False
        return not self._improved(1.0, now)

    def _improved(self, factor: float, now: float) -> bool:
        """Whether throughput is `factor` times that of the previous level, or is projected to be once slow replies to
        requests sent before this window are through."""
        meter = self._meter
        measured = meter.throughput(now) >= factor * self._ramp_levels[-1][1]
        return measured or 0.0 < factor * self._projected <= meter.projected()

    def _on_ramp_window(self, throughput: float, now: float, in_flight: int) -> None:
        level = self._meter.level
        if self._discard_window:  # after idling: requests sent together come back together
            self._discard_window = False
            self._queue.reset()
            self._meter.start(self.limit, now, in_flight)
            return
        paid = True
        if level >= Meter.MIN_WINDOW and (not self._ramp_levels or level >= 1.2 * self._ramp_levels[-1][0]):
            paid = not self._ramp_levels or self._improved((level / self._ramp_levels[-1][0]) ** self.RAMP_GAIN, now)
            self._projected = self._meter.projected()
            self._ramp_levels.append((level, throughput))
        if paid and level < self.ceiling:
            self._meter.start(self.limit, now, in_flight)
            return
        if paid:  # at the ceiling: lower levels, measured on the way from a cold start, are no reason to leave it
            self._ramp_levels = []
        best = max((throughput for _, throughput in self._ramp_levels), default=0.0)
        level = min((n for n, throughput in self._ramp_levels if throughput > 0.92 * best), default=level)
        self._enter_hill(level, now, in_flight)

    def _enter_ramp(self, levels: list[tuple[int, float]], now: float, in_flight: int) -> None:
        self.mode = "ramp"
        self._edge = math.inf
        self._ramp_levels = levels
        self._projected = levels[-1][1] if levels else 0.0
        self._size_before_queue = 0.0
        self._discard_window = False
        self._meter.start(self.limit, now, in_flight)

    # edge

    def _track_edge(self, now: float, in_flight: int) -> None:
        """Quickly back to the edge, hold, then probe above it: slowly at first, faster the further beyond."""
        gap = self._edge - self._size
        if gap > 0:
            self._resize(min(self._edge, self._size + min(1.0, max(0.5, gap) / self._size)))
            self._held = 0
        elif self._held < max(self.HOLD_SUCCESSES, self.HOLD_ROUNDS * self._size):
            self._held += 1
        else:
            self._resize(self._size + min(1.0, max(1.0, -gap) / self._size))
            if self._size > 1.25 * self._edge + 2:
                self._enter_ramp([], now, in_flight)

    def _on_throttled(self, stamp: Stamp, in_flight: int) -> None:
        if stamp < self._epoch:
            # Sent before the cut: no second cut, but one fewer of those in flight then was accepted. It matters at the
            # start, when most of the first burst may be refused, and where refusing takes long.
            self._accepted -= 1
            if self._accepted < self._edge:
                self._edge = max(1.0, self._accepted)
                self._resize(min(self._size, self.CUT * self._edge))
            return
        if in_flight == 0:
            return  # refused although alone: a lower limit would not help
        # Below a level it was cut to already, with nothing served since: not chance, so one refusal is enough.
        certain = self._epoch > 0 and not self._epoch_successes and in_flight < self.CUT * self._size
        if not self._strike(1.0) and not certain:
            return
        cut = self.CUT if self._epoch_successes else self.HARD_CUT
        size = max(cut * min(in_flight, self._size), self._size / 2)
        # If nothing sent since the last cut was served, a quota ran out: the previous edge is the better guess.
        found = self._epoch_successes > 0 or self._edge == math.inf
        self._cut(size, in_flight)
        if found:
            self._edge = max(size, float(in_flight))
            self._accepted = in_flight

    def _on_overloaded(self, stamp: Stamp, now: float, in_flight: int, latency: float) -> None:
        if stamp < self._epoch or in_flight + 1 < self.SATURATED * self.limit:
            return
        self._no_growth = min(self._no_growth + self.OVERLOAD_PAUSE, self.limit)
        if latency >= self._mean_latency and self._busy_s:
            # It failed after a long wait: a timeout in a queue. Queue half of what is served within that time.
            room = max(self._successes / self._busy_s * latency / 2, self._size / 4)
            if room < self._size:
                self._cut(room, in_flight)
                self._ramp_levels = []
                self._enter_hill(self.limit, now, in_flight)
                return
        if self._strike(self.OVERLOAD_STRIKE):
            self._edge = min(self._edge, self._size)
            self._cut(self.CUT * self._size, in_flight)

    def _strike(self, weight: float) -> bool:
        self._update_base_rate(weight)
        self._strikes += weight
        return self._strikes >= self.STRIKES_TO_CUT

    def _update_base_rate(self, weight: float) -> None:
        """Refusals at or below the edge are not about concurrency: a lower limit would not end them."""
        if self._size <= self._edge:
            self._base_rate += (weight - self._base_rate) * self.BASE_RATE_ALPHA

    def _cut(self, size: float, in_flight: int) -> None:
        """Lower the limit. Requests sent before it belong to an earlier epoch, so one overload cuts once."""
        self._resize(size)
        self.mode = "edge"
        self._begin_epoch(in_flight)
        self._held = 0
        self._accepted = math.inf

    def _begin_epoch(self, in_flight: int) -> None:
        self._epoch += 1
        self._epoch_successes = 0
        self._stale_in_flight = in_flight
        self._strikes = 0.0
        self._size_before_queue = 0.0

    # hill

    def _enter_hill(self, level: int, now: float, in_flight: int) -> None:
        self.mode = "hill"
        self._begin_epoch(in_flight)
        self._edge = math.inf
        self._search.begin(level, self._ramp_levels)
        self._resize(self._search.level)
        self._restart(now, in_flight)

    def _on_hill_window(self, throughput: float, now: float, in_flight: int) -> None:
        if self._discard_window:  # the first generation at a new level still shows the old one
            self._discard_window = False
            self._meter.start(self.limit, now, in_flight, Meter.MIN_WINDOW)
            return
        self._search.record(throughput)
        if self._search.ramp_again:
            self._enter_ramp([(self.limit, throughput)], now, in_flight)
        elif self._search.level != self.limit:
            self._resize(self._search.level)
            self._restart(now, in_flight)
        else:
            self._meter.start(self.limit, now, in_flight, Meter.MIN_WINDOW)

    def _restart(self, now: float, in_flight: int) -> None:
        self._discard_window = True
        self._meter.start(self.limit, now, in_flight)

    def _resize(self, size: float) -> None:
        self._size = min(max(1.0, size), float(self.ceiling))
        self.limit = int(self._size + 0.5)

    def __repr__(self) -> str:
        edge = "" if self._edge == math.inf else f" at {self._edge:.0f}"
        return f"AdaptiveLimit({self.limit} of {self.ceiling}, {self.mode}{edge})"
