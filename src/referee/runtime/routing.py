"""Which worker gets which sample, and when. State only: no loop, nothing is sent from here.

Batches wait whole and are routed a few samples at a time: callers take turns, and a worker gets its first samples
before the last ones are looked at. Samples that make equal requests go to the same worker, so that each is asked once.
Workers that serve no other client balance their load: what one of them has no room for goes to another that has.
Where a judge is given whole groups, a group is routed, sent and sent again as one; otherwise each sample is.
"""

from __future__ import annotations

import zlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence

from referee.limits import FairQueue
from referee.records import Sample, Text
from referee.rollouts import plain
from referee.scoring.batch import group_name, groups_of
from referee.scoring.messages import Update
from referee.scoring.tracker import OpenBatch

SHARED_ROOM = 4096
"""Samples that may be at a worker which serves other clients too. More wait here, where they cost nothing."""
OWN_ROOM = 1024
"""Samples, beyond the limit, that may be at a worker of our own, so that it has work while results travel."""
ROUTE_STEP = 256
"""Samples of one batch, for each worker, that are routed before another caller's turn."""
BACKLOG = 256
"""Samples that may wait for a worker of our own beyond its room, before others take them."""
MESSAGE_SAMPLES, MESSAGE_TEXT = 1024, 4_000_000
"""Samples, and characters, in one message. A group that is larger is a message of its own."""

Unit = Sequence[int]
"""Samples that travel together, by index: one, or all of a group."""


class Routed:
    """One batch on its way to workers."""

    __slots__ = ("_groups", "losses", "next", "open", "routed", "units")

    def __init__(self, open: OpenBatch, whole_groups: bool = False) -> None:
        """`whole_groups`: the samples of a group travel together."""
        self.open = open
        samples = open.batch.samples
        self._groups = groups_of(samples) if whole_groups else None
        self.units: Iterator[Unit] = zip(range(len(samples)), strict=True)
        """What is to be routed after `next`."""
        if self._groups is not None:
            self.units = iter(self._groups.values())
        self.next = next(self.units, ())
        self.routed = 0
        """How many of its samples have a worker."""
        self.losses: dict[int, int] = {}
        """How many workers died with a unit, by its first index."""

    @property
    def waiting(self) -> int:
        """How many of its samples have no worker."""
        return len(self.open.batch.samples) - self.routed

    def units_of(self, indexes: Iterable[int]) -> list[Unit]:
        """The units that these samples belong to, each once, in the caller's order."""
        if self._groups is None:
            return [(index,) for index in sorted(indexes)]
        samples = self.open.batch.samples
        names = dict.fromkeys(group_name(index, samples[index]) for index in sorted(indexes))
        return [self._groups[name] for name in names]

    def __lt__(self, other: Routed) -> bool:
        return (self.open.deadline, self.open.ticket) < (other.open.deadline, other.open.ticket)


class WorkerQueue:
    """One worker, as the client sees it."""

    __slots__ = ("count", "keys", "last", "out", "queue", "queued", "up")

    def __init__(self) -> None:
        self.up = False
        self.queue: deque[tuple[Routed, Unit, int]] = deque()
        """What was routed to it and not sent yet: batch, samples, route key."""
        self.queued = 0
        """How many samples those are."""
        self.out: dict[int, dict[int, int]] = {}
        """Route keys of those that were sent, by ticket and index."""
        self.count = 0
        """How many those are."""
        self.keys: dict[int, int] = {}
        """How many samples it has, waiting or sent, by route key."""
        self.last = Update()


