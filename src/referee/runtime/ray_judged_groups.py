"""Groups that are judged as a whole: the texts of their members, the client that judges them, and each member's end.

State only: time comes as an argument. A group gathers texts until all members have sent theirs, or one of them has
waited long enough; one that is refused, or that is gone, is not waited for. Then it is a case, handed to one of the
clients that wait; what that client sends back are the ends of all members. Texts are kept until then, so that another
client can take the case over; where memory is short, texts of cases go first. A text that comes after its group was
handed out joins nothing: its member is late.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Collection
from typing import Literal, NamedTuple

MAX_BYTES = 1 << 30
"""Of all texts together."""

Call = tuple[str, int]
"""A member's wait for its end: the client, and the client's own number for it. Never used again."""


class Text(NamedTuple):
    """One member's sample. Sending it twice is harmless."""

    uid: str
    member: str
    data: bytes
    expected: int
    call: int
    due: bool = False
    """True, and without data: it has waited long enough, the group is what is there."""
    gone: bool = False
    """True, and without data: it will send none, and waits for nothing."""


class Case(NamedTuple):
    """A whole group, for the client that judges it."""

    uid: str
    id: str
    """Of this group and no other one, whatever its name."""
    expected: int
    texts: dict[str, bytes]
    """By member."""
    calls: list[tuple[str, int, str]]
    """Client, call and member of all that wait."""


class Ends(NamedTuple):
    """What the client that judged a case says of it. Without any ends: it cannot judge it."""

    uid: str
    case: str
    expected: int
    ends: dict[Call, bytes]
    call: int
    """Numbers what a client sends."""


class End(NamedTuple):
    """A member's end."""

    data: bytes
    why: Literal["", "late", "full", "lost"] = ""
    """Why there is no data: its group was handed out before it came, there was no memory for it, or no client that
    judges the group has answered."""


class Told(NamedTuple):
    """A message for one call."""

    call: Call
    found: Case | End


class _Group:
    __slots__ = ("case", "ends", "expected", "judge", "over", "seen", "textless", "texts", "touched", "waiting")

    def __init__(self) -> None:
        self.case = ""
        """The id of its case, once it was handed out."""
        self.judge: Call = ("", 0)
        """The call it was handed to."""
        self.over = False
        self.expected = 1
        self.touched = 0.0
        self.texts: dict[str, bytes] = {}
        self.textless: set[str] = set()
        """Members that there is no text of, and that are not waited for."""
        self.waiting: dict[Call, str] = {}
        """Members that wait."""
        self.seen: set[Call] = set()
        self.ends: dict[Call, bytes] = {}
        """Of calls that an earlier coordinator knew, until they are made here again."""


