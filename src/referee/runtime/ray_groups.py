"""Where siblings meet: rollouts of one prompt, rewarded in different processes, learn their group's values.

    groups = open_groups()
    found = await groups.meet(uid, member, length, expected=8, wait=600.0)
    found.values      {member: length, ...}, all that are there
    found.complete    False: the wait was over first, and `values` holds fewer than `expected`

`GroupClient` is one process's end and knows no Ray; `open_groups` puts the Desk into a named Ray actor, or into this
process where there is no cluster.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import os
import threading
import uuid
from collections.abc import Callable, Coroutine
from typing import Any, Protocol

from referee import clock
from referee.runtime.ray_cluster import aside, end, find, find_or_make, join, joined
from referee.runtime.ray_desk import KEEP, Answer, Desk, Gathered, Report
from referee.runtime.thread import new_loop
from referee.version import VERSION

log = logging.getLogger("referee.runtime")

IDLE = 1800.0
"""Seconds without any call after which the actor ends itself. It is made again when it is needed."""
LONG_POLL = 20.0
"""Seconds the desk holds a client's question open while there is nothing to tell."""
GATHER = 0.005
"""Seconds reports wait for company before they are sent together."""
CALL = 30.0
"""Seconds a call to the desk may take beyond what it was asked to wait, before it is given up and sent again."""
AGAIN = 0.25
"""Seconds before a call that failed is tried again."""
MANY = 10_000
"""Clients that may hold a question open at once."""
REMEMBER = 20_000
"""Reports a client remembers, to tell them again to a desk that has forgotten."""


class FarDesk(Protocol):
    """A Desk somewhere. Calls may fail; `GroupClient` asks `attach` for another then."""

    async def exchange(self, client: str, confirmed: int, reports: list[tuple[Any, ...]], wait: float) -> Answer:
        """As Desk.exchange."""

    async def look(self, uid: str) -> Gathered:
        """As Desk.look."""


class _Wait:
    """Those of this process who wait for one group."""

    __slots__ = ("count", "future")

    def __init__(self, future: asyncio.Future[Gathered]) -> None:
        self.future = future
        self.count = 0


class GroupClient:
    """One process's end. `meet` may be awaited on any event loop; the work is done on a thread of our own."""

    def __init__(self, attach: Callable[[], FarDesk]) -> None:
        """`attach` finds a desk; it may block, and is called again after a failure."""
        self._attach = attach
        self._reset()

    def _reset(self) -> None:
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._name = f"{os.getpid()}-{uuid.uuid4().hex}"
        self._desk: FarDesk | None = None
        self._attaching: asyncio.Lock | None = None
        self._desk_name = ""
        self._confirmed = 0
        self._reports: dict[tuple[str, str], Report] = {}
        self._fresh: dict[tuple[str, str], Report] = {}
        self._waiting: dict[str, _Wait] = {}
        self._polling = self._sending = False
        self._tasks: set[asyncio.Task[None]] = set()

    async def meet(self, uid: str, member: str, value: Any, expected: int, wait: float = 600.0) -> Gathered:
        """Tell a member's value (plain data) and wait until `expected` members have told theirs, or the time is over.

        After `wait` seconds what is there is returned, with `complete` False: this member's own value at least.
        """
        work = self._meet(Report(uid, member, value, expected), wait)
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self._running()))

    def close(self) -> None:
        """Stop. Whoever waits gets what this process knows itself."""
        with self._lock:
            loop, self._loop = self._loop, None
        if loop is not None and self._pid == os.getpid():
            with contextlib.suppress(RuntimeError):
                asyncio.run_coroutine_threadsafe(self._end(), loop)

    def _running(self) -> asyncio.AbstractEventLoop:
        if self._pid != os.getpid():
            self._reset()
        with self._lock:
            if self._loop is None:
                self._loop = new_loop()
                threading.Thread(target=_live, args=(self._loop,), name="referee-groups", daemon=True).start()
            return self._loop

    async def _meet(self, report: Report, wait: float) -> Gathered:
        waiting = self._waiting.get(report.uid)
        if waiting is None:
            waiting = self._waiting[report.uid] = _Wait(asyncio.get_running_loop().create_future())
        key = (report.uid, report.member)
        self._reports[key] = self._fresh[key] = report
        while len(self._reports) > REMEMBER:
            del self._reports[next(iter(self._reports))]
        self._send_soon()
        if not self._polling:
            self._polling = True
            self._start(self._poll())
        waiting.count += 1
        try:
            return await asyncio.wait_for(asyncio.shield(waiting.future), wait)
        except TimeoutError:
            found = await self._partial(report)
            return waiting.future.result() if waiting.future.done() else found
        finally:
            waiting.count -= 1
            if not waiting.count and self._waiting.get(report.uid) is waiting:
                del self._waiting[report.uid]

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _send_soon(self) -> None:
        if self._fresh and not self._sending:
            self._sending = True
            self._start(self._send())

    async def _send(self) -> None:
        """Fresh reports, together; again until a desk has them."""
        try:
            await clock.sleep(GATHER)
            while self._fresh:
                reports, self._fresh = self._fresh, {}
                if not await self._exchange(list(reports.values()), 0.0):
                    self._fresh = {**reports, **self._fresh}
                    await clock.sleep(AGAIN)
        finally:
            self._sending = False

    async def _poll(self) -> None:
        """Ask for news while somebody waits, and afterwards as long as others may need to hear our reports again."""
        quiet = clock.now()
        try:
            while self._waiting or clock.now() - quiet < 2 * LONG_POLL:
                if self._waiting:
                    quiet = clock.now()
                if not await self._exchange([], LONG_POLL):
                    await clock.sleep(AGAIN)
        finally:
            self._polling = False

    async def _exchange(self, reports: list[Report], wait: float) -> bool:
        try:
            desk = await self._attached()
            fields = [tuple(report) for report in reports]
            answer = await asyncio.wait_for(desk.exchange(self._name, self._confirmed, fields, wait), wait + CALL)
        except Exception as error:  # whatever it is, another desk may answer; the bounded wait is the caller's
            log.warning("the place where groups meet does not answer (%s); looking for it again", type(error).__name__)
            self._desk = None
            self._tell_again()
            return False
        self._take(Answer(*answer))
        return True

    def _take(self, answer: Answer) -> None:
        if answer.desk != self._desk_name:
            if self._desk_name:
                self._tell_again()
            self._confirmed = 0
            self._desk_name = answer.desk
        self._confirmed = max(self._confirmed, answer.number)
        for uid, fields in answer.complete:
            waiting = self._waiting.pop(uid, None)
            if waiting is not None and not waiting.future.done():
                waiting.future.set_result(Gathered(*fields))

    def _tell_again(self) -> None:
        """Another desk knows nothing of what we have told the last one."""
        self._fresh = {**self._reports, **self._fresh}
        self._send_soon()

    async def _attached(self) -> FarDesk:
        if self._attaching is None:
            self._attaching = asyncio.Lock()
        async with self._attaching:
            if self._desk is None:
                self._desk = await aside(self._attach)
            return self._desk

    async def _partial(self, report: Report) -> Gathered:
        """What is there now; at worst what this process has told itself."""
        own = {r.member: r.value for r in self._reports.values() if r.uid == report.uid}
        own[report.member] = report.value
        values, expected = dict(own), report.expected
        with contextlib.suppress(Exception):
            desk = await asyncio.wait_for(self._attached(), AGAIN)
            found = Gathered(*await asyncio.wait_for(desk.look(report.uid), CALL / 10))
            values, expected = {**found.values, **own}, max(expected, found.expected)
        complete = len(values) >= expected
        if not complete:
            log.warning(
                "a group has %d of %d members after the wait; its rewards are computed from these. Siblings that "
                "failed, or a wait shorter than the slowest rollout, are the usual causes.",
                len(values),
                expected,
            )
        return Gathered(values, expected, complete)

    async def _end(self) -> None:
        for uid, waiting in list(self._waiting.items()):
            own = {r.member: r.value for r in self._reports.values() if r.uid == uid}
            if not waiting.future.done():
                waiting.future.set_result(Gathered(own, len(own) + 1, False))
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        loop = asyncio.get_running_loop()
        clock.at(loop, loop.time() + AGAIN, loop.stop)


