"""The tracker of a process whose workers are elsewhere: which worker has which samples, and what a loss means.

Samples of a worker that is lost are sent again, and a result that comes late is dropped. A batch ends by its deadline
even if no worker ever answers.
"""

from __future__ import annotations

import asyncio
import functools
import math
from collections.abc import Callable, Sequence

from msgspec.structs import replace

from referee import clock
from referee.config import Config
from referee.judging import needs_groups, seen_by
from referee.records import Reason, Unscored
from referee.runtime.routing import Routed, Router, Unit, WorkerQueue, route_key
from referee.scoring.messages import Cancel, Gauge, Update, Work
from referee.scoring.recorder import Recorder
from referee.scoring.tracker import BatchTracker, OpenBatch, time_left
from referee.scoring.worker import END_EARLY

GRACE = 1.0
"""Seconds beyond its deadline, or after a cancel, that a batch waits for the workers' own results."""
TRAVEL, TRAVEL_SHARE = 0.1, 0.02
"""Seconds before its deadline, and share of its time, at which workers end a batch: results must travel back."""
MAX_LOSSES = 3
"""Workers that may be lost with a sample before the sample itself is held to be the cause."""

Send = Callable[[int, Sequence[Work | Cancel]], None]
"""Carries messages to a worker, by its number, in order. Returns at once; if they cannot be carried, `lost` is called
later, not from inside."""


class RemoteTracker(BatchTracker):
    """A tracker whose workers are reached by messages."""

    def __init__(
        self, config: Config, workers: int, send: Send, *, gather: float = 0.0, exclusive: bool = False
    ) -> None:
        """`gather`: seconds that samples wait for others when some were sent less than that ago. `exclusive`: the
        workers serve no other client."""
        super().__init__(config, Recorder(config, encoded=True))
        self._send = send
        self._gather = gather
        self._workers = [WorkerQueue() for _ in range(workers)]
        self._whole_groups = needs_groups(config.judge)
        self._routed: dict[int, Routed] = {}
        self._timers: dict[int, asyncio.TimerHandle] = {}
        self._router = Router(
            self._workers,
            limit=0 if config.limits.concurrency == "auto" else config.limits.concurrency,
            key_of=functools.partial(route_key, seen=seen_by(config.judge)),
            balanced=exclusive and _findable(config),
        )
        self._past = Update()
        """What workers that are gone had sent and spent."""
        self._flushed = -math.inf
        self._flush_due = False

    def has_work(self, worker: int) -> bool:
        """Whether a worker has samples to judge."""
        return self._workers[worker].count > 0

    def updated(self, worker: int, update: Update) -> None:
        """An update of a worker."""
        place = self._workers[worker]
        place.last = update
        if update.texts and self.recorder.kept:
            self.recorder.texts(update.texts)
        for part in update.parts[:1] if update.changes else ():
            self.changed(update.changes, part.ticket, part.results)
        for part in update.parts:
            self._router.ended(place, part.ticket, [result.index for result in part.results])
            opened = self.find(part.ticket)
            if opened is None:
                continue
            self.landed(part.ticket, part.results, part.fault)
            if _may_be_over(opened) and any(
                _is_deadline(end.verdict) for result in part.results for end in result.settled
            ):
                self._end_unsent(opened)
        self._send_out()

    def ready(self, worker: int) -> None:
        """A worker is there: it gets what waits for it."""
        self._workers[worker].up = True
        self._send_out()

    def lost(self, worker: int) -> None:
        """A worker is gone. Its samples wait for its replacement, before all others. If one sample of a group has no
        result, the whole group is judged again; results that have landed stay."""
        place = self._workers[worker]
        place.up = False
        again: list[tuple[Routed, Unit]] = []
        for ticket, indexes in list(place.out.items()):
            opened, routed = self.find(ticket), self._routed.get(ticket)
            if opened is None or routed is None:
                continue
            if opened.stopping is not None:
                self.land_unscored(opened, list(indexes), opened.stopping)
                continue
            doomed: list[int] = []
            for unit in routed.units_of(indexes):
                if all(map(opened.batch.landed, unit)):
                    continue
                losses = routed.losses[unit[0]] = routed.losses.get(unit[0], 0) + 1
                if losses < MAX_LOSSES:
                    again.append((routed, unit))
                else:
                    doomed += unit
            why = f"its judging process died {MAX_LOSSES} times; see the log and the system's memory limits"
            self.land_unscored(opened, doomed, Unscored(reason=Reason.CONFIG, detail=why))
        gone = replace(place.last, gauges=tuple(replace(g, limit=0, in_flight=0) for g in place.last.gauges), queued=0)
        self._past = _sum([self._past, gone])  # what it sent was sent
        self._router.lost(place, again)

    def flush(self) -> None:
        """Send what waits, without waiting for more of it."""
        self._flush_due = False
        self._flushed = clock.now()
        self._send_out()

    def state(self) -> Update:
        """The load on each endpoint, by all workers together."""
        found = _sum([self._past, *(worker.last for worker in self._workers)])
        waiting = sum(routed.waiting for routed in list(self._routed.values()) if not routed.open.over)
        return replace(found, queued=found.queued + waiting + sum(worker.queued for worker in self._workers))

    def _begin(self, opened: OpenBatch) -> None:
        routed = self._routed[opened.ticket] = Routed(opened, self._whole_groups)
        if math.isfinite(opened.deadline):
            self._at(opened, opened.deadline - _margin(opened), lambda: self._end_unsent(opened))
        self._router.add(routed)
        if not self._flush_due:
            self._flush_due = True
            loop = asyncio.get_running_loop()
            clock.at(loop, max(loop.time(), self._flushed + self._gather), self.flush)

    def _recall(self, opened: OpenBatch, why: Unscored) -> None:
        """What was never sent ends now; the rest when its worker reports what it cost, or after GRACE seconds."""
        away: set[int] = set()
        for number, worker in enumerate(self._workers):
            if worker.up and opened.ticket in worker.out:
                away |= worker.out[opened.ticket].keys()
                self._send(number, (Cancel(opened.ticket, why),))
        self._at(opened, clock.now() + GRACE, lambda: self.land_unscored(opened, opened.batch.pending(), why))
        self.land_unscored(opened, [index for index in opened.batch.pending() if index not in away], why)

    def _forget(self, opened: OpenBatch) -> None:
        self._routed.pop(opened.ticket, None)
        timer = self._timers.pop(opened.ticket, None)
        if timer is not None:
            timer.cancel()

    def _at(self, opened: OpenBatch, when: float, call: Callable[[], None]) -> None:
        """One timer for each batch: the later one takes the place of the earlier."""
        timer = self._timers.pop(opened.ticket, None)
        if timer is not None:
            timer.cancel()
        self._timers[opened.ticket] = clock.at(asyncio.get_running_loop(), when, call)

    def _end_unsent(self, opened: OpenBatch) -> None:
        """Its time is over, for all workers if for one. They end what they have; what was never sent ends here."""
        if opened.over:
            return
        why = f"not judged within {opened.batch.seconds:g} s"
        opened.stopping = Unscored(reason=Reason.DEADLINE, detail=why)
        silent = Unscored(reason=Reason.DEADLINE, detail=f"{why}, and its worker did not answer")
        self._at(
            opened,
            opened.deadline + GRACE,
            lambda: self.land_unscored(opened, opened.batch.pending(), silent),
        )
        away = {index for worker in self._workers for index in worker.out.get(opened.ticket, ())}
        unsent = [index for index in opened.batch.pending() if index not in away]
        waiting = Unscored(reason=Reason.DEADLINE, detail=f"{why}: still waiting for its turn")
        self.land_unscored(opened, unsent, waiting)

    def _send_out(self) -> None:
        """Send what there is room for. What is over by now makes room for more when it is looked at, so once more."""
        moving = True
        while moving:
            moving = False
            for worker in self._workers:
                self._router.fill(worker)
            for number, worker in enumerate(self._workers):
                if worker.queue and self._router.room(worker) > 0:
                    self._send_some(number, worker)
                    moving = True

    def _send_some(self, number: int, worker: WorkerQueue) -> None:
        messages: list[Work | Cancel] = []
        while worker.queue and (room := self._router.room(worker)) > 0:
            routed, indexes = self._router.take(worker, room)
            if not indexes:
                continue
            opened, batch = routed.open, routed.open.batch
            samples = tuple(batch.samples[index] for index in indexes)
            left = time_left(opened, _margin(opened))
            who = batch.caller, batch.team, batch.asked
            messages.append(Work(opened.ticket, batch.id, left, batch.seconds, tuple(indexes), samples, *who))
        if messages:
            self._send(number, messages)