class Router:
    """Routes waiting batches to workers."""

    def __init__(
        self, workers: Sequence[WorkerQueue], *, limit: int, balanced: bool, key_of: Callable[[Sample], int]
    ) -> None:
        """`limit`: requests in flight, until a worker reports its own. `balanced`: the workers serve this client alone,
        and each finds what another has judged. `key_of`: see `route_key`."""
        self._key_of = key_of
        self._workers = workers
        self._limit = limit
        self._balanced = balanced
        self._line: FairQueue[Routed] = FairQueue()
        self._moved: dict[int, WorkerQueue] = {}
        """Workers that took samples of another, by route key, as long as they have any:
        samples with that key follow."""

    def add(self, out: Routed) -> None:
        """A batch to route."""
        self._line.push(out.open.batch.caller, out)

    def room(self, worker: WorkerQueue) -> int:
        """How many more samples may be sent there now."""
        if not worker.up:
            return 0
        if not self._balanced:
            return SHARED_ROOM - worker.count
        limit = sum(gauge.limit for gauge in worker.last.gauges) if worker.last.gauges else self._limit
        return max(0, limit + OWN_ROOM - worker.count)

    def fill(self, worker: WorkerQueue) -> None:
        """See to it that what is to be sent there next is in its queue."""
        room = self.room(worker)
        while self._line and worker.queued < room:
            self._route(self._line.pop(), min(ROUTE_STEP, room - worker.queued))

    def take(self, worker: WorkerQueue, most: int) -> tuple[Routed, list[int]]:
        """The next samples of one batch for it, about `most`: they count as sent. What wants no judging any more is
        dropped."""
        first, taken, text = worker.queue[0][0], dict[int, int](), 0
        over, landed = first.open.over, first.open.batch.landed
        most = min(most, MESSAGE_SAMPLES)
        while worker.queue and worker.queue[0][0] is first and len(taken) < most and text < MESSAGE_TEXT:
            _, unit, key = worker.queue.popleft()
            worker.queued -= len(unit)
            if over or (landed(unit[0]) and all(map(landed, unit))):
                self._release(worker, key, len(unit))
                continue
            for index in unit:
                taken[index] = key
                sample = first.open.batch.samples[index]
                text += len(plain(sample.response)) + len(plain(sample.prompt)) + len(sample.reference or "")
        if taken:
            worker.out.setdefault(first.open.ticket, {}).update(taken)
            worker.count += len(taken)
        return first, list(taken)

    def ended(self, worker: WorkerQueue, ticket: int, indexes: Iterable[int]) -> None:
        """These are no longer out there. Not all of them need have been: an end may come late, or twice."""
        sent = worker.out.get(ticket)
        if sent is None:
            return
        for index in indexes:
            key = sent.pop(index, None)
            if key is not None:
                worker.count -= 1
                self._release(worker, key)
        if not sent:
            del worker.out[ticket]

    def lost(self, worker: WorkerQueue, again: Iterable[tuple[Routed, Unit]]) -> None:
        """It is gone. What is to be sent again waits for the next one in its place, before all others."""
        sent, worker.out, worker.count, worker.last = worker.out, {}, 0, Update()
        back: list[tuple[Routed, Unit, int]] = []
        for out, unit in again:
            keys = sent[out.open.ticket]
            key = next(keys[index] for index in unit if index in keys)  # siblings may have ended before
            back.append((out, unit, key))
            worker.queued += len(unit)
            if self._balanced:
                worker.keys[key] += len(unit)
        for keys in sent.values():
            for key in keys.values():
                self._release(worker, key)
        worker.queue.extendleft(reversed(back))

    def _route(self, out: Routed, step: int) -> None:
        """The next samples of a batch, `step` for each worker. No more than there is room for: what another caller
        submits meanwhile would wait behind the rest."""
        if out.open.over:
            return
        batch, workers = out.open.batch, self._workers
        rooms = [self.room(worker) for worker in workers]
        start, end = out.routed, out.routed + min(step * len(workers), out.waiting)
        while out.routed < end:
            unit = out.next
            key = self._key(batch.samples, unit) if len(workers) > 1 else 0
            worker = workers[key % len(workers)]
            if self._balanced:
                if key in self._moved:
                    worker = self._moved[key]
                elif worker.queued >= rooms[key % len(workers)] + BACKLOG and key not in worker.keys:
                    room, at = max((room - workers[at].queued, at) for at, room in enumerate(rooms))
                    if room <= 0:
                        break
                    worker = self._moved[key] = workers[at]
                worker.keys[key] = worker.keys.get(key, 0) + len(unit)
            worker.queue.append((out, unit, key))
            worker.queued += len(unit)
            out.routed += len(unit)
            out.next = next(out.units, ())
        self._line.charge(batch.caller, out.routed - start)
        if out.waiting:
            self._line.push(batch.caller, out)

    def _key(self, samples: Sequence[Sample], unit: Unit) -> int:
        """Equal for samples, or whole groups in any order, that make equal requests."""
        first, *others = sorted([self._key_of(samples[index]) for index in unit])
        for other in others:
            first = zlib.crc32(other.to_bytes(4, "big"), first)
        return first

    def _release(self, worker: WorkerQueue, key: int, count: int = 1) -> None:
        """Fewer samples of this key there."""
        if not self._balanced:
            return
        left = worker.keys[key] = worker.keys[key] - count
        if not left:
            del worker.keys[key]
            if self._moved.get(key) is worker:
                del self._moved[key]


def route_key(sample: Sample, seen: Callable[[Text], str]) -> int:
    """Equal for samples that make equal requests, without planning one. `seen`: what a judge sees of a response. The
    reference is left out: not every judge sees it, and one question has one."""
    key = zlib.crc32(seen(sample.response).encode("utf-8", "surrogatepass"))
    return zlib.crc32(plain(sample.prompt).encode("utf-8", "surrogatepass"), key)