class JudgedGroups:
    """Groups under way, the one that was idle longest first."""

    def __init__(self, name: str, keep: float, most: int, max_bytes: int = MAX_BYTES) -> None:
        """`name`: the coordinator's, which no other one has. `keep`: seconds a group is kept after its last message;
        `most`: how many are kept."""
        self._name = name
        self._keep = keep
        self._most = most
        self._max_bytes = max_bytes
        self._numbers = itertools.count(1)
        self._groups: dict[str, _Group] = {}
        self._cases: dict[str, _Group] = {}
        """Those that are being judged, the oldest case first."""
        self.bytes = 0
        """Of the texts that are held."""

    def __len__(self) -> int:
        return len(self._groups)

    def text(self, text: Text, client: str, now: float) -> list[Told]:
        """A member's text, or that it has waited long enough. Returns what is to be told now."""
        call = (sys.intern(client), text.call)
        group = self._groups.get(text.uid)
        if text.due:
            waits = group is not None and call in group.waiting and not group.case
            return [self._hand_out(text.uid, call)] if waits else []
        if group is None or (group.over and len(group.seen) >= group.expected and call not in group.seen):
            group = _Group()  # the last group of this name was complete, so this is another one
        self._touch(text.uid, group, now)
        group.expected = max(group.expected, text.expected)
        if call in group.ends:
            return [Told(call, End(group.ends.pop(call)))]
        if call in group.seen:
            return []
        group.seen.add(call)
        if group.case or group.over:
            return [] if text.gone else [Told(call, End(b"", "late"))]
        told: list[Told] = []
        if not text.gone and self._hold(group, text):
            group.waiting[call] = text.member
        else:
            group.textless.add(text.member)
            told = [] if text.gone else [Told(call, End(b"", "full"))]
        if len(group.texts.keys() | group.textless) >= group.expected:
            if group.waiting:
                told.append(self._hand_out(text.uid, next(reversed(group.waiting))))
            else:
                self._close(text.uid, group)
        return told

    def ends(self, ends: Ends, client: str, now: float, silent: Collection[str] = ()) -> list[Told]:
        """What a client has made of a case. The first ends of a group are its members' ends, also from a client that
        was given up. Those of an earlier coordinator's case hold here too, before its members have reported again.
        """
        group = self._groups.get(ends.uid)
        known = ends.case.startswith(f"{self._name}/")
        if known and (group is None or group.over or group.case != ends.case):
            return []
        if not ends.ends:
            if group is None or not known or group.judge[0] != client:
                return []
            group.waiting.pop(group.judge, None)  # its caller has given up
            return self._pass_on(ends.uid, group, silent)
        group = group or _Group()
        self._touch(ends.uid, group, now)
        told = [Told(call, _end(ends.ends.get(call))) for call in group.waiting]
        group.ends |= {call: data for call, data in ends.ends.items() if call not in group.seen}
        group.seen.update(ends.ends)
        group.expected = max(group.expected, ends.expected)
        self._close(ends.uid, group)
        return told

    def without(self, silent: Collection[str]) -> list[Told]:
        """These clients have not been heard of for long: what they judge is handed to others that wait."""
        lost = [(uid, group) for uid, group in self._cases.items() if group.judge[0] in silent]
        return [told for uid, group in lost for told in self._pass_on(uid, group, silent)]

    def _pass_on(self, uid: str, group: _Group, silent: Collection[str]) -> list[Told]:
        """To another client; to none while there is none."""
        if not group.texts:
            told = [Told(call, End(b"", "lost")) for call in group.waiting]
            self._close(uid, group)
            return told
        heard = (call for call in group.waiting if call[0] not in silent)
        call = next(heard, None)
        return [] if call is None else [self._hand_out(uid, call)]

    def _hand_out(self, uid: str, call: Call) -> Told:
        group = self._groups[uid]
        group.case = group.case or f"{self._name}/{next(self._numbers)}"
        group.judge = call
        self._cases[uid] = group
        calls = [(client, number, member) for (client, number), member in group.waiting.items()]
        return Told(call, Case(uid, group.case, group.expected, dict(group.texts), calls))

    def _hold(self, group: _Group, text: Text) -> bool:
        """Keep a text, in place of one of the same member. False: there is no room for it."""
        needed = len(text.data) - len(group.texts.get(text.member, b""))
        if self.bytes + needed > self._max_bytes:
            # Without this look, a text that has no room anyway would cost all cases theirs.
            if self.bytes + needed - sum(map(_size, self._cases.values())) > self._max_bytes:
                return False
            for other in self._cases.values():
                self._drop(other)
                if self.bytes + needed <= self._max_bytes:
                    break
        group.texts[text.member] = text.data
        self.bytes += needed
        return True

    def _drop(self, group: _Group) -> None:
        self.bytes -= _size(group)
        group.texts = {}

    def _close(self, uid: str, group: _Group) -> None:
        self._drop(group)
        self._cases.pop(uid, None)
        group.over, group.waiting = True, {}

    def _touch(self, uid: str, group: _Group, now: float) -> None:
        self._groups.pop(uid, None)
        self._groups[uid] = group
        group.touched = now
        while True:
            oldest, idle = next(iter(self._groups.items()))
            if len(self._groups) <= self._most and now - idle.touched <= self._keep:
                return
            self._close(oldest, self._groups.pop(oldest))


def _size(group: _Group) -> int:
    return sum(map(len, group.texts.values()))


def _end(data: bytes | None) -> End:
    return End(b"", "late") if data is None else End(data)
