"""The group coordinator: collects one value from each sibling of a group and tells all of them when it is complete.

State and waiting, on one loop; no threads and no Ray. `ray_group_actor` puts it where all processes reach it. Groups
that are judged as a whole are in `ray_judged_groups`; they travel in the same calls.

A group's values are dropped the moment they are given out. A later report under the same name either belongs to a new
group (the last one was complete), or comes too late (the last one was given out without it): it never joins old values.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
import uuid
from typing import Any, NamedTuple

from referee import clock
from referee.runtime.ray_judged_groups import MAX_BYTES, Case, End, Ends, JudgedGroups, Text

KEEP = 3600.0
"""Seconds a group is kept after its last report."""
MOST = 200_000
"""Groups kept at most; the one that was longest without a report goes first."""
SILENT = 60.0
"""Seconds without a call after which a client is given up. One that waits calls every LONG_POLL."""
LONG_POLL = 20.0
"""Seconds a poll is held open while nothing is settled."""


class Gathered(NamedTuple):
    """A member's view of its group."""

    values: dict[str, Any]
    """By member, in the order in which they came."""
    expected: int
    complete: bool
    """True if as many members as expected have reported."""
    late: bool = False
    """True if the group was given out, incomplete, before this member reported: `values` holds its own alone."""


class Report(NamedTuple):
    """One member's value. Sending it twice is harmless."""

    uid: str
    member: str
    value: Any
    expected: int
    call: int
    """Numbers a client's reports, so that one that is sent again differs from a new one of the same member."""
    waits: bool = True
    """False: the member does not wait for its siblings' values."""


class Answer(NamedTuple):
    """The answer to a client: from which coordinator, up to which number, and what its calls have waited for."""

    coordinator: str
    number: int
    given: list[tuple[list[int], tuple[Any, ...]]]
    """Calls, and what they are told: a message as `pack` makes it."""


class Told(NamedTuple):
    """What a report has settled, for one client."""

    client: str
    calls: list[int]
    found: Gathered


Message = Report | Text | Ends | Gathered | Case | End
_KINDS: dict[str, Any] = {kind.__name__: kind for kind in (Report, Text, Ends, Gathered, Case, End)}


def pack(message: Message) -> tuple[Any, ...]:
    """A message as plain data: no class of ours is pickled on the way."""
    return type(message).__name__, *message


def unpack(data: tuple[Any, ...]) -> Any:
    """The message."""
    return _KINDS[data[0]](*data[1:])


class _Group:
    __slots__ = ("calls", "closed", "expected", "touched", "values", "waiting")

    def __init__(self) -> None:
        self.values: dict[str, Any] = {}
        self.calls: set[tuple[str, int]] = set()
        """Reports so far, by client and call; kept when the values are gone."""
        self.expected = 1
        self.touched = 0.0
        self.waiting: dict[str, list[int]] = {}
        self.closed = False
        """True once it was given out."""

    def gathered(self) -> Gathered:
        return Gathered(dict(self.values), self.expected, len(self.values) >= self.expected)

    def close(self) -> None:
        self.closed, self.values, self.waiting = True, {}, {}


class Groups:
    """Groups under way, oldest first. State only: time comes as an argument."""

    def __init__(self, keep: float = KEEP, most: int = MOST) -> None:
        self._keep = keep
        self._most = most
        self._groups: dict[str, _Group] = {}

    def __len__(self) -> int:
        return len(self._groups)

    def report(self, report: Report, client: str, now: float) -> list[Told]:
        """Take a member's value. Returns what it settles: its whole group if it completes it, itself if it is late."""
        call = (sys.intern(client), report.call)  # one name for thousands of reports
        group = self._groups.pop(report.uid, None)
        if group is None or (group.closed and len(group.calls) >= group.expected and call not in group.calls):
            group = _Group()  # the last group of this name was complete, so this is another one
        self._groups[report.uid] = group  # least recently touched first
        group.touched = now
        self._forget(now)
        if call in group.calls:
            return []
        group.calls.add(call)
        group.expected = max(group.expected, report.expected)
        if group.closed and not report.waits:
            return []
        if group.closed:
            own = {report.member: report.value}
            return [Told(client, [report.call], Gathered(own, group.expected, False, late=True))]
        group.values[report.member] = report.value
        if report.waits:
            group.waiting.setdefault(client, []).append(report.call)
        found = group.gathered()
        if not found.complete:
            return []
        told = [Told(name, calls, found) for name, calls in group.waiting.items()]
        group.close()
        return told

    def leave(self, uid: str, client: str, call: int) -> Gathered:
        """A member waits no longer: what is there now. When the last one leaves, the group has been given out."""
        group = self._groups.get(uid)
        if group is None or call not in group.waiting.get(client, ()):
            return Gathered({}, 1, False)
        found = group.gathered()
        group.waiting[client].remove(call)
        if not any(group.waiting.values()):
            group.close()
        return found

    def _forget(self, now: float) -> None:
        while self._groups:
            uid, group = next(iter(self._groups.items()))
            if len(self._groups) <= self._most and now - group.touched <= self._keep:
                return
            del self._groups[uid]


