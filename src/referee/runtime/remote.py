"""The near side of judging that happens elsewhere: what is out, where, and what has landed.

Every sample lands once, whatever is sent twice: samples of a far side that is lost are sent again, and an end that
comes late is dropped. A batch ends by its deadline even if no far side ever answers.
"""

from __future__ import annotations

import asyncio
import logging
import math
import zlib
from collections import deque
from collections.abc import Callable, Sequence

from referee import clock
from referee.batch import Batch
from referee.config import Config
from referee.errors import EndpointClosed, RefereeError
from referee.records import Reason, Reward, Sample, Settled, Unscored
from referee.runtime.books import Books
from referee.runtime.messages import Cancel, Gauge, Landed, Part, Work, settled_of
from referee.shaping import UnscoredWatch

log = logging.getLogger("referee.runtime")

ROOM = 4096
"""Samples that may be out at one far side. More wait here, where they cost nothing."""
CHUNK = 1024
CHUNK_TEXT = 4_000_000
"""Samples, and characters, in one message."""
LATE = 1.0
"""Seconds beyond its deadline, or after a cancel, that a batch waits for the far side's own word on it."""
RETURN, RETURN_SHARE = 0.1, 0.02
"""Seconds before its deadline, and share of its time, at which far sides end a batch: their word must travel back."""
LOSSES = 3
"""Far sides that may be lost with a sample before the sample itself is held to be the cause."""
SAMPLE_EVERY = 1.0
"""Seconds between two looks at the limits, while there is work."""

Send = Callable[[int, Sequence[Work | Cancel]], None]
"""Carries messages to a far side, by its number, in order. Returns at once; if they cannot be carried, `lost` is called
later, not from inside."""


def route(sample: Sample, shards: int) -> int:
    """Which far side judges a sample: equal requests meet in one place, whoever sends them."""
    if shards == 1:
        return 0
    mark = zlib.crc32(sample.response.encode("utf-8", "surrogatepass"))
    mark = zlib.crc32(sample.prompt.encode("utf-8", "surrogatepass"), mark)
    if sample.reference is not None:
        mark = zlib.crc32(sample.reference.encode("utf-8", "surrogatepass"), mark)
    return mark % shards


def _sum(so_far: Gauge | None, gauge: Gauge, in_flight: int) -> Gauge:
    if so_far is None:
        so_far = Gauge(gauge.endpoint, 0, 0, 0, 0)
    return Gauge(
        gauge.endpoint,
        max(so_far.limit, gauge.limit),
        so_far.in_flight + in_flight,
        so_far.sent + gauge.sent,
        so_far.throttled + gauge.throttled,
    )


class _Out:
    """One batch under way."""

    __slots__ = ("batch", "deadline", "losses", "stopping", "ticket", "timer")

    def __init__(self, batch: Batch, ticket: int, deadline: float) -> None:
        self.batch = batch
        self.ticket = ticket
        self.deadline = deadline
        self.timer: asyncio.TimerHandle | None = None
        self.losses: dict[int, int] = {}
        self.stopping: Unscored | None = None


class _Shard:
    """One far side, as seen from here."""

    __slots__ = ("count", "last", "out", "queue", "up")

    def __init__(self) -> None:
        self.up = False
        self.queue: deque[tuple[_Out, int]] = deque()
        self.out: dict[int, set[int]] = {}
        """Indexes that were sent, by ticket."""
        self.count = 0
        self.last = Landed(())


