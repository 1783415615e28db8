"""Adaptive concurrency."""

from __future__ import annotations

import math
from typing import Literal

from referee.limits.goodput import PAYS, Hill, Meter, gain
from referee.limits.limit import Outcome, Stamp

START = 32
RAMP_PAYS = 0.5
SOFT=0.0
CUT = 0.95
HOLD = 5
SATURATED = 0.8
FAULTY = 0.2
PROBE_EVERY = 60


class AdaptiveLimit:
    def __init__(self, ceiling: int, start: int = START) -> None:
        self.ceiling = max(1, ceiling)
        self._size = float(min(start, self.ceiling))
        self.limit = max(1, round(self._size))
        self.mode: Literal["ramp", "search", "hill"] = "ramp"
        self._epoch = 0
        self._epoch_oks = 0
        self._accepted = 0
        self._peak = math.inf
        self._held = 0
        self._fault_share = 0.0
        self._skip = 0
        self._meter = Meter()
        self._settling = False
        self._measured: list[tuple[int, float]] = []
        self._hill = Hill(self.ceiling)
        self._oks = 0.0
        self._since = math.nan
        self._mean_latency = 0.0

    def admit(self, now: float, in_flight: int) -> Stamp:
        if not self._meter.level:
            self._meter.start(self.limit, now)
            self._since = now
        return Stamp(self._epoch, in_flight, now)

    def release(self, stamp: Stamp, outcome: Outcome, now: float, in_flight: int, latency: float, tokens_out: int) -> None:
        if outcome == "ok":
            self._on_ok(stamp, now, in_flight, latency, tokens_out)
        elif outcome == "throttled":
            self._on_throttled(stamp, now, in_flight)
        elif outcome == "overloaded":
            self._on_overloaded(stamp, now, latency)

    def _on_ok(self, stamp, now, in_flight, latency, tokens):
        self._fault_share -= self._fault_share / max(8, self.limit)
        self._mean_latency += (latency - self._mean_latency) * (0.05 if self._mean_latency else 1)
        self._oks += 1
        if self._oks > 256 and self._oks > 8 * self.limit:
            self._oks /= 2
            self._since += (now - self._since) / 2
        fresh = stamp.epoch == self._epoch
        if fresh:
            self._epoch_oks += 1
        if in_flight + 1 < SATURATED * self.limit or (in_flight > self.limit and self.mode == "hill"):
            self._meter.start(self.limit, now)
            self._settling = True
            return
        if self.mode == "search":
            if fresh:
                self._search(now)
            return
        goodput = self._meter.add(tokens, now)
        if self.mode == "ramp":
            self._ramp(goodput, now)
        elif goodput is not None:
            self._climb(goodput, now)

    def _set(self, size: float) -> None:
        self._size = min(max(1.0, size), float(self.ceiling))
        self.limit = max(1, int(self._size + 0.5))

    def _ramp(self, goodput, now):
        meter = self._meter
        last = self._measured[-1][1] if self._measured else 0.0
        if self._skip:
            self._skip -= 1
        elif self._size < 2 * meter.level and (2 * meter.count < meter.level or meter.goodput(now) > 1.41 * last):
            self._set(self._size + 1)
        if goodput is None:
            return
        level = self._meter.level
        grown = not self._measured or level >= 1.2 * self._measured[-1][0]
        if self._measured and grown and gain(*self._measured[-1], level, goodput) < RAMP_PAYS:
            self._measured.append((level, goodput))
            best = max(g for _, g in self._measured)
            self._enter_hill(min(l for l, g in self._measured if g >= 0.92 * best), now)
            return
        if grown:
            self._measured.append((level, goodput))
        if level == self.ceiling:
            self._enter_hill(level, now)
            return
        self._meter.start(self.limit, now)

    def _enter_hill(self, level, now):
        self.mode = "hill"
        self._hill.begin(level, self._measured)
        self._measured = []
        self._move(now)

    def _move(self, now):
        self._set(self._hill.level)
        self._settling = True
        self._meter.start(self.limit, now)

    def _climb(self, goodput, now):
        if self._settling:
            self._settling = False
            self._meter.start(self.limit, now)
            return
        self._hill.measured(goodput)
        if self._hill.open_above:
            self._enter_ramp(now)
            self._measured = [(self.limit, goodput)]
        elif self._hill.level != self.limit:
            self._move(now)
        else:
            self._meter.start(self.limit, now)

    def _search(self, now):
        if self._skip:
            self._skip -= 1
            return
        gap = self._peak - self._size
        if gap > 0:
            self._set(min(self._peak, self._size + min(1.0, max(0.5, gap) / self._size)))
            self._held = 0
        elif self._held < max(PROBE_EVERY, HOLD * self._size):
            self._held += 1
        else:
            self._set(self._size + min(1.0, max(1.0, -gap) / self._size))
            if self._size > 1.25 * self._peak + 2:
                self._enter_ramp(now)

    def _enter_ramp(self, now):
        self.mode = "ramp"
        self._peak = math.inf
        self._measured = []
        self._meter.start(self.limit, now)

    def _on_throttled(self, stamp, now, in_flight):
        if stamp.epoch == self._epoch:
            if self._epoch_oks or self._peak == math.inf:
                new = float(max(1, in_flight))
                if new < self._peak < math.inf:
                    new += SOFT * (self._peak - new)
                self._peak = new
            self._cut(max(CUT * min(in_flight, self._size), self._size / 2), now)
            self._accepted = in_flight
        else:
            self._accepted -= 1
            if self._accepted * CUT < self._size:
                self._set(CUT * self._accepted)

    def _on_overloaded(self, stamp, now, latency):
        if stamp.epoch != self._epoch or stamp.position < SATURATED * self.limit:
            return
        self._skip = self.limit
        if latency >= self._mean_latency and now>self._since:
            room = self._oks / (now - self._since) * latency / 2
            if room < self._size:
                self._cut(room, now)
                self._measured=[]
                self._enter_hill(self.limit, now)
                return
        self._fault_share += (1 - self._fault_share) / max(8, self.limit)
        if self._fault_share > FAULTY:
            if self._peak == math.inf:
                self._peak = self._size
            self._cut(CUT * self._size, now)

    def _cut(self, size, now):
        self._set(size)
        self._epoch += 1
        self._epoch_oks = 0
        self._held = 0
        self._fault_share = 0.0
        self.mode = "search"
