"""Which far side gets which sample, and when. State only: no loop, nothing is sent from here.

Batches wait whole and are dealt a hand at a time: callers take turns, and a far side gets its first samples before the
last ones are looked at. Equal samples go to the same far side. Far sides that work for nobody else help each other out:
what one of them has no room for goes to another that has.
"""

from __future__ import annotations

import asyncio
import zlib
from collections import deque
from collections.abc import Callable, Iterable, Sequence

from referee.batch import Batch
from referee.limits import Turns
from referee.records import Sample, Unscored
from referee.runtime.messages import Landed

ROOM = 4096
"""Samples that may be out at one far side. More wait here, where they cost nothing."""
SPARE = 1024
"""Samples, beyond the limit, that may be out at a far side of our own: so many end while word of it travels."""
HAND = 256
"""Samples of one batch, for each far side, that are dealt before it is another's turn."""
HELD = 256
"""Samples that may wait for a far side of our own beyond its room, before others help."""
CHUNK = 1024
CHUNK_TEXT = 4_000_000
"""Samples, and characters, in one message."""


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

    __slots__ = ("count", "last", "marks", "out", "queue", "up")

    def __init__(self) -> None:
        self.up = False
        self.queue: deque[tuple[Out, int, int]] = deque()
        """Samples dealt to it and not sent yet: batch, index, mark."""
        self.out: dict[int, dict[int, int]] = {}
        """Marks of those that were sent, by ticket and index."""
        self.count = 0
        """How many those are."""
        self.marks: dict[int, int] = {}
        """How many samples it has, waiting or sent, by mark."""
        self.last = Landed(())


class Dealer:
    """Deals waiting batches to far sides."""

    def __init__(self, shards: Sequence[Shard], *, limit: int, alone: bool, seen: Callable[[str], str]) -> None:
        """`limit`: requests in flight, until a far side has told. `alone`: the far sides work for nobody else, and
        find what another of them has judged. `seen`: what the judge sees of a response."""
        self._seen = seen
        self._shards = shards
        self._limit = limit
        self._alone = alone
        self._line: Turns[Out] = Turns()
        self._moved: dict[int, Shard] = {}
        """Who has samples that belong to another, by mark, as long as he has them: their equals follow."""

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
        return max(0, limit + SPARE - shard.count)

    def fill(self, shard: Shard) -> None:
        """See to it that what is to be sent there next is in its queue."""
        room = self.room(shard)
        while self._line and len(shard.queue) < room:
            self._deal(self._line.pop())

    def take(self, shard: Shard, most: int) -> tuple[Out, list[int]]:
        """The next samples of one batch for it: they count as sent. What wants no judging any more is dropped."""
        first, taken, text = shard.queue[0][0], dict[int, int](), 0
        most = min(most, CHUNK)
        while shard.queue and shard.queue[0][0] is first and len(taken) < most and text < CHUNK_TEXT:
            _, index, mark = shard.queue.popleft()
            if first.over or first.batch.landed(index):
                self._let_go(shard, mark)
                continue
            taken[index] = mark
            sample = first.batch.samples[index]
            text += len(sample.response) + len(sample.prompt) + len(sample.reference or "")
        if taken:
            shard.out.setdefault(first.ticket, {}).update(taken)
            shard.count += len(taken)
        return first, list(taken)

    def ended(self, shard: Shard, ticket: int, indexes: Iterable[int]) -> None:
        """These are no longer out there. Not all of them need have been: an end may come late, or twice."""
        sent = shard.out.get(ticket)
        if sent is None:
            return
        for index in indexes:
            mark = sent.pop(index, None)
            if mark is not None:
                shard.count -= 1
                self._let_go(shard, mark)
        if not sent:
            del shard.out[ticket]

    def lost(self, shard: Shard, again: Iterable[tuple[Out, int]]) -> None:
        """It is gone. What is to be sent again waits for the next one in its place, before all others."""
        sent, shard.out, shard.count, shard.last = shard.out, {}, 0, Landed(())
        back = [(out, index, sent[out.ticket].pop(index)) for out, index in again]
        for marks in sent.values():
            for mark in marks.values():
                self._let_go(shard, mark)
        shard.queue.extendleft(reversed(back))

    def _deal(self, out: Out) -> None:
        if out.over:
            return
        samples, caller, shards = out.batch.samples, out.batch.caller, self._shards
        rooms = [self.room(shard) for shard in shards]
        start, end = out.dealt, min(out.dealt + HAND * len(shards), len(samples))
        while out.dealt < end:
            mark = mark_of(samples[out.dealt], self._seen) if len(shards) > 1 else 0
            shard = shards[mark % len(shards)]
            if self._alone:
                if mark in self._moved:
                    shard = self._moved[mark]
                elif len(shard.queue) >= rooms[mark % len(shards)] + HELD and mark not in shard.marks:
                    room, at = max((room - len(shards[at].queue), at) for at, room in enumerate(rooms))
                    if room <= 0:
                        break
                    shard = self._moved[mark] = shards[at]
                shard.marks[mark] = shard.marks.get(mark, 0) + 1
            shard.queue.append((out, out.dealt, mark))
            out.dealt += 1
        self._line.had(caller, out.dealt - start)
        if out.dealt < len(samples):
            self._line.push(caller, out)

    def _let_go(self, shard: Shard, mark: int) -> None:
        """One sample less of this mark there."""
        if not self._alone:
            return
        left = shard.marks[mark] = shard.marks[mark] - 1
        if not left:
            del shard.marks[mark]
            if self._moved.get(mark) is shard:
                del self._moved[mark]


def mark_of(sample: Sample, seen: Callable[[str], str]) -> int:
    """Equal for samples that make equal requests, whoever sends them; without planning a request. The reference is left
    out: not every judge sees it, and one question has one."""
    mark = zlib.crc32(seen(sample.response).encode("utf-8", "surrogatepass"))
    return zlib.crc32(sample.prompt.encode("utf-8", "surrogatepass"), mark)
