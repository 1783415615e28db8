"""The desk where the siblings of a group meet: what each has told, and who is to be told that a group is complete.

State and waiting, on one loop; no threads and no Ray. `ray_groups` puts it where all processes reach it.
"""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from typing import Any, NamedTuple

from referee import clock

KEEP = 3600.0
"""Seconds a group is kept after its last report."""
MOST = 200_000
"""Groups kept at most; the one that was longest without a report goes first."""


class Gathered(NamedTuple):
    """What is known of a group."""

    values: dict[str, Any]
    """By member, in the order in which they came."""
    expected: int
    complete: bool
    """True if as many members as expected have reported."""


class Report(NamedTuple):
    """One member's value. Telling it twice is harmless."""

    uid: str
    member: str
    value: Any
    expected: int


class Answer(NamedTuple):
    """What the desk tells a client: which desk it is, up to which number, and the groups completed since."""

    desk: str
    number: int
    complete: list[tuple[str, Gathered]]


class _Group:
    __slots__ = ("expected", "touched", "values", "waiting")

    def __init__(self) -> None:
        self.values: dict[str, Any] = {}
        self.expected = 1
        self.touched = 0.0
        self.waiting: set[str] = set()


class Groups:
    """Groups under way, oldest first. State only: time comes as an argument."""

    def __init__(self, keep: float = KEEP, most: int = MOST) -> None:
        self._keep = keep
        self._most = most
        self._groups: dict[str, _Group] = {}

    def __len__(self) -> int:
        return len(self._groups)

    def report(self, report: Report, client: str, now: float) -> list[str]:
        """Note a member's value. Returns the clients to be told that the group is complete, if it is."""
        group = self._groups.pop(report.uid, None) or _Group()
        self._groups[report.uid] = group  # the last touched stands last
        group.touched = now
        group.values[report.member] = report.value
        group.expected = max(group.expected, report.expected)
        group.waiting.add(client)
        self._forget(now)
        if len(group.values) < group.expected:
            return []
        told, group.waiting = sorted(group.waiting), set()
        return told

    def look(self, uid: str) -> Gathered:
        """What is known of a group now."""
        group = self._groups.get(uid) or _Group()
        return Gathered(dict(group.values), group.expected, len(group.values) >= group.expected)

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
        self.letters: list[tuple[int, str]] = []
        self.changed = asyncio.Event()
        self.seen = 0.0


class Desk:
    """Serves Groups to many clients. One loop; every call ends by itself."""

    def __init__(self, keep: float = KEEP, most: int = MOST) -> None:
        self._groups = Groups(keep, most)
        self._boxes: dict[str, _Box] = {}
        self._keep = keep
        self._name = uuid.uuid4().hex
        self.last_call = clock.monotonic()
        self.open_calls = 0
        """Clients that are being kept waiting for news."""

    async def exchange(self, client: str, confirmed: int, reports: list[tuple[Any, ...]], wait: float) -> Answer:
        """Take reports; tell what is complete and not yet confirmed, waiting up to `wait` seconds for something."""
        now = self.last_call = clock.monotonic()
        box = self._box(client, now)
        box.letters = [letter for letter in box.letters if letter[0] > confirmed]
        for fields in reports:
            report = Report(*fields)
            for told in self._groups.report(report, client, now):
                self._tell(self._box(told, None), report.uid)
        if not box.letters and wait > 0:
            box.changed.clear()
            self.open_calls += 1
            try:
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(box.changed.wait(), wait)
            finally:
                self.open_calls -= 1
            self.last_call = box.seen = clock.monotonic()
        complete = [(uid, self._groups.look(uid)) for _, uid in box.letters]
        return Answer(self._name, box.number, complete)

    async def look(self, uid: str) -> Gathered:
        """What is known of a group now."""
        self.last_call = clock.monotonic()
        return self._groups.look(uid)

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

    def _tell(self, box: _Box, uid: str) -> None:
        box.number += 1
        box.letters.append((box.number, uid))
        box.changed.set()