def _live(loop: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(loop)
    try:
        loop.run_forever()
    finally:
        loop.close()


class GroupsActor(Desk):
    """The Desk as a Ray actor. It ends itself when nobody has called for a while."""

    def __init__(self, name: str, keep: float, idle: float) -> None:
        super().__init__(keep)
        self._actor = name
        self._idle = idle
        self._watch: asyncio.Task[None] | None = None

    async def exchange(self, client: str, confirmed: int, reports: list[tuple[Any, ...]], wait: float) -> Answer:
        """As Desk.exchange."""
        if self._watch is None:
            self._watch = asyncio.get_running_loop().create_task(self._end_when_idle())
        return await super().exchange(client, confirmed, reports, wait)

    async def _end_when_idle(self) -> None:
        while self.open_calls or clock.monotonic() - self.last_call < self._idle:
            await clock.sleep(self._idle / 4)
        end(self._actor)


class _RayDesk:
    """The actor's handle in the shape of a Desk."""

    def __init__(self, handle: Any) -> None:
        self._handle = handle

    async def exchange(self, client: str, confirmed: int, reports: list[tuple[Any, ...]], wait: float) -> Answer:
        """As Desk.exchange."""
        return Answer(*await self._handle.exchange.remote(client, confirmed, reports, wait))

    async def look(self, uid: str) -> Gathered:
        """As Desk.look."""
        return Gathered(*await self._handle.look.remote(uid))


def actor_name() -> str:
    """The actor's name in our namespace: one for each version, because versions may not understand each other."""
    return f"referee-groups-{VERSION}"


def _attach_ray(keep: float, idle: float) -> FarDesk:
    join()
    name = actor_name()
    handle = find_or_make(GroupsActor, name, lambda: (name, keep, idle), max_concurrency=MANY)
    return _RayDesk(handle)


def open_groups(keep: float = KEEP, idle: float = IDLE) -> GroupClient:
    """The place where groups meet: one for the whole cluster where this process is on one, else in this process."""
    with _opening:
        on_ray = joined()
        if on_ray not in _open:
            if on_ray:
                _open[on_ray] = GroupClient(functools.partial(_attach_ray, keep, idle))
            else:
                desk = Desk(keep)
                _open[on_ray] = GroupClient(lambda: desk)
        return _open[on_ray]


def shutdown() -> bool:
    """End the cluster's actor at once, for all who use it. False if there is none."""
    if find(actor_name()) is None:
        return False
    return end(actor_name())


_open: dict[bool, GroupClient] = {}
_opening = threading.Lock()
