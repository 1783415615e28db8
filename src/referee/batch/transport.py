"""A transport under which requests are answered by batches: each `post` waits until its batch is done, and is then
given what the live endpoint would have answered.

Requests of one endpoint are collected until a file is full or no more come, which is when everything open waits. An
answer that is an error of the moment (overload, expiry) is asked again in the next batch, MAX_TRIES times in all, and
not shown to the engine: its breaker would send single probes, each a batch of its own. What has no answer after that
ends with `x-should-retry: false`.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import sqlite3
from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping, Sequence
from hashlib import blake2b
from typing import Any

from referee import clock
from referee.batch.calls import Pace
from referee.batch.journal import INTENDED, Item, Journal, Listed, item_of
from referee.batch.outcomes import error, response, sort_refused, sort_results
from referee.batch.port import EXPIRED, BatchApi, Line, Refused, Seen, Unsure
from referee.batch.status import Board
from referee.engine.port import Response, TransportFault

log = logging.getLogger("referee.batch")

STUCK_S = 30 * 3600.0
"""Providers end a batch after 24 hours. One that is open after this is no longer waited for; --resume looks again."""
LONGEST_WAIT_S = 60.0
"""Questions are not held back longer than this for a fuller file."""
SKEW_S = 3600.0
"""How far a provider's clock may be behind ours when a batch is searched for."""
FEWEST = 100
"""Requests below which a batch is not made smaller for an account without room: others fill it then."""
GIVE_WAY = 256
"""Answers handed out between two turns of the loop."""
TOKEN_LIMIT = "token_limit_exceeded"  # noqa: S105  # OpenAI's word for more enqueued tokens than the account may have

OpenApi = Callable[[Mapping[str, str]], BatchApi]
"""Opens the endpoint's batch API with the headers of its requests, which hold the key."""


class _Waiting:
    __slots__ = ("body", "future")

    def __init__(self, body: bytes, future: asyncio.Future[Response]) -> None:
        self.body = body
        self.future = future


