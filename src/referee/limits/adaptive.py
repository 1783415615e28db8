"""How many requests may be in flight, found while working. No clock, no task, no queue: told of events, it counts.

    ramp   one more per success, so twice as many each round trip
    edge   the server refuses above some level: go back to it, stay a while, look whether it still does
    hill   the server queues instead of refusing: hold the lowest level that gives about the best goodput

    ramp ──refused──► edge ──no longer refused──► ramp
    ramp ──more in flight does not pay──► hill ──it does again──► ramp          hill ──refused──► edge

Why these three, and what they measured: docs/design/adaptive-limit.md.
"""

from __future__ import annotations

import math
from typing import Literal

from referee.limits.limit import Outcome, Stamp
from referee.limits.queue_detection import IN_LINE, PERHAPS_IN_LINE, QueueDetector
from referee.limits.throughput_search import SMALLEST_WINDOW, Meter, ThroughputSearch

START = 60
"""Requests at once before anything is known: what batch jobs of judges commonly use. Half of it costs 2 % of a batch of
1024 on a server good for 60, and 4 to 8 % on larger ones; the price is some more refusals on small servers."""
SATURATED = 0.8
"""Share of the limit that must be in use for an outcome to say anything about the limit."""
STRIKES = 3.0
"""Refusals above the usual that make a cut. One alone may be a provider's mood; over the edge three come at once."""
OVERLOADED = 1 / 3
"""What an overloaded outcome counts for, in refusals."""
FORGIVEN, FORGIVEN_USUAL = 0.01, 3.0
"""What a success takes off the strikes: a little, and three times the share of refusals that come at any level."""
LEARN = 1 / 256
"""How fast that share is learned, per outcome."""
CUT, HARD_CUT = 0.98, 0.7
"""What is left of the level that was refused. Little is cut, because a refusal also says what was accepted; more if
nothing sent since the last cut was served."""
HOLD, SHORTEST_HOLD = 6, 120
"""Rounds, and at least so many successes, at the edge before looking above it: looking costs three refusals."""
PAUSE = 8
"""Successes without growth after an overloaded outcome."""
RAMP_PAYS = 0.5
"""Gain at which the ramp goes on doubling."""
BLIND = 1 / 8
"""Part of a window in which it grows unseen."""
LEFTOVER = 1 / 8
"""Part of a level that may still be requests from before it when its measurement begins: where a crowd makes the server
slow, those of the crowd come back long after the rest."""


