"""Goodput by level of concurrency: is one more request in flight worth anything? For servers that queue, not refuse.

Latency alone misleads here: a batching server answers each request slower and all of them faster as the batch grows,
and one judge reply takes ten times as long as the next. So what is compared is work done per second at two levels.
No limit is changed here; `adaptive` does that.
"""

from __future__ import annotations

import math
from bisect import bisect_left

PAYS = 0.3
"""Raising concurrency by x % must raise goodput by at least this share of x %, else the requests only wait in line."""
PAYS_WELL = 0.7
"""From here on there is no line worth speaking of."""
STEP = 1.26
"""Ratio of neighbouring levels: three to a doubling."""
SMALLEST_WINDOW = 24
"""Completions. Fewer say nothing: single latencies spread over a factor of ten."""
STALE = 12
"""Windows after which a level is measured anew: capacity may have changed."""
PROMPT_TOKENS = 32
MINW = 2
ROOM = 1.15
CHANGED = 1.5
"""What a request costs before its first token, in tokens of output."""


def gain(low: float, low_goodput: float, high: float, high_goodput: float) -> float:
    """Relative rise of goodput per relative rise of concurrency: 1 while the server has room, 0 when all is queueing."""
    return math.log(high_goodput / low_goodput) / math.log(high / low)


class Meter:
    """Work per second over windows of about one generation of requests, while the limit is in full use."""

    __slots__ = ("_mean_work", "_start", "_target", "_work", "count", "level")

    def __init__(self) -> None:
        self.level = 0
        self.count = 0
        self._work = 0.0
        self._start = 0.0
        self._target = 0
        self._mean_work = 0.0

    def start(self, level: int, now: float) -> None:
        """Forget the open window and begin one."""
        self.level = level
        self.count = 0
        self._work = 0.0
        self._start = now
        self._target = max(level, SMALLEST_WINDOW)

    def add(self, tokens: int, now: float) -> float | None:
        """Count one completion. Returns the goodput if that closed the window; the caller starts the next."""
        if tokens > 0:
            work = float(tokens + PROMPT_TOKENS)
            self._mean_work += (work - self._mean_work) * (0.02 if self._mean_work else 1.0)
        else:
            work = self._mean_work or 1.0
        self.count += 1
        self._work += work
        if self.count < self._target or now <= self._start:
            return None
        return self.goodput(now)

    def goodput(self, now: float) -> float:
        """Work per second in the window so far."""
        return self._work / max(now - self._start, 1e-9)


class _Cell:
    """What is known of one level."""

    __slots__ = ("goodput", "seen", "windows")

    def __init__(self, goodput: float, seen: int) -> None:
        self.goodput = goodput
        self.windows = 0
        self.seen = seen

    def add(self, goodput: float, seen: int) -> None:
        self.windows += 1
        self.goodput += (goodput - self.goodput) * max(0.25, 1 / self.windows)
        self.seen = seen


class Hill:
    """Looks for the lowest level whose goodput is about the best: measure here, compare neighbours, move one step."""

    def __init__(self, ceiling: int) -> None:
        levels = [1]
        while levels[-1] < ceiling:
            levels.append(min(ceiling, max(levels[-1] + 1, round(levels[-1] * STEP))))
        self._levels = levels
        self._cells: dict[int, _Cell] = {}
        self._tick = 0
        self._here = 0
        self._climbed = 0

    @property
    def level(self) -> int:
        """Where to be now."""
        return self._levels[self._here]

    @property
    def open_above(self) -> bool:
        """True if the last steps up all paid well and nothing is known further up: no need to go step by step."""
        return self._climbed >= 2

    def begin(self, level: int, known: list[tuple[int, float]]) -> None:
        """Start over at `level`, with what is known of other levels from the way there."""
        self._climbed = 0
        self._cells.clear()
        for other, goodput in known:
            self._cells[self._index(other)] = _Cell(goodput, self._tick)
        self._here = self._index(level)

    def measured(self, goodput: float) -> None:
        """Take in one window at the current level, and move if a neighbour is better or unknown."""
        self._tick += 1
        cell = self._cells.get(self._here)
        if cell is None or not 1 / CHANGED < goodput / cell.goodput < CHANGED:
            if cell is not None and cell.windows:
                self._cells.clear()  # the server is not what it was: nothing known of other levels holds
                if goodput > cell.goodput:
                    self._climbed = 2
                    self._cells[self._here] = _Cell(goodput, self._tick)
                    return
            cell = self._cells[self._here] = _Cell(goodput, self._tick)
        cell.add(goodput, self._tick)
        self._here = self._next(self._here)

    def _next(self, here: int) -> int:
        lower = max((i for i in self._cells if i < here), default=None)
        upper = min((i for i in self._cells if i > here and self._fresh(i)), default=None)
        lift = math.inf if lower is None else self._gain(lower, here)
        if upper is not None and self._gain(here, upper) >= PAYS:
            return here + 1
        if lift < PAYS:
            self._climbed = 0
            return here - 1
        if upper is None and here + 1 < len(self._levels):
            if self._cells[here].windows < MINW: return here
            if lower == here - 1 and lift >= PAYS_WELL:
                self._climbed += 1
            return here + 1
        self._climbed = 0
        if here > 0 and not self._fresh(here - 1):
            if lower is None: return here - 1
            knee = self._levels[lower] * self._cells[here].goodput / self._cells[lower].goodput
            if knee < ROOM * self._levels[here - 1]:
                return here - 1
        return here

    def _index(self, level: int) -> int:
        return min(bisect_left(self._levels, level), len(self._levels) - 1)

    def _fresh(self, i: int) -> bool:
        return i in self._cells and self._tick - self._cells[i].seen <= STALE

    def _gain(self, low: int, high: int) -> float:
        return gain(self._levels[low], self._cells[low].goodput, self._levels[high], self._cells[high].goodput)
