"""A run as it goes: the report's numbers kept up to date while the ledger grows, and the newest samples.

The same object feeds the terminal, the page in a browser and `--json`.
"""

from __future__ import annotations

import threading
from pathlib import Path

from msgspec import Struct, field

from referee.ledger import LimitsLine, Line, RunLine, VerdictLine
from referee.report.data import Gathering
from referee.report.follow import Follower
from referee.report.newest import Newest, NewestSamples, Opened
from referee.report.progress import Progress, Totals
from referee.report.run_info import on_a_cluster
from referee.report.shape import Report, TimeRow

RECENT = 60.0
"""Seconds that count as now."""


class Now(Struct, kw_only=True):
    """How things are at this moment; the rest of the numbers is of the whole run."""

    samples_per_s: float = 0.0
    """Over the last minute; of a run that has ended, 0."""
    limit: float = 0.0
    in_flight: float = 0.0
    queued: float = 0.0
    step: int | None = None
    """The latest step seen."""
    last_s: float | None = None
    """Seconds since the latest record; None before the first."""
    progress: Progress = field(default_factory=Progress)


class Snapshot(Struct, kw_only=True):
    """What is shown of a run."""

    path: str
    wall: float
    """When it was taken, in seconds since the epoch."""
    lines: int
    """Lines read. While it stays the same, so does the report."""
    files: int
    torn: int
    skipped: int
    unknown: int
    restarts: int
    """Files that were cut or replaced made it read everything again so often."""
    behind: bool
    """Still reading what was there before."""
    now: Now
    report: Report
    newest: list[Newest]
    """The latest first."""


class Watch:
    """Follows a run. Safe to ask from several threads; `update` does the reading."""

    def __init__(self, path: str | Path, texts: bool = True) -> None:
        """`texts`: the newest samples keep what the ledger holds of prompts, answers and the judge's words."""
        self._follower = Follower(path)
        self._texts = texts
        self._lock = threading.Lock()
        self._begin()

    def _begin(self) -> None:
        self._gathering = Gathering()
        self._newest = NewestSamples(self._texts)
        self._totals = Totals()
        self._gauges: dict[tuple[str, str], LimitsLine] = {}
        self._lines = self._reported = 0
        self._report: Report | None = None
        self._clusters: set[str] = set()
        self._latest = self._began = 0.0
        self._step: int | None = None

    def update(self) -> int:
        """Read what is new; how many lines that was."""
        with self._lock:
            if self._follower.started_over():
                self._begin()
            count = 0
            for source, line in self._follower.look():
                self._add(source, line)
                count += 1
            return count

    def catch_up(self) -> None:
        """Read all that is there now."""
        self.update()
        while self._follower.behind:
            self.update()

    def snapshot(self, wall: float) -> Snapshot:
        """The state at `wall`, as of the last update."""
        with self._lock:
            follower = self._follower
            report = self._current()
            return Snapshot(
                path=str(follower.path),
                wall=wall,
                lines=self._lines,
                files=follower.files,
                torn=follower.torn,
                skipped=follower.skipped,
                unknown=follower.unknown,
                restarts=follower.restarts,
                behind=follower.behind,
                now=self._now(report, wall),
                report=report,
                newest=self._newest.heads(),
            )

    def opened(self) -> Opened:
        """All that is kept of the newest samples."""
        with self._lock:
            return self._newest.opened()

    def _current(self) -> Report:
        """The report so far; made anew only when there are new lines, because a long run has much to add up."""
        if self._report is None or self._reported != self._lines:
            self._report, self._reported = self._gathering.report(), self._lines
            if self._follower.files > 1:  # several processes write at once
                self._report.metrics.update(self._fresh(self._latest))
        return self._report

    def _add(self, source: str, line: Line) -> None:
        self._gathering.add(line, source)
        self._lines += 1
        self._newest.add(line, source, self._lines)
        self._totals.add(line, source)
        self._latest = max(self._latest, line.wall)
        if isinstance(line, RunLine):
            self._began = max(self._began, line.wall)
            (self._clusters.add if on_a_cluster(line) else self._clusters.discard)(source)
        elif isinstance(line, LimitsLine):
            # Clients of a cluster all report the same engines.
            self._gauges["" if source in self._clusters else source, line.endpoint] = line
        elif isinstance(line, VerdictLine) and line.step is not None:
            self._step = line.step if self._step is None else max(self._step, line.step)

    def _fresh(self, wall: float) -> dict[str, float]:
        """The load of the endpoints, by the processes that were writing within the last minute.

        One that has said nothing since another began is over: that one resumed its work.
        """
        limit = in_flight = 0.0
        since = max(wall - RECENT, self._began)
        queues: dict[str, int] = {}
        for (source, _), line in self._gauges.items():
            if line.wall >= since:
                limit += line.limit
                in_flight += line.in_flight
                # Every endpoint's line has its process's whole queue.
                queues[source] = max(queues.get(source, 0), line.queued)
        return {"limit": limit, "in_flight": in_flight, "queued": float(sum(queues.values()))}

    def _now(self, report: Report, wall: float) -> Now:
        speed, metrics = pace(report.times, report.slice_s, wall), report.metrics
        ended = int(metrics["samples"] - metrics["unscored/cancelled"])
        return Now(
            **self._fresh(wall),
            samples_per_s=speed,
            step=self._step,
            last_s=max(0.0, wall - self._latest) if self._latest else None,
            progress=self._totals.progress(ended, speed, wall),
        )


def pace(times: list[TimeRow], width: float, wall: float) -> float:
    """Samples per second over the last minute, or since the beginning of a younger run."""
    begin = wall - max(RECENT, width)
    recent = [row for row in times if row.start + width > begin and row.start <= wall]
    if not recent:
        return 0.0
    span = wall - max(begin, times[0].start)
    return sum(row.samples for row in recent) / max(span, 1.0)
