"""A client of the group coordinator: rollouts of one prompt, rewarded in different processes, share their values.

    groups = open_groups()
    found = await groups.meet(uid, member, length, expected=8, wait=600.0)
    found.values      {member: length, ...}, all that are there
    found.complete    False: the wait was over first, and `values` holds fewer than `expected`
    found.late        True: the others' wait was over before this member came, so `values` holds its own alone

`GroupClient` is one process's side and knows no Ray; `open_groups` puts the GroupCoordinator into a named Ray actor, or
into this process where there is no cluster. The actor belongs to one Ray job and dies with the process that made it,
one of a trainer's reward workers: the names of one training run mean nothing to the next.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import itertools
import logging
import os
import threading
import uuid
from collections.abc import Callable, Coroutine
from typing import Any, Protocol

from referee import clock
from referee.runtime.ray_cluster import aside, end, find, find_or_make, join, joined
from referee.runtime.ray_group_coordinator import KEEP, Answer, Gathered, GroupCoordinator, Report
from referee.runtime.thread import new_loop
from referee.version import VERSION

log = logging.getLogger("referee.runtime")

LONG_POLL = 20.0
"""Seconds the coordinator holds a poll open while nothing is settled."""
GATHER = 0.005
"""Seconds a report waits, so that more of them share one call."""
CALL = 30.0
"""Seconds a call to the coordinator may take beyond what it was asked to wait, before it is given up and sent again."""
AGAIN = 0.25
"""Seconds before a call that failed is tried again."""
MANY = 10_000
"""Polls that may be open at once."""
REMEMBER = 20_000
"""Reports a client keeps, to send them again to a coordinator that was restarted."""


class CoordinatorHandle(Protocol):
    """A GroupCoordinator somewhere. Calls may fail; `GroupClient` asks `attach` for another then."""

    async def exchange(self, client: str, confirmed: int, reports: list[tuple[Any, ...]], wait: float) -> Answer:
        """As GroupCoordinator.exchange."""

    async def leave(self, uid: str, client: str, call: int) -> Gathered:
        """As GroupCoordinator.leave."""


class GroupClient:
    """One process's side. `meet` may be awaited on any event loop; the work is done on a thread of our own."""

    def __init__(self, attach: Callable[[], CoordinatorHandle]) -> None:
        """`attach` finds a coordinator; it may block, and is called again after a failure."""
        self._attach = attach
        self._reset()

    def _reset(self) -> None:
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._name = f"{os.getpid()}-{uuid.uuid4().hex}"
        self._coordinator: CoordinatorHandle | None = None
        self._attaching: asyncio.Lock | None = None
        self._coordinator_name = ""
        self._confirmed = 0
        self._calls = itertools.count(1)
        self._reports: dict[int, Report] = {}
        self._fresh: dict[int, Report] = {}
        self._waiting: dict[int, asyncio.Future[Gathered]] = {}
        self._polling = self._sending = False
        self._tasks: set[asyncio.Task[None]] = set()

    async def meet(self, uid: str, member: str, value: Any, expected: int, wait: float = 600.0) -> Gathered:
        """Report a member's value (plain data) and wait until `expected` members have reported, or the time is over.

        After `wait` seconds what is there is returned, with `complete` False: this member's own value at least. A group
        is given out once: the same `uid` afterwards is another group.
        """
        loop = self._running()
        work = self._meet(Report(uid, member, value, expected, next(self._calls)), wait)
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, loop))

    def tell(self, uid: str, member: str, value: Any, expected: int) -> None:
        """As `meet`, for a member that needs nothing of its siblings. Returns at once."""
        loop = self._running()
        loop.call_soon_threadsafe(self._report, Report(uid, member, value, expected, next(self._calls), waits=False))

    def close(self) -> None:
        """Stop. Open waits end with the values of this process."""
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
        future = self._waiting[report.call] = asyncio.get_running_loop().create_future()
        self._report(report)
        try:
            return await asyncio.wait_for(asyncio.shield(future), wait)
        except TimeoutError:
            found = await self._partial(report)
            return future.result() if future.done() else found
        finally:
            del self._waiting[report.call]

    def _report(self, report: Report) -> None:
        self._reports[report.call] = self._fresh[report.call] = report
        while len(self._reports) > REMEMBER:
            del self._reports[next(iter(self._reports))]
        self._send_soon()
        if not self._polling:
            self._polling = True
            self._start(self._poll())

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _send_soon(self) -> None:
        if self._fresh and not self._sending:
            self._sending = True
            self._start(self._send())

    async def _send(self) -> None:
        """Fresh reports, together; again until a coordinator has them."""
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
        """Poll while calls wait, and afterwards as long as a restarted coordinator may need our reports again."""
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
            coordinator = await self._attached()
            fields = [tuple(report) for report in reports]
            answer = await asyncio.wait_for(
                coordinator.exchange(self._name, self._confirmed, fields, wait), wait + CALL
            )
        except Exception as error:  # whatever it is, another coordinator may answer; the bounded wait is the caller's
            log.warning("the group coordinator does not respond (%s); reconnecting", type(error).__name__)
            self._coordinator = None
            # It may be the same one that answers again, and that has dropped the groups it has given out.
            self._tell_again({call: report for call, report in self._reports.items() if call in self._waiting})
            return False
        self._take(Answer(*answer))
        return True

    def _take(self, answer: Answer) -> None:
        if answer.coordinator != self._coordinator_name:
            if self._coordinator_name:
                self._tell_again(self._reports)  # also what was answered: a sibling may have lost its answer
            self._confirmed = 0
            self._coordinator_name = answer.coordinator
        self._confirmed = max(self._confirmed, answer.number)
        for calls, fields in answer.given:
            for call in calls:
                future = self._waiting.get(call)
                if future is not None and not future.done():
                    future.set_result(Gathered(*fields))

    def _tell_again(self, reports: dict[int, Report]) -> None:
        self._fresh = {**reports, **self._fresh}
        self._send_soon()

    async def _attached(self) -> CoordinatorHandle:
        if self._attaching is None:
            self._attaching = asyncio.Lock()
        async with self._attaching:
            if self._coordinator is None:
                self._coordinator = await aside(self._attach)
            return self._coordinator

    async def _partial(self, report: Report) -> Gathered:
        """What is there now; at worst what this process has reported itself."""
        own = self._own(report)
        values, expected = dict(own), report.expected
        with contextlib.suppress(Exception):
            coordinator = await asyncio.wait_for(self._attached(), AGAIN)
            leaving = coordinator.leave(report.uid, self._name, report.call)
            found = Gathered(*await asyncio.wait_for(leaving, CALL / 10))
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

    def _own(self, report: Report) -> dict[str, Any]:
        """Values of this group that were reported here and not answered."""
        there = [self._reports[call] for call in self._waiting if call in self._reports]
        return {r.member: r.value for r in (*there, report) if r.uid == report.uid}

    async def _end(self) -> None:
        for call, future in list(self._waiting.items()):
            if not future.done():
                report = self._reports.get(call)
                own = {} if report is None else self._own(report)
                future.set_result(Gathered(own, len(own) + 1, False))
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


