"""The group coordinator: collects one value from each sibling of a group and tells all of them when it is complete.

State and waiting, on one loop; no threads and no Ray. `ray_group_client` puts it where all processes reach it.

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

KEEP = 3600.0
"""Seconds a group is kept after its last report."""
MOST = 200_000
"""Groups kept at most; the one that was longest without a report goes first."""


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
    given: list[tuple[list[int], Gathered]]


class Told(NamedTuple):
    """What a report has settled, for one client."""

    client: str
    calls: list[int]
    found: Gathered


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
        self.unconfirmed: list[tuple[int, list[int], Gathered]] = []
        self.changed = asyncio.Event()
        self.seen = 0.0


class GroupCoordinator:
    """Serves Groups to many clients. One loop; every call ends by itself."""

    def __init__(self, keep: float = KEEP, most: int = MOST) -> None:
        self._groups = Groups(keep, most)
        self._boxes: dict[str, _Box] = {}
        self._keep = keep
        self._name = uuid.uuid4().hex

    async def exchange(self, client: str, confirmed: int, reports: list[tuple[Any, ...]], wait: float) -> Answer:
        """Take reports; return what is settled and not confirmed, waiting up to `wait` seconds for something."""
        now = clock.monotonic()
        box = self._box(client, now)
        box.unconfirmed = [entry for entry in box.unconfirmed if entry[0] > confirmed]
        for fields in reports:
            for told in self._groups.report(Report(*fields), client, now):
                self._tell(self._box(told.client, None), told)
        if not box.unconfirmed and wait > 0:
            box.changed.clear()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(box.changed.wait(), wait)
            box.seen = clock.monotonic()
        return Answer(self._name, box.number, [(calls, found) for _, calls, found in box.unconfirmed])

    async def leave(self, uid: str, client: str, call: int) -> Gathered:
        """As Groups.leave."""
        return self._groups.leave(uid, client, call)

    def _box(self, client: str, now: float | None) -> _Box:
        box = self._boxes.get(client)
        if box is None:
            box = self._boxes[client] = _Box()
            box.seen = clock.monotonic() if now is None else now
            for name in [n for n, b in self._boxes.items() if box.seen - b.seen > self._keep]:
                del self._boxes[name]
        if now is not None:
            box.seen = now
        return box

    def _tell(self, box: _Box, told: Told) -> None:
        box.number += 1
        box.unconfirmed.append((box.number, told.calls, told.found))
        box.changed.set()