def _findable(config: Config) -> bool:
    """Whether what one worker has judged is there for the others, or for none."""
    return bool(config.cache.path or (config.redis.url and config.redis.cache)) or not config.cache.enabled


def _margin(opened: OpenBatch) -> float:
    """Seconds before a batch's deadline at which workers end it."""
    return min(TRAVEL, TRAVEL_SHARE * opened.batch.seconds)


def _may_be_over(opened: OpenBatch) -> bool:
    """Whether a worker may have ended it by now. A judge may say `deadline` of one sample for a reason of its own."""
    return clock.now() >= opened.deadline - _margin(opened) - END_EARLY * opened.batch.seconds


def _is_deadline(verdict: object) -> bool:
    return isinstance(verdict, Unscored) and verdict.reason is Reason.DEADLINE


def _sum(states: Sequence[Update]) -> Update:
    """One gauge per endpoint. Every worker knows the whole limit; what is sent and in flight adds up."""
    gauges: dict[str, Gauge] = {}
    for gauge in (gauge for state in states for gauge in state.gauges):
        so_far = gauges.get(gauge.endpoint, Gauge(gauge.endpoint, 0, 0, 0, 0))
        gauges[gauge.endpoint] = Gauge(
            gauge.endpoint,
            max(so_far.limit, gauge.limit),
            so_far.in_flight + gauge.in_flight,
            so_far.sent + gauge.sent,
            so_far.throttled + gauge.throttled,
        )
    return Update(
        gauges=tuple(gauges.values()),
        queued=sum(state.queued for state in states),
        spent_usd=sum(state.spent_usd for state in states),
        hedged=sum(state.hedged for state in states),
        cache_lost=sum(state.cache_lost for state in states),
    )
