"""A client of the group coordinator: rollouts of one prompt, rewarded in different processes, share their values.

    found = await groups.meet(uid, member, length, expected=8, wait=600.0)
    found.values      {member: length, ...}, all that are there
    found.complete    False: the wait was over first, and `values` holds fewer than `expected`
    found.late        True: the others' wait was over before this member came, so `values` holds its own alone

    end = await groups.judge(uid, member, text, 8, judge, wait=600.0, limit=600.0)
    end.data          what `judge` made of this member, in one of the processes, given the texts of all

It knows no Ray: `ray_group_actor.open_groups` makes one, and says where the coordinator is.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import math
import os
import threading
import uuid
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any, Protocol, TypeVar

from referee import clock
from referee.runtime.background import new_loop
from referee.runtime.ray_cluster import aside
from referee.runtime.ray_group_coordinator import (
    LONG_POLL,
    SILENT,
    Answer,
    Gathered,
    Report,
    pack,
    unpack,
)
from referee.runtime.ray_judged_groups import Case, End, Ends, Text

T = TypeVar("T")
Sent = Report | Text | Ends

log = logging.getLogger("referee.runtime")

GATHER = 0.005
"""Seconds a report waits, so that more of them share one call."""
CALL = 30.0
"""Seconds a call to the coordinator may take beyond what it was asked to wait, before it is given up and sent again."""
AGAIN = 0.25
"""Seconds before a call that failed is tried again."""
REMEMBER = 20_000
"""Reports a client keeps, to send them again to a coordinator that was restarted."""
REMEMBER_CASES = 256
"""Cases whose ends it keeps for that."""
MESSAGE_BYTES = 16_000_000
"""Of texts in one call, about."""

JudgeTexts = Callable[[dict[str, bytes]], Awaitable[dict[str, bytes]]]
"""The texts of a group, by member, to each one's end. Does not raise."""


