"""Goodput by level of concurrency: is one more request in flight worth anything? For servers that queue, not refuse.

Latency alone misleads here: a batching server answers each request slower and all of them faster as its batch grows,
and one judge reply takes ten times as long as the next. So what is compared is work done per second at two levels.
No limit is changed here; `adaptive` does that.
"""

from __future__ import annotations

import math

PAYS = 0.3
"""Gain below which more in flight is not worth it: the requests mostly wait in line."""
PAYS_WELL = 0.7
"""Gain from which there is no line to speak of."""
STEP = 1.26
"""Ratio of neighbouring levels: three to a doubling."""
ROOM = 1.15
"""If the bend, judged from a lower level, lies this near to the next lower level, that level is worth a look."""
CHANGED = 1.5
"""A window this many times better or worse than the one before, and than the step between them could make it: the
server is not what it was."""
STALE = 12
"""Windows after which a level is measured anew, and after which what it gave before counts no more."""
HINTS = 6
"""Windows after which a hint about a lower level counts no more: measured from a cold start, it was too low."""
SURE, SELDOM = 3.0, 48
"""Where the level above gave less by so many times what chance would make of it, it does harm: it is measured anew only
after so many windows."""
SMALLEST_WINDOW = 24
"""Completions. Fewer say nothing."""
FIRST_TOKEN = 32
"""What a request costs before its first token, counted in tokens of output."""


def gain(low: float, low_goodput: float, high: float, high_goodput: float) -> float:
    """Relative rise of goodput per relative rise of concurrency: 1 while the server has room, 0 when all queue."""
    return math.log(high_goodput / low_goodput) / math.log(high / low)


class Meter:
    """Work per second over windows of one generation of requests. Work is tokens where known, else requests."""

    __slots__ = ("_before", "_fresh", "_last", "_mean_work", "_spent", "_start", "_target", "_work", "count", "level")

    def __init__(self) -> None:
        self._mean_work = 0.0
        self.start(0, 0.0, 0)

    def start(self, level: int, now: float, in_flight: int, least: int = 1) -> None:
        """Forget the open window and begin one: a generation, but at least so many completions."""
        self.level = level
        """The limit when the window began."""
        self.count = 0
        self._target = max(level, least)
        self._work = 0.0
        self._start = self._last = now
        self._before = in_flight
        self._fresh = self._spent = 0.0

    def add(self, tokens: int, now: float, in_flight: int, latency: float) -> float | None:
        """Count one completion, after which so many are in flight. Returns the goodput if that closed the window; the
        caller starts the next."""
        if tokens > 0:
            work = float(tokens + FIRST_TOKEN)
            self._mean_work += (work - self._mean_work) * (0.02 if self._mean_work else 1.0)
        else:
            work = self._mean_work or 1.0
        self.count += 1
        self._work += work
        self._spent += max(1, in_flight + 1 - self._before) * (now - self._last)
        self._last = now
        if self._before and latency > self.age(now):
            self._before -= 1
        else:
            self._fresh += work
        if self.count < self._target or now <= self._start:
            return None
        return self.goodput(now)

    def age(self, now: float) -> float:
        """Seconds since the window began."""
        return now - self._start

    def goodput(self, now: float) -> float:
        """Work per second in the window so far."""
        return self._work / max(now - self._start, 1e-9)

    def prospect(self) -> float:
        """Work per second of the requests sent in the window, as if they had all the places. Where replies differ much,
        goodput falls for a long time after a start, as slow ones fill the places; this does not."""
        return self.level * self._fresh / max(self._spent, 1e-9)


class _Cell:
    """What is known of one level."""

    __slots__ = ("goodput", "seen", "since", "windows")

    def __init__(self, goodput: float, seen: int) -> None:
        self.goodput = goodput
        self.seen = self.since = seen
        """The window, counted over all levels, in which it was measured last, and since when without a long break."""
        self.windows = 0
        """Measured in so many. 0: a hint, measured while the limit was moving."""

    def add(self, goodput: float, seen: int) -> None:
        self.windows += 1
        if seen - self.seen > STALE:
            self.goodput, self.since = goodput, seen
        else:
            self.goodput += (goodput - self.goodput) * max(0.25, 1 / self.windows)
        self.seen = seen


