"""The near side of judging that happens elsewhere: what is out, where, and what has landed.

Every sample lands once, whatever is sent twice: samples of a far side that is lost are sent again, and an end that
comes late is dropped. A batch ends by its deadline even if no far side ever answers.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Sequence

from msgspec.structs import replace

from referee import clock
from referee.batch import Batch
from referee.config import Config
from referee.errors import EndpointClosed, RefereeError
from referee.judging import seen_by
from referee.records import Reason, Reward, Settled, Unscored
from referee.runtime.books import Books
from referee.runtime.dealing import Dealer, Out, Shard
from referee.runtime.messages import Cancel, Gauge, Landed, Part, Work, settled_of
from referee.shaping import UnscoredWatch

log = logging.getLogger("referee.runtime")

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


def _findable(config: Config) -> bool:
    """Whether what one far side has judged is there for the others, or for nobody."""
    return bool(config.cache.path or (config.redis.url and config.redis.cache)) or not config.cache.enabled


def _due(out: Out) -> float:
    """When far sides end it."""
    return out.deadline - min(RETURN, RETURN_SHARE * out.batch.seconds)


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


class Remote:
    """Keeps account of samples that are judged elsewhere. All of it runs on one loop."""

    def __init__(self, config: Config, shards: int, send: Send, *, gather: float = 0.0, alone: bool = False) -> None:
        """`gather`: seconds that samples wait for company when others were sent less than that ago. `alone`: the far
        sides work for nobody else."""
        self.books = Books(config)
        self._config = config
        self._send = send
        self._gather = gather
        self._shards = [Shard() for _ in range(shards)]
        self._outs: dict[int, Out] = {}
        self._dealer = Dealer(
            self._shards,
            limit=0 if config.limits.concurrency == "auto" else config.limits.concurrency,
            seen=seen_by(config.judge),
            alone=alone and _findable(config),
        )
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

    def has(self, shard: int) -> bool:
        """Whether a far side has work."""
        return self._shards[shard].count > 0

    def submit(self, batch: Batch) -> None:
        """Send a batch's samples out, as far as there is room."""
        loop = asyncio.get_running_loop()
        self._next += 1
        out = self._outs[self._next] = Out(batch, self._next, loop.time() + batch.seconds - batch.late)
        self._tickets[batch] = out.ticket
        if math.isfinite(out.deadline):
            out.timer = clock.at(loop, _due(out), lambda: self._end_unsent(out))
        self._dealer.add(out)
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
            self._dealer.ended(place, part.ticket, [end.index for end in part.ends])
            out = self._outs.get(part.ticket)
            if out is not None:
                self._land_part(out, part)
        self._send_out()

    def ready(self, shard: int) -> None:
        """A far side is there: it gets what waits for it."""
        self._shards[shard].up = True
        self._send_out()

    def lost(self, shard: int) -> None:
        """A far side is gone. What was out there waits for the next one, in its old place in the line."""
        place = self._shards[shard]
        place.up = False
        again: list[tuple[Out, int]] = []
        for ticket, indexes in list(place.out.items()):
            out = self._outs.get(ticket)
            if out is None:
                continue
            if out.stopping is not None:
                self._land_all(out, [index for index in indexes if not out.batch.landed(index)], out.stopping)
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
        for gauge in place.last.gauges:  # what it sent was sent
            self._past[gauge.endpoint] = _sum(self._past.get(gauge.endpoint), replace(gauge, limit=0), in_flight=0)
        self._past_usd += place.last.spent_usd
        self._past_hedged += place.last.hedged
        self._dealer.lost(place, again)

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
        """Write the books out, with the totals of work that ended since the last look at the limits. Nothing may land
        afterwards."""
        if self._sampler is not None:
            self._sampler.cancel()
            self._write_limits()
        self.books.close()

    def metrics(self) -> dict[str, float]:
        """Counts so far, and how hard the endpoints are pressed, by all far sides together."""
        found = self.books.tally.metrics()
        gauges = self._gauges()
        last = [shard.last for shard in self._shards]
        waiting = sum(len(out.batch.samples) - out.dealt for out in list(self._outs.values()) if not out.over)
        found.update(
            in_flight=float(sum(gauge.in_flight for gauge in gauges)),
            limit=float(sum(gauge.limit for gauge in gauges)),
            queued=float(waiting + sum(landed.queued for landed in last) + sum(len(s.queue) for s in self._shards)),
            requests=float(sum(gauge.sent for gauge in gauges)),
            throttled=float(sum(gauge.throttled for gauge in gauges)),
            hedged=float(self._past_hedged + sum(landed.hedged for landed in last)),
            budget_spent_usd=self._past_usd + sum(landed.spent_usd for landed in last),
        )
        return found

    def _land_part(self, out: Out, part: Part) -> None:
        batch, rewards, tripped = out.batch, list[Reward](), False
        for end in part.ends:
            if batch.landed(end.index):
                continue
            settled = settled_of(end)
            if part.closed and end.unscored is not None and end.unscored.reason is not Reason.CANCELLED:
                batch.error = batch.error or EndpointClosed(part.closed[1], reason=part.closed[0])
            tripped |= self._land(out, end.index, settled, end.line, rewards)
        self._hand_over(out, rewards, tripped)
        if any(end.unscored is not None and end.unscored.reason is Reason.DEADLINE for end in part.ends):
            self._end_unsent(out)

    def _land_all(self, out: Out, indexes: Sequence[int], why: Unscored) -> None:
        rewards, tripped = list[Reward](), False
        for index in indexes:
            tripped |= self._land(out, index, Settled(verdict=why), b"", rewards)
        self._hand_over(out, rewards, tripped)

    def _land(self, out: Out, index: int, settled: Settled, line: bytes, rewards: list[Reward]) -> bool:
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

    def _hand_over(self, out: Out, rewards: list[Reward], tripped: bool) -> None:
        try:
            self.books.rewarded(out.batch, rewards)
        except Exception:
            log.exception("the record of some rewards could not be kept")
        out.batch.hand_over(rewards)
        if out.batch.done:
            self._finish(out)
        elif tripped:
            self._stop(out, Unscored(reason=Reason.CANCELLED, detail="too many samples were unscored"))

    def _stop(self, out: Out, why: Unscored) -> None:
        out.stopping = why
        away: set[int] = set()
        for number, shard in enumerate(self._shards):
            if shard.up and out.ticket in shard.out:
                away |= shard.out[out.ticket].keys()
                self._send(number, (Cancel(out.ticket, why),))
        if out.timer is not None:
            out.timer.cancel()
        loop = asyncio.get_running_loop()
        out.timer = clock.at(loop, loop.time() + LATE, lambda: self._end_all(out, why))
        self._land_all(out, [index for index in out.batch.pending() if index not in away], why)

    def _end_unsent(self, out: Out) -> None:
        """Its time is over, for all far sides if for one. They end what they have; what never left ends here."""
        if out.over:
            return
        if out.timer is not None:
            out.timer.cancel()
        why = f"not judged within {out.batch.seconds:g} s"
        out.stopping = Unscored(reason=Reason.DEADLINE, detail=why)
        out.timer = clock.at(asyncio.get_running_loop(), out.deadline + LATE, lambda: self._expire(out))
        away = {index for shard in self._shards for index in shard.out.get(out.ticket, ())}
        unsent = [index for index in out.batch.pending() if index not in away]
        self._land_all(out, unsent, Unscored(reason=Reason.DEADLINE, detail=f"{why}: still waiting for its turn"))

    def _expire(self, out: Out) -> None:
        why = f"not judged within {out.batch.seconds:g} s, and the place that judges did not answer"
        self._end_all(out, Unscored(reason=Reason.DEADLINE, detail=why))

    def _end_all(self, out: Out, why: Unscored) -> None:
        out.stopping = out.stopping or why
        self._land_all(out, out.batch.pending(), why)

    def _finish(self, out: Out) -> None:
        if out.timer is not None:
            out.timer.cancel()
        self._outs.pop(out.ticket, None)
        self._tickets.pop(out.batch, None)

    def _flush_soon(self) -> None:
        if self._flush_due:
            return
        self._flush_due = True
        loop = asyncio.get_running_loop()
        clock.at(loop, max(loop.time(), self._flushed + self._gather), self.flush)

    def flush(self) -> None:
        """Send what waits, without waiting for more of it."""
        self._flush_due = False
        self._flushed = clock.now()
        self._send_out()

    def _send_out(self) -> None:
        """Send what there is room for. What is over by now makes room for more when it is looked at, so once more."""
        moving = True
        while moving:
            moving = False
            for shard in self._shards:
                self._dealer.fill(shard)
            for number, shard in enumerate(self._shards):
                if shard.queue and self._dealer.room(shard) > 0:
                    self._send_some(number, shard)
                    moving = True

    def _send_some(self, number: int, shard: Shard) -> None:
        messages: list[Work | Cancel] = []
        now = clock.now()
        while shard.queue and (room := self._dealer.room(shard)) > 0:
            out, indexes = self._dealer.take(shard, room)
            if not indexes:
                continue
            samples = tuple(out.batch.samples[index] for index in indexes)
            # 0 is no time to be judged in; a far side lets it expire at once.
            left = max(0.001, _due(out) - now)
            messages.append(Work(out.ticket, out.batch.id, left, tuple(indexes), samples, out.batch.caller))
        if messages:
            self._send(number, messages)

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
        self._write_limits()
        if self._outs:
            self._watch_limits()

    def _write_limits(self) -> None:
        gauges = self._gauges()
        if gauges:
            self.books.limits(gauges, sum(shard.last.queued for shard in self._shards))
