"""What happened over time: throughput, latency, limits. Slices that widen by themselves, so memory stays bounded."""

from __future__ import annotations

from referee.ledger.histograms import Histogram
from referee.ledger.lines import LimitsLine, VerdictLine
from referee.report.shape import EndpointPoint, TimeRow
from referee.report.sums import merge_histogram

MOST_SLICES = 240
"""Slices at most; one more, and all become twice as wide."""

Source = tuple[str, str]
"""A run and an endpoint."""


class _Pressure:
    """One endpoint as one run saw it within a slice."""

    __slots__ = ("in_flight", "limit", "looks", "requests", "throttled")

    def __init__(self) -> None:
        self.looks = self.requests = self.throttled = 0
        self.limit = self.in_flight = 0.0

    def merge(self, other: _Pressure) -> None:
        for name in self.__slots__:
            setattr(self, name, getattr(self, name) + getattr(other, name))


class _Slice:
    """The running sums of one slice."""

    def __init__(self) -> None:
        self.scored = self.calls = self.free = self.queued = 0
        self.unscored: dict[str, int] = {}
        self.cost = 0.0
        self.latency, self.queue = Histogram(), Histogram()
        self.pressure: dict[Source, _Pressure] = {}

    def verdict(self, line: VerdictLine) -> None:
        if line.value is None:
            self.unscored[line.unscored] = self.unscored.get(line.unscored, 0) + 1
        else:
            self.scored += 1
        self.calls += line.origin == "call"
        self.free += line.origin in ("cache", "shared", "gate")
        self.cost += line.cost
        if line.origin in ("call", "none") and line.attempts:
            self.latency.add(line.latency_s)
            self.queue.add(line.queued_s)

    def merge(self, other: _Slice) -> None:
        self.scored += other.scored
        self.calls += other.calls
        self.free += other.free
        self.queued = max(self.queued, other.queued)
        self.cost += other.cost
        for reason, count in other.unscored.items():
            self.unscored[reason] = self.unscored.get(reason, 0) + count
        merge_histogram(self.latency, other.latency)
        merge_histogram(self.queue, other.queue)
        for source, pressure in other.pressure.items():
            self.pressure.setdefault(source, _Pressure()).merge(pressure)

    def row(self, start: float) -> TimeRow:
        return TimeRow(
            start=start,
            samples=self.scored + sum(self.unscored.values()),
            scored=self.scored,
            unscored=dict(sorted(self.unscored.items())),
            calls=self.calls,
            free=self.free,
            latency_p50=_quantile(self.latency, 0.5),
            latency_p95=_quantile(self.latency, 0.95),
            latency_p99=_quantile(self.latency, 0.99),
            queue_p50=_quantile(self.queue, 0.5),
            cost=self.cost,
            queued=self.queued,
            endpoints=self._endpoints(),
        )

    def _endpoints(self) -> dict[str, EndpointPoint]:
        found: dict[str, EndpointPoint] = {}
        for (_, endpoint), pressure in sorted(self.pressure.items()):
            point = found.setdefault(endpoint, EndpointPoint())
            point.limit += pressure.limit / pressure.looks
            point.in_flight += pressure.in_flight / pressure.looks
            point.requests += pressure.requests
            point.throttled += pressure.throttled
        return found


class Times:
    """Verdict and limits lines by slice of time. Lines may come in any order; the limits lines of a run in theirs."""

    def __init__(self, most: int = MOST_SLICES) -> None:
        self.width = 1.0
        self._most = most
        self._slices: dict[int, _Slice] = {}
        self._totals: dict[Source, tuple[int, int, float]] = {}
        """Throttled answers and requests so far, and when that was."""

    def verdict(self, line: VerdictLine) -> None:
        """One sample's end."""
        self._at(line.wall).verdict(line)

    def take_back(self, wall: float, reason: str) -> None:
        """A sample that was unscored then has been judged since. What was scored stays: it happened at that time."""
        unscored = self._at(wall).unscored
        unscored[reason] -= 1
        if not unscored[reason]:
            del unscored[reason]

    def limits(self, line: LimitsLine, run: str, began: float = 0.0) -> None:
        """One look at an endpoint. Its totals become what was new since the look before.

        Several processes may look at the same engines under one `run`, each from when it `began`.
        """
        slice_, source = self._at(line.wall), (run, line.endpoint)
        throttled, requests, seen = self._totals.get(source, (0, 0, 0.0))
        if line.requests < requests and began > seen:
            throttled = requests = 0  # every earlier client had ended before: these are other engines
        # Another process may report an earlier moment later: what was new then is counted already.
        self._totals[source] = (max(throttled, line.throttled), max(requests, line.requests), max(seen, line.wall))
        pressure = slice_.pressure.setdefault(source, _Pressure())
        pressure.looks += 1
        pressure.limit += line.limit
        pressure.in_flight += line.in_flight
        pressure.throttled += max(0, line.throttled - throttled)
        pressure.requests += max(0, line.requests - requests)
        slice_.queued = max(slice_.queued, line.queued)

    def rows(self) -> list[TimeRow]:
        """The slices so far, in order of time."""
        return [self._slices[place].row(place * self.width) for place in sorted(self._slices)]

    def latencies(self) -> list[tuple[float, int]]:
        """All answers by how long they took, in ranges without gaps."""
        whole = Histogram()
        for slice_ in self._slices.values():
            merge_histogram(whole, slice_.latency)
        places = [place for place, count in enumerate(whole.counts) if count]
        if not places:
            return []
        return [(Histogram.middle(place), whole.counts[place]) for place in range(places[0], places[-1] + 1)]

    def _at(self, wall: float) -> _Slice:
        found = self._slices.get(int(wall // self.width))
        if found is None:
            found = self._slices[int(wall // self.width)] = _Slice()
            while len(self._slices) > self._most:
                self._widen()
                found = self._slices[int(wall // self.width)]
        return found

    def _widen(self) -> None:
        self.width *= 2
        wider: dict[int, _Slice] = {}
        for place, slice_ in self._slices.items():
            wider.setdefault(place // 2, _Slice()).merge(slice_)
        self._slices = wider


def _quantile(histogram: Histogram, share: float) -> float | None:
    return histogram.quantile(share) if histogram.total else None
