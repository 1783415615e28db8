"""Any number of samples through a Referee, in order and in flat memory: a window of tickets, oldest collected first."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from typing import Generic, TypeVar

from referee import clock
from referee.errors import RefereeError
from referee.records import Reward, Sample
from referee.referee import Referee
from referee.ticket import Ticket

CHUNK = 256
"""Samples per ticket."""
WINDOW = 4096
"""Samples submitted and not yet collected. Far above any provider's concurrency, far below what fills memory."""
COLLECT_HELD_S = 5.0
"""Seconds an interrupted run waits for what its tickets already hold."""

Tag = TypeVar("Tag")
Done = TypeVar("Done")


class Item(Generic[Tag, Done]):
    """One input: a sample to judge, or (`kept`) a result an earlier run already has."""

    __slots__ = ("kept", "sample", "tag")

    def __init__(self, tag: Tag, sample: Sample, kept: Done | None) -> None:
        self.tag = tag
        self.sample = sample
        self.kept = kept


def stream(
    referee: Referee, items: Iterable[Item[Tag, Done]], sizes: Mapping[str, int] | None, window: int = WINDOW
) -> Iterator[tuple[Item[Tag, Done], Reward | None]]:
    """Every item with its reward (None where the earlier result is kept), in input order.

    `sizes` says how many samples each named group has, when rewards depend on the group: a group is submitted when
    its last member has been read, so members far apart in the input hold back what lies between them. `window`: samples
    submitted and not yet collected.

    Interrupted, or stopped by an error, it first yields what is scored already, in order and with gaps.
    """
    ready: dict[int, tuple[Item[Tag, Done], Reward | None]] = {}
    flying: deque[tuple[list[tuple[int, Item[Tag, Done]]], Ticket]] = deque()
    chunk: list[tuple[int, Item[Tag, Done]]] = []
    groups: dict[str, list[tuple[int, Item[Tag, Done]]]] = {}
    out = outstanding = 0

    def submit() -> int:
        placed, chunk[:] = list(chunk), []
        if placed:
            flying.append((placed, referee.submit([item.sample for _, item in placed], deadline=math.inf)))
        return len(placed)

    def collect() -> int:
        placed, ticket = flying[0]
        for (place, item), reward in zip(placed, ticket.result(), strict=True):
            ready[place] = (item, reward)
        flying.popleft()
        return len(placed)

    def admit(members: list[tuple[int, Item[Tag, Done]]]) -> None:
        if all(item.kept is not None for _, item in members):
            ready.update((place, (item, None)) for place, item in members)
        else:
            chunk.extend(members)

    try:
        for place, item in enumerate(items):
            name = item.sample.group
            if sizes is None or not name:
                admit([(place, item)])
            else:
                groups.setdefault(name, []).append((place, item))
                if len(groups[name]) == sizes.get(name):
                    admit(groups.pop(name))
            if len(chunk) >= CHUNK:
                outstanding += submit()
            while outstanding > window:
                outstanding -= collect()
            while out in ready:
                yield ready.pop(out)
                out += 1
        for members in groups.values():  # other sizes than were said: late, but judged
            admit(members)
        submit()
        while flying:
            collect()
            while out in ready:
                yield ready.pop(out)
                out += 1
        while out in ready:
            yield ready.pop(out)
            out += 1
        assert not ready, "every item has come out"
    except (KeyboardInterrupt, RefereeError):
        for _, ticket in flying:
            ticket.cancel()
        until = clock.monotonic() + COLLECT_HELD_S
        for placed, ticket in flying:
            for (place, item), reward in zip(placed, _held(ticket, until), strict=False):
                if reward is not None and reward.scored:
                    ready[place] = (item, reward)
        for place in sorted(ready):
            yield ready.pop(place)
        raise
    finally:
        for _, ticket in flying:
            ticket.cancel()


def _held(ticket: Ticket, until: float) -> Iterable[Reward | None]:
    """The rewards of a ticket that was cancelled, scored or not."""
    try:
        return ticket.result(max(0.0, until - clock.monotonic()))
    except RefereeError as error:
        return getattr(error, "rewards", None) or ()