class Remote:
    """Keeps account of samples that are judged elsewhere. All of it runs on one loop."""

    def __init__(self, config: Config, shards: int, send: Send, *, gather: float = 0.0, room: int = ROOM) -> None:
        """`gather`: seconds that samples wait for company when others were sent less than that ago."""
        self.books = Books(config)
        self._config = config
        self._send = send
        self._gather = gather
        self._room = room
        self._shards = [_Shard() for _ in range(shards)]
        self._outs: dict[int, _Out] = {}
        self._tickets: dict[Batch, int] = {}
        self._next = 0
        self._watch = UnscoredWatch(config.missing.abort_above)
        self._past: dict[str, Gauge] = {}
        self._past_usd = 0.0
        self._past_hedged = 0
        """What far sides that are gone had sent and spent."""
        self._flushed = -math.inf
        self._flush_due = False
        self._sampler: asyncio.TimerHandle | None = None

    @property
    def outstanding(self) -> int:
        """Batches that are not done."""
        return len(self._outs)

    def submit(self, batch: Batch) -> None:
        """Send a batch's samples out, as far as there is room."""
        loop = asyncio.get_running_loop()
        self._next += 1
        out = self._outs[self._next] = _Out(batch, self._next, loop.time() + batch.seconds - batch.late)
        self._tickets[batch] = out.ticket
        if math.isfinite(out.deadline):
            out.timer = clock.at(loop, out.deadline + LATE, lambda: self._expire(out))
        count = len(self._shards)
        for index, sample in enumerate(batch.samples):
            self._shards[route(sample, count)].queue.append((out, index))
        self._flush_soon()
        self._watch_limits()

    def cancel(self, batch: Batch, why: Unscored) -> None:
        """Stop a batch. What never left ends now; the rest when its far side says what it cost, or a moment later."""
        out = self._outs.get(self._tickets.get(batch, 0))
        if out is not None and out.stopping is None:
            self._stop(out, why)

    def landed(self, shard: int, message: Landed) -> None:
        """Something came back."""
        place = self._shards[shard]
        place.last = message
        if message.texts and self.books.kept:
            self.books.texts(message.texts)
        for part in message.parts:
            sent = place.out.get(part.ticket)
            if sent is not None:
                before = len(sent)
                sent.difference_update(end.index for end in part.ends)
                place.count -= before - len(sent)
                if not sent:
                    del place.out[part.ticket]
            out = self._outs.get(part.ticket)
            if out is not None:
                self._land_part(out, part)
        if place.queue:
            self._flush(shard)

    def ready(self, shard: int) -> None:
        """A far side is there: it gets what waits for it."""
        self._shards[shard].up = True
        self._flush(shard)

    def lost(self, shard: int) -> None:
        """A far side is gone. What was out there waits for the next one, in its old place in the line."""
        place = self._shards[shard]
        place.up = False
        again: list[tuple[_Out, int]] = []
        for ticket, indexes in place.out.items():
            out = self._outs.get(ticket)
            if out is None:
                continue
            if out.stopping is not None:
                self._end_all(out, out.stopping)
                continue
            doomed = []
            for index in sorted(indexes):
                if out.batch.landed(index):
                    continue
                out.losses[index] = out.losses.get(index, 0) + 1
                if out.losses[index] < LOSSES:
                    again.append((out, index))
                else:
                    doomed.append(index)
            if doomed:
                why = f"its judging process died {LOSSES} times; see the log and the system's memory limits"
                self._land_all(out, doomed, Unscored(reason=Reason.CONFIG, detail=why))
        place.out.clear()
        place.count = 0
        for gauge in place.last.gauges:  # what it sent was sent
            self._past[gauge.endpoint] = _sum(self._past.get(gauge.endpoint), gauge, in_flight=0)
        self._past_usd += place.last.spent_usd
        self._past_hedged += place.last.hedged
        place.last = Landed(())
        place.queue.extendleft(reversed(again))

    def fail(self, error: RefereeError) -> None:
        """Nothing can be judged any more: whoever waits gets this error."""
        for out in list(self._outs.values()):
            out.batch.fail(error)
            self._finish(out)

    def end_all(self, why: Unscored) -> None:
        """Give everything an end, now, without asking anybody."""
        for out in list(self._outs.values()):
            self._end_all(out, why)

    def close(self) -> None:
        """Write the books out. Nothing may land afterwards."""
        if self._sampler is not None:
            self._sampler.cancel()
        self.books.close()

    def metrics(self) -> dict[str, float]:
        """Counts so far, and how hard the endpoints are pressed, by all far sides together."""
        found = self.books.tally.metrics()
        gauges = self._gauges()
        last = [shard.last for shard in self._shards]
        found.update(
            in_flight=float(sum(gauge.in_flight for gauge in gauges)),
            limit=float(sum(gauge.limit for gauge in gauges)),
            queued=float(sum(landed.queued for landed in last) + sum(len(shard.queue) for shard in self._shards)),
            requests=float(sum(gauge.sent for gauge in gauges)),
            throttled=float(sum(gauge.throttled for gauge in gauges)),
            hedged=float(self._past_hedged + sum(landed.hedged for landed in last)),
            budget_spent_usd=self._past_usd + sum(landed.spent_usd for landed in last),
        )
        return found

    def _land_part(self, out: _Out, part: Part) -> None:
        batch, rewards, tripped = out.batch, list[Reward](), False
        for end in part.ends:
            if batch.landed(end.index):
                continue
            settled = settled_of(end)
            if part.closed and end.unscored is not None and end.unscored.reason is not Reason.CANCELLED:
                batch.error = batch.error or EndpointClosed(part.closed[1], reason=part.closed[0])
            tripped |= self._land(out, end.index, settled, end.line, rewards)
        self._hand_over(out, rewards, tripped)

    def _land_all(self, out: _Out, indexes: Sequence[int], why: Unscored) -> None:
        rewards, tripped = list[Reward](), False
        for index in indexes:
            tripped |= self._land(out, index, Settled(verdict=why), b"", rewards)
        self._hand_over(out, rewards, tripped)

    def _land(self, out: _Out, index: int, settled: Settled, line: bytes, rewards: list[Reward]) -> bool:
        """The end of one sample: shape what it completes, record it. True if too much is unscored now."""
        batch = out.batch
        rewards += batch.land(index, settled)
        try:
            self.books.settled(batch, index, settled, line)
        except Exception:  # the reward is there; a record that cannot be kept must not withhold it
            log.exception("the record of a sample could not be kept")
        if batch.error is not None or not self._watch.observe(settled.verdict):
            return False
        batch.error = self._watch.error()
        self._watch = UnscoredWatch(self._config.missing.abort_above)
        return True

    def _hand_over(self, out: _Out, rewards: list[Reward], tripped: bool) -> None:
        try:
            self.books.rewarded(out.batch, rewards)
        except Exception:
            log.exception("the record of some rewards could not be kept")
        out.batch.hand_over(rewards)
        if out.batch.done:
            self._finish(out)
        elif tripped:
            self._stop(out, Unscored(reason=Reason.CANCELLED, detail="too many samples were unscored"))

    def _stop(self, out: _Out, why: Unscored) -> None:
        out.stopping = why
        away: set[int] = set()
        for number, shard in enumerate(self._shards):
            if shard.up and out.ticket in shard.out:
                away |= shard.out[out.ticket]
                self._send(number, (Cancel(out.ticket, why),))
        if out.timer is not None:
            out.timer.cancel()
        loop = asyncio.get_running_loop()
        out.timer = clock.at(loop, loop.time() + LATE, lambda: self._end_all(out, why))
        self._land_all(out, [index for index in out.batch.pending() if index not in away], why)

    def _expire(self, out: _Out) -> None:
        why = f"not judged within {out.batch.seconds:g} s, and the place that judges did not answer"
        self._end_all(out, Unscored(reason=Reason.DEADLINE, detail=why))

    def _end_all(self, out: _Out, why: Unscored) -> None:
        out.stopping = out.stopping or why
        self._land_all(out, out.batch.pending(), why)

    def _finish(self, out: _Out) -> None:
        if out.timer is not None:
            out.timer.cancel()
        self._outs.pop(out.ticket, None)
        self._tickets.pop(out.batch, None)

    def _flush_soon(self) -> None:
        if self._flush_due:
            return
        self._flush_due = True
        loop = asyncio.get_running_loop()
        clock.at(loop, max(loop.time(), self._flushed + self._gather), self._flush_all)

    def _flush_all(self) -> None:
        self._flush_due = False
        self._flushed = clock.now()
        for number in range(len(self._shards)):
            self._flush(number)

    def _flush(self, number: int) -> None:
        """Send what waits for a far side, while there is room there."""
        shard = self._shards[number]
        messages: list[Work | Cancel] = []
        now = clock.now()
        while shard.up and shard.queue and shard.count < self._room:
            out, indexes = self._chunk(shard)
            if not indexes:
                continue
            samples = tuple(out.batch.samples[index] for index in indexes)
            # 0 is no time to be judged in; a far side lets it expire at once.
            left = max(0.001, out.deadline - min(RETURN, RETURN_SHARE * out.batch.seconds) - now)
            messages.append(Work(out.ticket, out.batch.id, left, tuple(indexes), samples, out.batch.caller))
            shard.out.setdefault(out.ticket, set()).update(indexes)
            shard.count += len(indexes)
        if messages:
            self._send(number, messages)

    def _chunk(self, shard: _Shard) -> tuple[_Out, list[int]]:
        """The next samples of one batch that still want judging."""
        first, indexes, text = shard.queue[0][0], list[int](), 0
        room = min(CHUNK, self._room - shard.count)
        while shard.queue and shard.queue[0][0] is first and len(indexes) < room and text < CHUNK_TEXT:
            index = shard.queue.popleft()[1]
            if not first.batch.done and first.stopping is None and not first.batch.landed(index):
                indexes.append(index)
                sample = first.batch.samples[index]
                text += len(sample.response) + len(sample.prompt)
        return first, indexes

    def _gauges(self) -> list[Gauge]:
        """One per endpoint. Every far side knows the whole limit; what is sent and in flight adds up."""
        merged = dict(self._past)
        for shard in self._shards:
            for gauge in shard.last.gauges:
                merged[gauge.endpoint] = _sum(merged.get(gauge.endpoint), gauge, gauge.in_flight)
        return list(merged.values())

    def _watch_limits(self) -> None:
        if self._sampler is None and self.books.kept:
            loop = asyncio.get_running_loop()
            self._sampler = clock.at(loop, loop.time() + SAMPLE_EVERY, self._sample_limits)

    def _sample_limits(self) -> None:
        self._sampler = None
        gauges = self._gauges()
        if gauges:
            self.books.limits(gauges, sum(shard.last.queued for shard in self._shards))
        if self._outs:
            self._watch_limits()