class AdaptiveLimit:
    """Starts at `start`, never passes `ceiling`, never falls below 1."""

    def __init__(self, ceiling: int, start: int = START) -> None:
        self.ceiling = max(1, ceiling)
        self.mode: Literal["ramp", "edge", "hill"] = "ramp"
        self._size = 1.0
        self._epoch = 0
        self._epoch_oks = 0
        self._old = 0
        self._strikes = 0.0
        self._usual = 0.0
        self._skip = 0
        self._oks = 0.0
        self._busy = 0.0
        self._last_ok = 0.0
        self._mean_latency = 0.0
        self._line = QueueDetector()
        self._fell_from = 0.0
        self._edge = math.inf
        self._accepted = math.inf
        self._held = 0
        self._meter = Meter()
        self._ramped: list[tuple[int, float]] = []
        self._prospect = 0.0
        self._hill = ThroughputSearch(self.ceiling, max(1, start))
        self._settling = False
        self._resize(start)

    def admit(self, now: float, in_flight: int) -> Stamp:
        """A request is being sent. `in_flight` counts it."""
        if not self._meter.level:
            self._meter.start(self.limit, now, 0)
            self._last_ok = now
        return Stamp(self._epoch)

    def release(
        self, stamp: Stamp, outcome: Outcome, now: float, in_flight: int, latency: float, tokens_out: int
    ) -> None:
        """It is over. `in_flight` no longer counts it. `tokens_out`: length of the reply, 0 if unknown."""
        self._old -= stamp < self._epoch
        self._line.over(outcome == "ok", now, in_flight, latency)
        if outcome == "ok":
            self._on_ok(stamp, now, in_flight, latency, tokens_out)
        elif outcome == "throttled":
            self._on_throttled(stamp, in_flight)
        elif outcome == "overloaded":
            self._on_overloaded(stamp, now, in_flight, latency)

    def explains(self, in_flight: int) -> bool:
        """Whether a refusal with so many in flight, itself included, is about their number, which will be lowered."""
        return in_flight >= SATURATED * self.limit

    def answered(self, stamp: Stamp) -> bool:
        """Whether it was lowered since that request was sent: then a refusal of it is no news."""
        return stamp < self._epoch

    def _on_ok(self, stamp: Stamp, now: float, in_flight: int, latency: float, tokens: int) -> None:
        self._count(now, latency)
        fresh = stamp == self._epoch
        if fresh:
            self._epoch_oks += 1
            self._strikes = max(0.0, self._strikes - FORGIVEN - FORGIVEN_USUAL * self._usual)
            self._learn(0.0)
        if self._fell_from and self._line.overtaken:  # there was no line, only slow replies
            self._resize(self._fell_from)
            self._enter_ramp([], now, in_flight)
        if in_flight + 1 < SATURATED * self.limit:
            self._restart(now, in_flight)
            return
        skipped = self._skip > 0
        self._skip -= skipped
        if self.mode == "edge":
            if fresh and not skipped:
                self._feel(now, in_flight)
            return
        if self.mode == "hill" and (in_flight > self.limit or self._old > LEFTOVER * self.limit):
            self._restart(now, in_flight)  # what is in flight is not yet this level's
            return
        goodput = self._meter.add(tokens, now, in_flight, latency)
        if self.mode == "ramp":
            in_line = self._in_line(now)
            if in_line < IN_LINE:
                size = self._size
                self._enter_hill(self._meter.count, now, in_flight)
                self._fell_from = size
                return
            if not skipped and in_line >= PERHAPS_IN_LINE:
                self._grow(now)
            if goodput is None and self._worse(now):
                goodput = self._meter.goodput(now)
            if goodput is not None:
                self._check_ramp(goodput, now, in_flight)
        elif goodput is not None:
            self._climb(goodput, now, in_flight)

    def _count(self, now: float, latency: float) -> None:
        self._mean_latency += (latency - self._mean_latency) * (0.05 if self._mean_latency else 1.0)
        self._oks += 1
        self._busy += min(now - self._last_ok, self._mean_latency)  # pauses between batches do not count
        self._last_ok = now
        if self._oks > 8 * max(self.limit, SHORTEST_HOLD):  # the rate of late, not of the whole run
            self._oks /= 2
            self._busy /= 2

    # ramp

    def _grow(self, now: float) -> None:
        """One more, unless the window that is open already shows that the last doubling brought little."""
        meter = self._meter
        if self._size >= 2 * meter.level:
            return
        if not self._ramped or meter.count < BLIND * meter.level or self._rose(2**RAMP_PAYS, now):
            self._resize(self._size + 1)

    def _in_line(self, now: float) -> float:
        """Share of the first window that is done; 1 while nothing can be said, and after it. A small one: the answers
        come one after another, as from a server that works on a few at once."""
        meter = self._meter
        if self._ramped or self._settling or self._epoch:
            return 1.0
        return self._line.done(meter.count, meter.level, meter.age(now))

    def _worse(self, now: float) -> bool:
        """True if half a window shows less goodput than the level before: no need to see the rest."""
        meter = self._meter
        if self._settling or not self._ramped or 2 * meter.count < meter.level:
            return False
        return not self._rose(1.0, now)

    def _rose(self, times: float, now: float) -> bool:
        """Whether goodput is so many times that of the level before, or will be once the slow replies among those sent
        before this window are through."""
        meter = self._meter
        return meter.goodput(now) >= times * self._ramped[-1][1] or 0.0 < times * self._prospect <= meter.prospect()

    def _check_ramp(self, goodput: float, now: float, in_flight: int) -> None:
        level = self._meter.level
        if self._settling:  # after idling: the first generation came back all at once
            self._settling = False
            self._line.begin()
            self._meter.start(self.limit, now, in_flight)
            return
        paid = True
        if level >= SMALLEST_WINDOW and (not self._ramped or level >= 1.2 * self._ramped[-1][0]):
            paid = not self._ramped or self._rose((level / self._ramped[-1][0]) ** RAMP_PAYS, now)
            self._prospect = self._meter.prospect()
            self._ramped.append((level, goodput))
        if paid and level < self.ceiling:
            self._meter.start(self.limit, now, in_flight)
            return
        if paid:  # up to the ceiling: what lower levels showed on the way is no reason to leave it
            self._ramped = []
        best = max((goodput for _, goodput in self._ramped), default=0.0)
        level = min((n for n, goodput in self._ramped if goodput > 0.92 * best), default=level)
        self._enter_hill(level, now, in_flight)

    def _enter_ramp(self, known: list[tuple[int, float]], now: float, in_flight: int) -> None:
        self.mode = "ramp"
        self._edge = math.inf
        self._ramped = known
        self._prospect = known[-1][1] if known else 0.0
        self._fell_from = 0.0
        self._settling = False
        self._meter.start(self.limit, now, in_flight)

    # edge

    def _feel(self, now: float, in_flight: int) -> None:
        """Quickly back to the edge, slowly over it, faster the further beyond."""
        gap = self._edge - self._size
        if gap > 0:
            self._resize(min(self._edge, self._size + min(1.0, max(0.5, gap) / self._size)))
            self._held = 0
        elif self._held < max(SHORTEST_HOLD, HOLD * self._size):
            self._held += 1
        else:
            self._resize(self._size + min(1.0, max(1.0, -gap) / self._size))
            if self._size > 1.25 * self._edge + 2:
                self._enter_ramp([], now, in_flight)

    def _on_throttled(self, stamp: Stamp, in_flight: int) -> None:
        if stamp < self._epoch:
            # Sent before the cut: no second cut, but one fewer of those in flight then was accepted. It matters at the
            # start, when most of the first requests may be refused together, and where refusing takes long.
            self._accepted -= 1
            if self._accepted < self._edge:
                self._edge = max(1.0, self._accepted)
                self._resize(min(self._size, CUT * self._edge))
            return
        if in_flight == 0:
            return  # refused although it was alone: lowering the limit would not help
        # Below a level to which it was cut already, and nothing served since: no chance, so no need to see it thrice.
        sure = self._epoch > 0 and not self._epoch_oks and in_flight < CUT * self._size
        if not self._struck(1.0) and not sure:
            return
        cut = CUT if self._epoch_oks else HARD_CUT
        size = max(cut * min(in_flight, self._size), self._size / 2)
        # If nothing sent since the last cut was served, a quota ran out: the edge seen before it is the better guess.
        found = self._epoch_oks > 0 or self._edge == math.inf
        self._cut(size, in_flight)
        if found:
            self._edge = max(size, float(in_flight))
            self._accepted = in_flight

    def _on_overloaded(self, stamp: Stamp, now: float, in_flight: int, latency: float) -> None:
        if stamp < self._epoch or in_flight + 1 < SATURATED * self.limit:
            return
        self._skip = min(self._skip + PAUSE, self.limit)
        if latency >= self._mean_latency and self._busy:
            # It failed after a long wait: a time-out in a queue. Half of what is served in that time can be waited for.
            room = max(self._oks / self._busy * latency / 2, self._size / 4)
            if room < self._size:
                self._cut(room, in_flight)
                self._ramped = []
                self._enter_hill(self.limit, now, in_flight)
                return
        if self._struck(OVERLOADED):
            self._edge = min(self._edge, self._size)
            self._cut(CUT * self._size, in_flight)

    def _struck(self, weight: float) -> bool:
        self._learn(weight)
        self._strikes += weight
        return self._strikes >= STRIKES

    def _learn(self, weight: float) -> None:
        """Refusals that come even below the edge are not about the level, and are not answered by lowering it."""
        if self._size <= self._edge:
            self._usual += (weight - self._usual) * LEARN

    def _cut(self, size: float, in_flight: int) -> None:
        """Fewer from now on. What was sent before is of another epoch, so one overload cuts once."""
        self._resize(size)
        self.mode = "edge"
        self._begin_epoch(in_flight)
        self._held = 0
        self._accepted = math.inf

    def _begin_epoch(self, in_flight: int) -> None:
        self._epoch += 1
        self._epoch_oks = 0
        self._old = in_flight
        self._strikes = 0.0
        self._fell_from = 0.0

    # hill

    def _enter_hill(self, level: int, now: float, in_flight: int) -> None:
        self.mode = "hill"
        self._begin_epoch(in_flight)
        self._edge = math.inf
        self._hill.begin(level, self._ramped)
        self._resize(self._hill.level)
        self._restart(now, in_flight)

    def _climb(self, goodput: float, now: float, in_flight: int) -> None:
        if self._settling:  # the first generation at a new level still shows the old one
            self._settling = False
            self._meter.start(self.limit, now, in_flight, SMALLEST_WINDOW)
            return
        self._hill.measured(goodput)
        if self._hill.open_above:
            self._enter_ramp([(self.limit, goodput)], now, in_flight)
        elif self._hill.level != self.limit:
            self._resize(self._hill.level)
            self._restart(now, in_flight)
        else:
            self._meter.start(self.limit, now, in_flight, SMALLEST_WINDOW)

    def _restart(self, now: float, in_flight: int) -> None:
        self._settling = True
        self._meter.start(self.limit, now, in_flight)

    def _resize(self, size: float) -> None:
        self._size = min(max(1.0, size), float(self.ceiling))
        self.limit = int(self._size + 0.5)

    def __repr__(self) -> str:
        edge = "" if self._edge == math.inf else f" at {self._edge:.0f}"
        return f"AdaptiveLimit({self.limit} of {self.ceiling}, {self.mode}{edge})"