class ThroughputSearch:
    """Looks for the lowest level whose goodput is about the best: measure here, compare neighbours, move one step.

    Every comparison is noisy, so it will take wrong steps; it is built so that the next windows undo them, and so that
    doubt is resolved upwards: a few requests waiting in line cost nothing, an idle server does.
    """

    def __init__(self, ceiling: int, middle: int) -> None:
        """Levels from 1 to `ceiling`; `middle`, where work begins, is one of them."""
        first = min(middle, ceiling)
        levels = [first]
        while levels[-1] < ceiling:
            levels.append(min(ceiling, max(levels[-1] + 1, round(levels[-1] * STEP))))
        while levels[0] > 1:
            levels.insert(0, min(levels[0] - 1, round(levels[0] / STEP)))
        self._levels = levels
        self._tick = 0
        self.begin(first, [])

    @property
    def level(self) -> int:
        """Where to be now."""
        return self._levels[self._here]

    @property
    def open_above(self) -> bool:
        """True if the way up seems clear: step by step is too slow."""
        return self._climbed >= 2

    def begin(self, level: int, hints: list[tuple[int, float]]) -> None:
        """Start over at `level`, with (level, goodput) hints from the way there."""
        self._climbed = 0
        self._cells = {self._index(other): _Cell(goodput, self._tick) for other, goodput in hints}
        self._here = self._index(level)
        self._last: int | None = None

    def measured(self, goodput: float) -> None:
        """Take in one window at the current level, and move if a neighbour is better or unknown."""
        self._tick += 1
        if self._last is not None:
            rise, before = self.level / self._levels[self._last], self._cells[self._last].goodput
            better = goodput > CHANGED * max(1.0, rise) * before
            if better or CHANGED * goodput < min(1.0, rise) * before:
                self._cells = {}
                self._climbed = 2 if better else 0
        self._cells.setdefault(self._here, _Cell(goodput, self._tick)).add(goodput, self._tick)
        self._cells = {i: c for i, c in self._cells.items() if i > self._here or c.windows or self._age(i) <= HINTS}
        self._last = self._here
        if not self.open_above:
            self._here = self._next(self._here)

    def _next(self, here: int) -> int:
        lower = max((i for i in self._cells if i < here), default=None)
        upper = min((i for i in self._cells if i > here and self._known(here, i)), default=None)
        lift = math.inf if lower is None else self._gain(lower, here)
        if upper is not None and self._gain(here, upper) >= PAYS:
            return here + 1
        if lift < PAYS:
            self._climbed = 0
            return here - 1
        if self._cells[here].windows < 2:
            return here  # one window is too few to go and look elsewhere
        if upper is None and here + 1 < len(self._levels):
            if lower == here - 1 and lift >= PAYS_WELL:
                self._climbed += 1
            return here + 1
        self._climbed = 0
        if lower is None:
            return max(0, here - 1)
        fresh = lower == here - 1 and self._age(lower) <= STALE
        return here if fresh or self._bend(lower, here) >= ROOM * self._levels[here - 1] else here - 1

    def _bend(self, lower: int, here: int) -> float:
        """The level where goodput stopped rising, if it rose in proportion from the known lower level on."""
        return self._levels[lower] * self._cells[here].goodput / self._cells[lower].goodput

    def _index(self, level: int) -> int:
        """The place of the nearest level."""
        return min(range(len(self._levels)), key=lambda i: abs(math.log(self._levels[i] / level)))

    def _known(self, here: int, upper: int) -> bool:
        """Whether the level above need not be measured again. Where it did harm, looking costs, and is rarer; that is
        said of it only if both were measured at about the same time."""
        above, this = self._cells[upper], self._cells[here]
        seen_in = max(1, above.windows) * self._levels[upper]
        harm = (1.0 - above.goodput / this.goodput) * math.sqrt(seen_in) >= SURE
        return self._age(upper) <= (SELDOM if harm and this.since - above.seen <= STALE else STALE)

    def _age(self, i: int) -> int:
        """Windows since a level was measured."""
        return self._tick - self._cells[i].seen

    def _gain(self, low: int, high: int) -> float:
        return gain(self._levels[low], self._cells[low].goodput, self._levels[high], self._cells[high].goodput)
