"""Throughput by concurrency level: does one more request in flight add any? For servers that queue, not refuse.

Latency alone misleads: a batching server answers each request slower and all of them faster as its batch grows, and one
judge reply takes ten times as long as the next. So throughput is compared at two levels. The limit itself is changed
by `adaptive`.
"""

from __future__ import annotations

import math


def gain(low: float, low_throughput: float, high: float, high_throughput: float) -> float:
    """Elasticity of throughput with respect to concurrency: 1 while the server has room, 0 when all else queues."""
    return math.log(high_throughput / low_throughput) / math.log(high / low)


class Meter:
    """Throughput over windows of one generation of requests, in tokens where known, else in requests."""

    MIN_WINDOW = 24
    """Completions; a smaller sample is mostly noise."""
    PREFILL_TOKENS = 32
    """Cost of a request before its first token, in output tokens."""

    __slots__ = ("_earlier", "_fresh", "_last", "_mean_work", "_spent", "_start", "_target", "_work", "count", "level")

    def __init__(self) -> None:
        self._mean_work = 0.0
        self.start(0, 0.0, 0)

    def start(self, level: int, now: float, in_flight: int, least: int = 1) -> None:
        """Drop the open window and begin one of a generation, and of at least that many completions."""
        self.level = level
        """The limit when the window began."""
        self.count = 0
        self._target = max(level, least)
        self._work = 0.0
        self._start = self._last = now
        self._earlier = in_flight
        self._fresh = self._spent = 0.0

    def add(self, tokens: int, now: float, in_flight: int, latency: float) -> float | None:
        """Count one completion. Returns the throughput if that closed the window; the caller starts the next."""
        if tokens > 0:
            work = float(tokens + self.PREFILL_TOKENS)
            self._mean_work += (work - self._mean_work) * (0.02 if self._mean_work else 1.0)
        else:
            work = self._mean_work or 1.0
        self.count += 1
        self._work += work
        self._spent += max(1, in_flight + 1 - self._earlier) * (now - self._last)
        self._last = now
        if self._earlier and latency > self.age(now):
            self._earlier -= 1
        else:
            self._fresh += work
        if self.count < self._target or now <= self._start:
            return None
        return self.throughput(now)

    def age(self, now: float) -> float:
        """Seconds since the window began."""
        return now - self._start

    def throughput(self, now: float) -> float:
        """Work per second in the window so far."""
        return self._work / max(now - self._start, 1e-9)

    def projected(self) -> float:
        """Throughput if requests sent in this window had all slots. With heavy-tailed latency the measured one falls
        for a long time after a start, as slow replies fill the slots; this does not."""
        return self.level * self._fresh / max(self._spent, 1e-9)


class _LevelStats:
    """What is known of one level. Windows are numbered over all levels."""

    __slots__ = ("first", "last", "throughput", "windows")

    def __init__(self, throughput: float, window: int) -> None:
        self.throughput = throughput
        self.first = self.last = window
        """Windows of the first measurement without a long gap since, and of the latest."""
        self.windows = 0
        """Number of measurements. 0: a hint, measured while the limit was moving."""

    def add(self, throughput: float, window: int) -> None:
        self.windows += 1
        if window - self.last > ThroughputSearch.STALE:
            self.throughput, self.first = throughput, window
        else:
            self.throughput += (throughput - self.throughput) * max(0.25, 1 / self.windows)
        self.last = window