class BatchTransport:
    """The transport of one endpoint. `name` is the endpoint's in the journal."""

    def __init__(self, name: str, open_api: OpenApi, journal: Journal, board: Board, pace: Pace) -> None:
        self._name = name
        self._open_api = open_api
        self._api: BatchApi | None = None
        self._journal = journal
        self._board = board
        self._pace = pace
        self._most = 0
        """Requests of a batch: less than the API's cap once the account turned out to have room for fewer."""
        self._waiting: dict[Item, _Waiting] = {}
        self._pending: dict[Item, None] = {}
        """To be sent. Some were cancelled meanwhile; one that is asked again then takes its old place."""
        self._bytes = 0
        self._first = self._last = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._running: set[int] = set()
        self._held: set[int] = set()
        """Of the running ones, those that wait for room in the account."""
        self._change = asyncio.Event()
        """Replaced whenever a batch is over."""

    async def post(self, url: str, headers: Mapping[str, str], body: bytes, timeout: float) -> Response:
        """See Transport."""
        if self._api is None:
            self._begin(headers)
        digest = blake2b(b"%b\0%b" % (self._name.encode(), body), digest_size=16).digest()
        known, n = self._journal.find(digest), 0
        while (n in known and known[n].given) or Item(digest, n) in self._waiting:
            n += 1
        item, found = Item(digest, n), known.get(n)
        if found is not None and found.reply is not None and found.status is not None:
            self._journal.given(item)
            return response(self._journal.run, item, found.status, found.reply)
        future: asyncio.Future[Response] = asyncio.get_running_loop().create_future()
        self._waiting[item] = _Waiting(body, future)
        if found is None or found.batch is None:
            self._gather(item)
        elif found.batch not in self._running:  # it was given up, and is looked at again for this
            batch = self._journal.batch(found.batch)
            self._spawn(batch, self._resume(batch))
        try:
            async with asyncio.timeout(timeout):
                return await future
        except TimeoutError:
            raise TransportFault("timeout", f"no answer of its batch within {timeout:g} s") from None
        finally:
            del self._waiting[item]

    async def close(self) -> None:
        """Look after nothing any more. Batches go on at the provider."""
        if self._timer is not None:
            self._timer.cancel()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _begin(self, headers: Mapping[str, str]) -> None:
        """Take up the batches of earlier processes."""
        self._api = api = self._open_api(headers)
        self._most = api.max_items
        for batch in self._journal.batches():
            if batch.open and batch.endpoint == self._name:
                self._spawn(batch, self._resume(batch))

    # Collecting requests.

    def _gather(self, item: Item) -> None:
        assert self._api is not None
        loop = asyncio.get_running_loop()
        self._last = loop.time()
        if not self._pending:
            self._first = self._last
        if item not in self._pending:
            self._pending[item] = None
            self._board.waiting += 1
            self._bytes += len(self._waiting[item].body) + 200
        if len(self._pending) >= self._most or self._bytes >= self._api.max_bytes:
            self._flush()
        elif self._timer is None:
            self._timer = clock.at(loop, self._last + self._pace.idle, self._look)

    def _look(self) -> None:
        """Send what there is if no more comes."""
        loop, self._timer = asyncio.get_running_loop(), None
        due = min(self._last + self._pace.idle, self._first + LONGEST_WAIT_S)
        if loop.time() >= due:
            self._flush()
        else:
            self._timer = clock.at(loop, due, self._look)

    def _flush(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        pending, self._pending, self._bytes = self._pending, {}, 0
        self._board.waiting -= len(pending)
        items = [item for item in pending if item in self._waiting]  # others were cancelled meanwhile
        for at in range(0, len(items), self._most):
            part = items[at : at + self._most]
            try:
                batch = self._journal.intend(self._name, part)
            except sqlite3.Error as fault:
                log.error("the journal of batches cannot be written: %s", fault)
                self._answer(part, error(400, "journal", f"not sent: {self._journal.path} cannot be written"))
                continue
            lines = [Line(item.name(batch.token), self._waiting[item].body) for item in part]
            self._spawn(batch, self._submit(batch, lines))

    # The life of a batch.

    def _spawn(self, batch: Listed, life: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(life)
        self._tasks.add(task)
        self._running.add(batch.number)
        self._board.opened(batch.token, batch.created, batch.items)
        task.add_done_callback(functools.partial(self._over, batch))

    def _over(self, batch: Listed, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._running.discard(batch.number)
        self._board.closed(batch.token)
        self._change.set()
        self._change = asyncio.Event()
        bug = None if task.cancelled() else task.exception()
        if bug is not None:  # a full disk, or a bug of ours: an end all the same, and never a hang
            log.error("a batch could not be looked after", exc_info=bug)
            try:
                items = [item for item, _ in self._journal.items_of(batch.number)]
            except sqlite3.Error:
                items = list(self._waiting)
            message = f"internal error: {type(bug).__name__}; --resume takes the batch up again"
            self._answer(items, error(400, "internal", message))

    async def _submit(self, batch: Listed, lines: Sequence[Line]) -> None:
        assert self._api is not None
        try:
            remote = await self._api.create(batch.token, lines)
        except Unsure:
            await self._resume(batch)
            return
        except Refused as refused:
            self._drop(batch, refused.response)
            return
        except TransportFault as fault:
            items = [item for item, _ in self._journal.items_of(batch.number)]
            self._journal.collected(batch.number, "not sent", (), items)
            self._fail(items, fault)
            return
        await self._take_up(batch, remote)

    async def _resume(self, batch: Listed) -> None:
        try:
            remote = batch.remote or await self._search(batch)
        except Refused as refused:
            self._answer(self._waiting_of(batch), refused.response)
            return
        await self._take_up(batch, remote)

    async def _take_up(self, batch: Listed, remote: str) -> None:
        if not remote:
            items = [item for item, _ in self._journal.items_of(batch.number)]
            self._journal.collected(batch.number, "not created", (), items)
            self._again(items)
            return
        if batch.state == INTENDED:
            self._journal.created(batch.number, remote)
        await self._follow(batch, remote)

    async def _search(self, batch: Listed) -> str:
        """The id of a batch that a process, perhaps this one, meant to create. Empty: it was not created."""
        assert self._api is not None
        log.info("searching for batch %s, which may have been created", batch.token)
        settled = clock.now() + self._pace.settle
        while True:
            late = clock.now() >= settled
            known = {other.remote for other in self._journal.batches() if other.remote}
            try:
                found, certain = await self._api.find(batch.token, batch.items, batch.created - SKEW_S, known)
            except TransportFault as fault:
                log.warning("%s: a batch cannot be searched for (%s); trying on", self._name, fault.kind)
                found, certain = "", False
            if found or (certain and late):
                return found
            await clock.sleep(self._pace.settle if late else max(0.05, settled - clock.now()))

    async def _follow(self, batch: Listed, remote: str) -> None:
        """Look at a batch now and then until it has ended, and take its answers."""
        assert self._api is not None
        wait = self._pace.first
        while True:
            try:
                seen = None
                seen = await self._api.look(remote)
                self._journal.progress(batch.number, seen.done)
                self._board.progress(batch.token, seen.done)
                if seen.ended:
                    results = {} if seen.ended == "failed" else await self._results(seen)
                    break
            except TransportFault as fault:
                log.warning("%s: batch %s cannot be looked at (%s); trying on", self._name, remote, fault.kind)
            except Refused as refused:
                self._unreachable(batch, remote, refused.response, seen is None)
                return
            if clock.wall() - batch.created > STUCK_S:
                message = f"batch {remote} has not ended in {STUCK_S / 3600:g} h; --resume looks at it again"
                self._answer(self._waiting_of(batch), error(EXPIRED, "batch_stuck", message))
                return
            await clock.sleep(wait)
            wait = min(self._pace.poll, wait * 1.5)
        if seen.ended == "failed":
            await self._refused_whole(batch, seen)
        else:
            await self._collect(batch, seen, results)

    def _unreachable(self, batch: Listed, remote: str, answer: Response, unknown: bool) -> None:
        """A batch, or (`unknown` is False) the answers of one that has ended, cannot be had."""
        absent = answer.status in (404, 410)
        if absent and not unknown:
            log.error("%s: the answers of batch %s are no longer there", self._name, remote)
            self._drop(batch, answer)
            return
        if absent:
            message = (
                f"the account of this key does not know batch {remote}. Was the key changed? If the batch is gone, "
                "`referee batches cancel --forget` lets its requests be asked again"
            )
            answer = error(404, "batch_unknown", message)
        self._answer(self._waiting_of(batch), answer)

    async def _results(self, seen: Seen) -> dict[Item, tuple[int, bytes]]:
        assert self._api is not None
        found = await self._api.results(seen)
        return {item: (status, body) for name, status, body in found if (item := item_of(name)) is not None}

    async def _collect(self, batch: Listed, seen: Seen, results: Mapping[Item, tuple[int, bytes]]) -> None:
        """Keep the answers, then hand them out; what was not answered goes into the next batch."""
        items = self._journal.items_of(batch.number)
        found = sort_results(items, seen, results, self._journal.run, self._waiting)
        self._journal.collected(batch.number, seen.ended, found.stored, found.afresh)
        if found.again:
            log.info("%s: %d requests of batch %s go into the next one", self._name, len(found.again), seen.id)
        self._again(found.again)
        for number, (item, answer) in enumerate(found.answers):
            self._answer((item,), answer)
            if number % GIVE_WAY == GIVE_WAY - 1:
                await clock.breathe()

    async def _refused_whole(self, batch: Listed, seen: Seen) -> None:
        """The provider did not accept a file. Nothing of it is billed."""
        items = [item for item, _ in self._journal.items_of(batch.number)]
        self._journal.collected(batch.number, "failed", (), items)
        if seen.problems and seen.problems[0].code == TOKEN_LIMIT:
            await self._wait_for_room(batch, len(items))
            self._again(items)
            return
        found = sort_refused(items, seen)
        self._again(found.again)
        for item, answer in found.answers:
            self._answer((item,), answer)

    async def _wait_for_room(self, batch: Listed, items: int) -> None:
        """The account may not have more tokens in batches at once. If none of ours fills it, ask for less."""
        log.warning("%s: the account may not have more tokens in batches; waiting for room", self._name)
        self._held.add(batch.number)
        self._board.closed(batch.token)
        if self._running - self._held:
            await self._change.wait()
        else:
            self._most = max(min(FEWEST, self._most), items // 2)
            await clock.sleep(self._pace.poll)
        self._held.discard(batch.number)

    # Answers.

    def _drop(self, batch: Listed, answer: Response) -> None:
        """A whole batch has no answers and will have none."""
        items = [item for item, _ in self._journal.items_of(batch.number)]
        self._journal.collected(batch.number, "refused", (), items)
        self._answer(items, answer)

    def _waiting_of(self, batch: Listed) -> list[Item]:
        return [item for item, _ in self._journal.items_of(batch.number) if item in self._waiting]

    def _answer(self, items: Iterable[Item], answer: Response) -> None:
        for item in items:
            waiting = self._waiting.get(item)
            if waiting is not None and not waiting.future.done():
                waiting.future.set_result(answer)

    def _fail(self, items: Iterable[Item], fault: TransportFault) -> None:
        for item in items:
            waiting = self._waiting.get(item)
            if waiting is not None and not waiting.future.done():
                waiting.future.set_exception(TransportFault(fault.kind, fault.detail))

    def _again(self, items: Collection[Item]) -> None:
        """Into the next batch, if they are still wanted."""
        for item in items:
            if item in self._waiting and not self._waiting[item].future.done():
                self._gather(item)