class _RayCoordinator:
    """The actor's handle in the shape of a GroupCoordinator."""

    def __init__(self, handle: Any) -> None:
        self._handle = handle

    async def exchange(self, client: str, confirmed: int, reports: list[tuple[Any, ...]], wait: float) -> Answer:
        """As GroupCoordinator.exchange."""
        return Answer(*await self._handle.exchange.remote(client, confirmed, reports, wait))

    async def leave(self, uid: str, client: str, call: int) -> Gathered:
        """As GroupCoordinator.leave."""
        return Gathered(*await self._handle.leave.remote(uid, client, call))


def actor_name() -> str:
    """The actor's name in our namespace: one for each Ray job, and for each version, because versions may not
    understand each other."""
    import ray

    return f"referee-groups-{VERSION}-{ray.get_runtime_context().get_job_id()}"


def _attach_ray(keep: float) -> CoordinatorHandle:
    join()
    name = actor_name()
    handle = find_or_make(GroupCoordinator, name, lambda: (keep,), detached=False, max_concurrency=MANY)
    _handles[name] = handle  # it lives as long as the handle of the process that made it
    return _RayCoordinator(handle)


def open_groups(keep: float = KEEP) -> GroupClient:
    """The client of the group coordinator: one for all processes of a Ray job, or of this process alone without Ray."""
    with _opening:
        on_ray = joined()
        if on_ray not in _open:
            if on_ray:
                _open[on_ray] = GroupClient(functools.partial(_attach_ray, keep))
            else:
                coordinator = GroupCoordinator(keep)
                _open[on_ray] = GroupClient(lambda: coordinator)
        return _open[on_ray]


def shutdown() -> bool:
    """End this job's actor at once, for all its clients. False if there is none."""
    if find(actor_name()) is None:
        return False
    return end(actor_name())


_handles: dict[str, Any] = {}
_open: dict[bool, GroupClient] = {}
_opening = threading.Lock()