class ThroughputSearch:
    """Hill climbing to the lowest level with about the best throughput: measure, compare neighbours, move one step.

    Single comparisons are noisy and some steps wrong; later windows undo them. Doubt is resolved upwards: a few queued
    requests cost nothing, an idle server does.
    """

    MIN_GAIN = 0.3
    """Gain below which a higher level is not worth it: its additional requests mostly queue."""
    CLEAR_GAIN = 0.7
    """Gain at which there is no queue to speak of."""
    STEP = 1.26
    """Ratio of neighbouring levels: three to a doubling."""
    CHANGE = 1.5
    """A window this much better or worse than the one before, beyond what the step between them explains, means that
    the server has changed."""
    STALE = 12
    """Windows after which a level is measured again, and older measurements and hints are dropped."""
    HARM_ERRORS, HARM_STALE = 3.0, 48
    """If a higher level was worse by more than HARM_ERRORS standard errors, probe it only every HARM_STALE windows."""

    def __init__(self, ceiling: int, start: int) -> None:
        """Levels from 1 to `ceiling`, `start` among them."""
        first = min(start, ceiling)
        levels = [first]
        while levels[-1] < ceiling:
            levels.append(min(ceiling, max(levels[-1] + 1, round(levels[-1] * self.STEP))))
        while levels[0] > 1:
            levels.insert(0, min(levels[0] - 1, round(levels[0] / self.STEP)))
        self._levels = levels
        self._window = 0
        self.begin(first, [])

    @property
    def level(self) -> int:
        """The level to run at."""
        return self._levels[self._here]

    @property
    def ramp_again(self) -> bool:
        """True if nothing queues on the way up: single steps are too slow."""
        return self._clear_steps >= 2

    def begin(self, level: int, hints: list[tuple[int, float]]) -> None:
        """Start over at `level`, with (level, throughput) hints from the ramp."""
        self._clear_steps = 0
        self._stats = {self._index(other): _LevelStats(throughput, self._window) for other, throughput in hints}
        self._here = self._index(level)
        self._last: int | None = None

    def record(self, throughput: float) -> None:
        """Take in one window at the current level, and move if a neighbour is better or unknown."""
        self._window += 1
        if self._last is not None:
            rise, before = self.level / self._levels[self._last], self._stats[self._last].throughput
            better = throughput > self.CHANGE * max(1.0, rise) * before
            if better or self.CHANGE * throughput < min(1.0, rise) * before:
                self._stats = {}
                self._clear_steps = 2 if better else 0
        here, stats = self._here, self._stats
        stats.setdefault(here, _LevelStats(throughput, self._window)).add(throughput, self._window)
        # A hint about a lower level was measured from a cold start and is too low: never measured again, it would keep
        # the search above the knee.
        self._stats = {i: s for i, s in stats.items() if i > here or s.windows or self._age(i) <= self.STALE}
        self._last = here
        if not self.ramp_again:
            self._here = self._next(here)

    def _next(self, here: int) -> int:
        lower = max((i for i in self._stats if i < here), default=None)
        upper = min((i for i in self._stats if i > here and self._is_current(here, i)), default=None)
        lift = math.inf if lower is None else self._gain(lower, here)
        if upper is not None and self._gain(here, upper) >= self.MIN_GAIN:
            return here + 1
        if lift < self.MIN_GAIN:
            self._clear_steps = 0
            return here - 1
        if self._stats[here].windows < 2:
            return here  # one window is too few to probe elsewhere
        if upper is None and here + 1 < len(self._levels):
            if lower == here - 1 and lift >= self.CLEAR_GAIN:
                self._clear_steps += 1
            return here + 1
        self._clear_steps = 0
        if lower is None:
            return max(0, here - 1)
        return here if lower == here - 1 and self._age(lower) <= self.STALE else here - 1

    def _index(self, level: int) -> int:
        """Index of the nearest level."""
        return min(range(len(self._levels)), key=lambda i: abs(math.log(self._levels[i] / level)))

    def _is_current(self, here: int, upper: int) -> bool:
        """Whether the higher level need not be measured again. Where it did harm, a probe costs throughput and is
        rarer; the two compare only if measured at about the same time."""
        above, this = self._stats[upper], self._stats[here]
        completions = max(1, above.windows) * self._levels[upper]
        harm = (1.0 - above.throughput / this.throughput) * math.sqrt(completions) >= self.HARM_ERRORS
        return self._age(upper) <= (self.HARM_STALE if harm and this.first - above.last <= self.STALE else self.STALE)

    def _age(self, i: int) -> int:
        """Windows since a level was measured."""
        return self._window - self._stats[i].last

    def _gain(self, low: int, high: int) -> float:
        return gain(self._levels[low], self._stats[low].throughput, self._levels[high], self._stats[high].throughput)