class CoordinatorHandle(Protocol):
    """A GroupCoordinator somewhere. Calls may fail; `GroupClient` asks `attach` for another then."""

    async def exchange(self, client: str, confirmed: int, reports: list[tuple[Any, ...]], wait: float) -> Answer:
        """As GroupCoordinator.exchange."""

    async def leave(self, uid: str, client: str, call: int) -> tuple[Any, ...]:
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
        self._changed = -math.inf
        """When another coordinator answered for the first time."""
        self._calls = itertools.count(1)
        self._reports: dict[int, Sent] = {}
        self._fresh: dict[int, Sent] = {}
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._judges: dict[int, JudgeTexts] = {}
        self._cases: dict[tuple[str, int], int] = {}
        """What this client was handed, and the number of its ends."""
        self._polling = self._sending = False
        self._tasks: set[asyncio.Task[Any]] = set()

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

    async def judge(
        self, uid: str, member: str, data: bytes, expected: int, judge: JudgeTexts, *, wait: float, limit: float
    ) -> End:
        """Have a member judged together with its siblings: by the `judge` of one of them, on the loop of its client,
        when `expected` members are there or the first of them has waited `wait` seconds. `limit`: seconds more by
        which there is an end.

        A caller that is cancelled leaves its text, and its `judge`, to its siblings.
        """
        loop = self._running()
        work = self._kept(self._judged(Text(uid, member, data, expected, next(self._calls)), judge, wait, limit))
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, loop))

    def gone(self, uid: str, member: str, expected: int) -> None:
        """A member that will not be judged: its siblings do not wait for it. Returns at once."""
        loop = self._running()
        loop.call_soon_threadsafe(self._tell_gone, Text(uid, member, b"", expected, next(self._calls), gone=True))

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
            return await clock.within(asyncio.shield(future), wait)
        except TimeoutError:
            found = await self._partial(report)
            return future.result() if future.done() else found
        finally:
            del self._waiting[report.call]

    async def _kept(self, work: Coroutine[Any, Any, End]) -> End:
        return await asyncio.shield(self._start(work))

    async def _judged(self, text: Text, judge: JudgeTexts, wait: float, limit: float) -> End:
        future = self._waiting[text.call] = asyncio.get_running_loop().create_future()
        self._judges[text.call] = judge
        self._report(text)
        due = clock.now() + wait
        end = due + limit
        try:
            while (now := clock.now()) < end:
                # A coordinator that has just been restarted does not know all siblings yet.
                pause = max(due, self._changed + SILENT) - now
                if pause <= 0:
                    self._fresh[-text.call] = text._replace(data=b"", due=True)
                    self._send_soon()
                    pause = SILENT
                with contextlib.suppress(TimeoutError):
                    found: End = await clock.within(asyncio.shield(future), min(pause, end - now))
                    return found
            return End(b"", "lost")
        finally:
            for open_calls in (self._waiting, self._judges, self._reports):
                open_calls.pop(text.call, None)

    async def _lead(self, call: int, case: Case) -> None:
        """Judge a group that was handed to this client, and send its members their ends."""
        judge = self._judges.get(call)
        found = {} if judge is None else await judge(case.texts)
        ends = {(client, number): found[member] for client, number, member in case.calls if member in found}
        number = self._cases[case.id, call] = next(self._calls)
        self._report(Ends(case.uid, case.id, case.expected, ends, number))
        while len(self._cases) > REMEMBER_CASES:
            self._reports.pop(self._cases.pop(next(iter(self._cases))), None)

    def _report(self, report: Sent) -> None:
        self._reports[report.call] = self._fresh[report.call] = report
        while len(self._reports) > REMEMBER:
            del self._reports[next(iter(self._reports))]
        self._send_soon()
        if not self._polling:
            self._polling = True
            self._start(self._poll())

    def _tell_gone(self, text: Text) -> None:
        self._fresh[text.call] = text
        self._send_soon()

    def _start(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def _send_soon(self) -> None:
        if self._fresh and not self._sending:
            self._sending = True
            self._start(self._send())

    async def _send(self) -> None:
        """Fresh reports, together; again until a coordinator has them."""
        try:
            await clock.sleep(GATHER)
            while self._fresh:
                reports, size = dict[int, Sent](), 0
                while self._fresh and size < MESSAGE_BYTES:
                    call, report = next(iter(self._fresh.items()))
                    reports[call] = self._fresh.pop(call)
                    size += len(report.data) if isinstance(report, Text) else 0
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

    async def _exchange(self, reports: list[Sent], wait: float) -> bool:
        try:
            coordinator = await self._attached()
            packed = [pack(report) for report in reports]
            answer = await clock.within(coordinator.exchange(self._name, self._confirmed, packed, wait), wait + CALL)
        except Exception as error:  # whatever it is, another coordinator may answer; the bounded wait is the caller's
            level = logging.WARNING if self._waiting else logging.DEBUG
            log.log(level, "the group coordinator does not respond (%s); reconnecting", type(error).__name__)
            self._coordinator = None
            # It may be the same one that answers again, and that has dropped the groups it has given out.
            waiting = {call: report for call, report in self._reports.items() if call in self._waiting}
            self._tell_again({call: report for call, report in waiting.items() if isinstance(report, Report)})
            return False
        self._take(Answer(*answer))
        return True

    def _take(self, answer: Answer) -> None:
        if answer.coordinator != self._coordinator_name:
            if self._coordinator_name:
                self._tell_again(self._reports)  # also what was answered: a sibling may have lost its answer
                self._changed = clock.now()
            self._confirmed = 0
            self._coordinator_name = answer.coordinator
        self._confirmed = max(self._confirmed, answer.number)
        for calls, packed in answer.given:
            found = unpack(packed)
            for call in calls:
                if isinstance(found, Case):
                    if (found.id, call) not in self._cases:  # an answer may come twice
                        self._cases[found.id, call] = 0
                        self._start(self._lead(call, found))
                    continue
                future = self._waiting.get(call)
                if future is not None and not future.done():
                    future.set_result(found)

    def _tell_again(self, reports: Mapping[int, Sent]) -> None:
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
            coordinator = await clock.within(self._attached(), AGAIN)
            leaving = coordinator.leave(report.uid, self._name, report.call)
            found = unpack(await clock.within(leaving, CALL / 10))
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
        return {r.member: r.value for r in (*there, report) if isinstance(r, Report) and r.uid == report.uid}

    async def _end(self) -> None:
        for call, future in list(self._waiting.items()):
            report = self._reports.get(call)
            if not future.done() and call in self._judges:
                future.set_result(End(b"", "lost"))
            elif not future.done():
                own = self._own(report) if isinstance(report, Report) else {}
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
