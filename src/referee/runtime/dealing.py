"""Which far side gets which sample, and when. State only: no loop, nothing is sent from here.

Batches wait whole and are dealt a little at a time: callers take turns, and a far side gets its first samples before
the last ones are looked at. Equal samples go to the same far side. Far sides that work for nobody else also help each
other out: one that has nothing left takes over what waits for another.
"""

from __future__ import annotations

import asyncio
import zlib
from collections import Counter, deque
from collections.abc import Mapping, Sequence

from referee.batch import Batch
from referee.limits import Turns
from referee.records import Sample, Unscored
from referee.runtime.messages import Landed

ROOM = 4096
"""Samples that may be out at one far side. More wait here, where they cost nothing."""
SPARE = 1024
"""Samples, beyond the limit, that may be out at a far side of our own: so many end while word of it travels."""
DEAL = 256
"""Samples of one batch that are dealt before it is another's turn."""
CHUNK = 1024
CHUNK_TEXT = 4_000_000
"""Samples, and characters, in one message."""
REMEMBERED = 10_000
"""Samples taken over whose place is kept in mind."""


class Out:
    """One batch under way."""

    __slots__ = ("batch", "deadline", "dealt", "losses", "stopping", "ticket", "timer")

    def __init__(self, batch: Batch, ticket: int, deadline: float) -> None:
        self.batch = batch
        self.ticket = ticket
        self.deadline = deadline
        self.timer: asyncio.TimerHandle | None = None
        self.losses: dict[int, int] = {}
        self.stopping: Unscored | None = None
        self.dealt = 0
        """Its samples up to here have a far side."""

    def __lt__(self, other: Out) -> bool:
        return (self.deadline, self.ticket) < (other.deadline, other.ticket)

    @property
    def over(self) -> bool:
        """Nothing more of it is to be sent."""
        return self.stopping is not None or self.batch.done


class Shard:
    """One far side, as seen from here."""

    __slots__ = ("count", "last", "out", "queue", "up")

    def __init__(self) -> None:
        self.up = False
        self.queue: deque[tuple[Out, int, int]] = deque()
        """Samples dealt to it and not sent yet: batch, index, mark."""
        self.out: dict[int, set[int]] = {}
        """Indexes that were sent, by ticket."""
        self.count = 0
        """How many those are."""
        self.last = Landed(())


class Dealer:
    """Deals waiting batches to far sides."""

    def __init__(self, shards: Sequence[Shard], outs: Mapping[int, Out], *, limit: int, alone: bool) -> None:
        """`outs`: the batches under way, by ticket. `limit`: requests in flight, until a far side has told. `alone`:
        the far sides work for nobody else, and find what another of them has judged."""
        self._shards = shards
        self._outs = outs
        self._limit = limit
        self._alone = alone
        self._line: Turns[Out] = Turns()
        self._moved: dict[int, Shard] = {}
        """Where samples went that another far side took over, by mark: their equals follow."""

    def add(self, out: Out) -> None:
        """A batch to deal."""
        self._line.push(out.batch.caller, out)

    def room(self, shard: Shard) -> int:
        """How many more samples may be sent there now."""
        if not shard.up:
            return 0
        if not self._alone:
            return ROOM - shard.count
        limit = sum(gauge.limit for gauge in shard.last.gauges) if shard.last.gauges else self._limit
        return limit + SPARE - shard.count

    def fill(self, shard: Shard) -> None:
        """See to it that what is to be sent there next is in its queue."""
        room = self.room(shard)
        while self._line and len(shard.queue) < room:
            self._deal(self._line.pop())
        if self._alone and not shard.queue and room > 0:
            self._take_over(shard, room)

    def take(self, shard: Shard, most: int) -> tuple[Out, list[int]]:
        """The next samples of one batch for it; those that want no judging any more are dropped."""
        first, indexes, text = shard.queue[0][0], list[int](), 0
        most = min(most, CHUNK)
        while shard.queue and shard.queue[0][0] is first and len(indexes) < most and text < CHUNK_TEXT:
            index = shard.queue.popleft()[1]
            if not first.over and not first.batch.landed(index):
                indexes.append(index)
                sample = first.batch.samples[index]
                text += len(sample.response) + len(sample.prompt)
        return first, indexes

    def put_back(self, shard: Shard, samples: Sequence[tuple[Out, int]]) -> None:
        """Samples that were sent there are to be sent again, before all others."""
        shard.queue.extendleft((out, index, mark_of(out.batch.samples[index])) for out, index in reversed(samples))

    def _deal(self, out: Out) -> None:
        if out.over:
            return
        samples, shards, moved, caller = out.batch.samples, self._shards, self._moved, out.batch.caller
        start, end = out.dealt, min(out.dealt + DEAL, len(samples))
        for index in range(start, end):
            mark = mark_of(samples[index]) if len(shards) > 1 else 0
            shard = moved.get(mark) if moved else None
            (shard or shards[mark % len(shards)]).queue.append((out, index, mark))
        out.dealt = end
        self._line.had(caller, end - start)
        if end < len(samples):
            self._line.push(caller, out)

    def _take_over(self, shard: Shard, room: int) -> None:
        """Half of what another has no room for, its last; but nothing whose equal is, or waits, there too."""
        other = max(self._shards, key=self._excess)
        wanted = min(room, (self._excess(other) + 1) // 2)
        if wanted <= 0:
            return
        away = [(self._outs[t], index) for t, indexes in other.out.items() if t in self._outs for index in indexes]
        equal = Counter(mark for _, _, mark in other.queue)
        equal.update(mark_of(out.batch.samples[index]) for out, index in away)
        kept: deque[tuple[Out, int, int]] = deque()
        while wanted and other.queue:
            item = other.queue.pop()
            if equal[item[2]] == 1:
                wanted -= 1
                shard.queue.appendleft(item)
                self._moved[item[2]] = shard
            else:
                kept.appendleft(item)
        other.queue += kept
        while len(self._moved) > REMEMBERED:
            del self._moved[next(iter(self._moved))]

    def _excess(self, shard: Shard) -> int:
        return len(shard.queue) - max(0, self.room(shard))


def mark_of(sample: Sample) -> int:
    """Equal for samples that make equal requests, whoever sends them; without planning a request."""
    mark = zlib.crc32(sample.response.encode("utf-8", "surrogatepass"))
    mark = zlib.crc32(sample.prompt.encode("utf-8", "surrogatepass"), mark)
    if sample.reference is not None:
        mark = zlib.crc32(sample.reference.encode("utf-8", "surrogatepass"), mark)
    return mark
