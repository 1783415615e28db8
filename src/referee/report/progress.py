"""How much of a run is done and how long the rest takes, where the ledger says how long it will be. Pure."""

from __future__ import annotations

from collections import deque

from msgspec import Struct

from referee.ledger import Line, RunLine, TotalLine, VerdictLine

LATEST = 20
"""Steps whose pace is taken for the rest."""
STALLED_AFTER = 3.0
"""Steps that take this many times as long as those before say nothing about the rest any more."""
SLACK_S = 60.0


class Progress(Struct, kw_only=True):
    """What is done of what is known to come. 0: not known."""

    samples: int = 0
    done: int = 0
    steps: int = 0
    begun: int = 0
    """Of these steps; a run whose first step is 0 has begun one more than its number says."""
    left_s: float | None = None
    """Seconds, at the present pace; None: not known."""


class _Source:
    """One file, since its last start."""

    def __init__(self, began: float) -> None:
        self.began = self.latest = began
        self.ended = 0
        self.total = TotalLine()


class Totals:
    """Fed line by line."""

    def __init__(self) -> None:
        self._sources: dict[str, _Source] = {}
        self._total = TotalLine()
        self._steps: deque[tuple[int, float]] = deque(maxlen=LATEST)
        """The latest steps, and when each was first seen."""
        self._from_zero = False

    def add(self, line: Line, source: str) -> None:
        """Count one line of this file."""
        found = self._sources.get(source)
        if found is None or isinstance(line, RunLine):
            found = self._sources[source] = _Source(line.wall)
        found.latest = max(found.latest, line.wall)
        if isinstance(line, TotalLine):
            found.total = self._total = line
        elif isinstance(line, VerdictLine):
            found.ended += 1
            if line.step is not None and (not self._steps or line.step > self._steps[-1][0]):
                self._steps.append((line.step, line.wall))
                self._from_zero |= line.step == 0

    def progress(self, samples: int, pace: float, wall: float) -> Progress:
        """At this moment. `samples`: that the whole ledger holds with an end; `pace`: those of a second, now."""
        total = self._total
        done = samples if total.resumed else self._ended()
        begun = self._steps[-1][0] + self._from_zero if self._steps else 0
        known = Progress(samples=total.samples, done=min(done, total.samples), steps=total.steps, begun=begun)
        if total.samples:
            rest = total.samples - known.done
            known.left_s = rest / pace if pace > 0 else None if rest else 0.0
        elif total.steps:
            known.left_s = self._steps_left(total.steps, wall)
        return known

    def _ended(self) -> int:
        """By the processes that announced this total and were there when the last of them began."""
        announced = [one for one in self._sources.values() if one.total.samples == self._total.samples]
        began = max((one.began for one in announced), default=0.0)
        return sum(one.ended for one in announced if one.latest >= began)

    def _steps_left(self, steps: int, wall: float) -> float | None:
        if len(self._steps) < 2:
            return None
        (first, begun), (last, seen) = self._steps[0], self._steps[-1]
        each, since = (seen - begun) / (last - first), wall - seen
        if since > STALLED_AFTER * each + SLACK_S:
            return None
        return max(0.0, (steps - last) * each - since)