class _Box:
    """What a client has not confirmed yet."""

    def __init__(self) -> None:
        self.number = 0
        self.unconfirmed: list[tuple[int, list[int], Message]] = []
        self.changed = asyncio.Event()
        self.seen = 0.0


class GroupCoordinator:
    """Serves groups to many clients. One loop; every call ends by itself."""

    def __init__(self, keep: float = KEEP, most: int = MOST, max_bytes: int = MAX_BYTES) -> None:
        self._name = uuid.uuid4().hex
        self._groups = Groups(keep, most)
        self._judged = JudgedGroups(self._name, keep, most, max_bytes)
        self._boxes: dict[str, _Box] = {}
        self._keep = keep

    async def exchange(self, client: str, confirmed: int, reports: list[tuple[Any, ...]], wait: float) -> Answer:
        """Take packed messages; return what is settled and not confirmed. Waits for something, up to `wait` seconds."""
        now = clock.now()
        box = self._box(client, now)
        box.unconfirmed = [entry for entry in box.unconfirmed if entry[0] > confirmed]
        self._replace(now)
        for data in reports:
            self._take(unpack(data), client, now)
        if not box.unconfirmed and wait > 0:
            box.changed.clear()
            with contextlib.suppress(TimeoutError):
                await clock.within(box.changed.wait(), wait)
            box.seen = clock.now()
        return Answer(self._name, box.number, [(calls, pack(found)) for _, calls, found in box.unconfirmed])

    async def leave(self, uid: str, client: str, call: int) -> tuple[Any, ...]:
        """As Groups.leave, packed."""
        return pack(self._groups.leave(uid, client, call))

    def _take(self, message: Message, client: str, now: float) -> None:
        if isinstance(message, Text):
            told = self._judged.text(message, client, now)
        elif isinstance(message, Ends):
            told = self._judged.ends(message, client, now, self._silent(now))
        else:
            assert isinstance(message, Report)
            for name, calls, gathered in self._groups.report(message, client, now):
                self._tell(name, calls, gathered)
            return
        for (name, call), found in told:
            self._tell(name, [call], found)

    def _replace(self, now: float) -> None:
        """Hand what silent clients judge to others, and take it back from them: it may be large."""
        silent = self._silent(now)
        for name in silent:
            box = self._boxes[name]
            box.unconfirmed = [entry for entry in box.unconfirmed if not isinstance(entry[2], Case)]
        for (name, call), found in self._judged.without(silent) if silent else ():
            self._tell(name, [call], found)

    def _silent(self, now: float) -> set[str]:
        return {name for name, box in self._boxes.items() if now - box.seen > SILENT}

    def _box(self, client: str, now: float | None = None) -> _Box:
        box = self._boxes.get(client)
        if box is None:
            box = self._boxes[client] = _Box()
            box.seen = clock.now() if now is None else now
            for name in [n for n, b in self._boxes.items() if box.seen - b.seen > self._keep]:
                del self._boxes[name]
        if now is not None:
            box.seen = now
        return box

    def _tell(self, client: str, calls: list[int], found: Message) -> None:
        box = self._box(client)
        box.number += 1
        box.unconfirmed.append((box.number, calls, found))
        box.changed.set()
