"""Judging in worker processes, so that it does not compete for the trainer's interpreter.

The parent keeps one daemon thread with a loop that only moves bytes, lands ends and answers for the shared limits. A
worker that dies is replaced and its samples are sent again; a parent that dies takes its workers along.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections.abc import Callable, Coroutine
from typing import Any

from msgspec.structs import replace

from referee import clock
from referee.config import Config
from referee.engine import find_key
from referee.errors import ConfigError, RefereeError, TicketCancelled
from referee.limits import make_limit
from referee.limits.quota_broker import Broker, SharedEndpoint
from referee.records import Reason, Unscored
from referee.runtime.background import Background
from referee.runtime.child import Child, start_child
from referee.runtime.client import RemoteTracker
from referee.runtime.messages import (
    Asked,
    Granted,
    Leave,
    Note,
    Nudge,
    Open,
    Outbound,
    Ready,
    encode,
    pack_config,
)
from referee.scoring.build import build_worker
from referee.scoring.local import BuildWorker
from referee.scoring.messages import Update
from referee.version import VERSION

log = logging.getLogger("referee.runtime")

START = 60.0
"""Seconds all workers may take to come up."""
GATHER = 0.005
"""After a message was sent, seconds that further samples wait to share the next one."""
STARTS = 3
"""Workers in a row that may fail to come up before the work is given up."""
LOOK, LOOKS = 5.0, 12
"""Seconds between two checks of the workers, and checks in a row that find one silent before it is killed. A worker
that has work sends an update twice a second."""
SOON = 5.0
"""A worker that dies within this many seconds is replaced after a pause, so that crashes do not become a busy loop."""


class WorkerPool:
    """The workers, and everything about them that lives on the parent's loop."""

    def __init__(self, config: Config, folder: str, give_up: Callable[[], None]) -> None:
        """`give_up` is called when workers can no longer be replaced."""
        self._config = config
        self._folder = folder
        self._children: dict[int, Child] = {}
        self._generation = 0
        self._names: dict[int, str] = {}
        self._failures = 0
        self._started = self._closing = False
        self._tasks: set[asyncio.Task[None]] = set()
        self._give_up = give_up
        self._heard: set[int] = set()
        self._silent: dict[int, int] = {}
        """Checks in a row that found no message from a worker that has work."""
        self.tracker = RemoteTracker(config, config.workers, self._send, gather=GATHER, exclusive=True)
        self._broker = Broker(
            [SharedEndpoint(make_limit(config.limits), config.limits.rpm, config.limits.tpm) for _ in config.endpoint],
            config.limits.budget_usd,
        )

    @property
    def children(self) -> list[Child]:
        """The workers that live now."""
        return list(self._children.values())

    async def start(self) -> None:
        """Start all workers and wait until they are ready. Raises the first error that one of them reports."""
        try:
            ranks = range(self._config.workers)
            children = [await self._launch(rank) for rank in ranks]
            async with asyncio.timeout(START):
                for child in children:
                    await child.ready
        except TimeoutError:
            raise RefereeError(
                f"worker processes were not ready within {START:g} s; the machine may be overloaded. Nothing was "
                'judged. Set workers lower, or runtime = "thread".'
            ) from None
        self._started = True
        for rank, child in enumerate(children):
            if self._children.get(rank) is not child:  # it has ended since it was ready
                self._begin(self._replace(rank, child, young=True))
        self._begin(self._watch())

    async def close(self, seconds: float) -> None:
        """Let workers finish within this time; then end them, and give everything that is open an end."""
        self._closing = True
        for task in list(self._tasks):
            task.cancel()
        for child in self._children.values():
            child.send((encode(Leave()),))
        until = clock.now() + seconds
        while self._children and clock.now() < until:
            await clock.sleep(0.01)
        for rank in list(self._children):
            self._children.pop(rank).end()
        self.tracker.end_all(Unscored(reason=Reason.CANCELLED, detail="the Referee was closed"))
        self.tracker.close()

    async def _launch(self, rank: int) -> Child:
        child = start_child(self._folder)
        self._generation += 1
        self._names[rank] = f"{rank}.{self._generation}"
        self._children[rank] = child
        try:
            await child.connect(lambda message: self._took(rank, child, message), lambda: self._ended(rank, child))
        except OSError:
            del self._children[rank]
            child.end()
            raise
        level = min(logging.getLogger(name).getEffectiveLevel() for name in ("referee", "referee.engine"))
        lines = self.tracker.recorder.kept
        opening = Open(VERSION, pack_config(self._config), self._config.workers, rank, lines, level)
        child.send((encode(opening),))
        return child

    def _send(self, rank: int, messages: Any) -> None:
        child = self._children.get(rank)
        if child is not None:
            child.send([encode(message) for message in messages])

    def _took(self, rank: int, child: Child, message: Outbound) -> None:
        self._heard.add(rank)
        if isinstance(message, Update):
            self.tracker.updated(rank, message)
        elif isinstance(message, Asked):
            grant = self._broker.exchange(self._names[rank], message.report, clock.now())
            child.send((encode(Granted(grant)),))
            self._nudge()
        elif isinstance(message, Note):
            logging.getLogger(message.logger).log(message.level, "%s", message.text)
        elif isinstance(message, Ready):
            self._ready(rank, child, message)

    def _nudge(self) -> None:
        for rank, name in self._names.items():
            if name in self._broker.over_share:
                self._send(rank, (Nudge(),))
        self._broker.over_share.clear()

    def _ready(self, rank: int, child: Child, message: Ready) -> None:
        if message.fault is not None:
            child.ready.set_exception(message.fault.error())
            return
        self._failures = 0
        child.ready.set_result(None)
        self.tracker.ready(rank)

    def _ended(self, rank: int, child: Child) -> None:
        """A worker's pipe is closed: it has ended, or is about to."""
        if self._children.get(rank) is not child:
            return
        del self._children[rank]
        self._broker.leave(self._names[rank])
        code = child.end()
        if self._closing:
            return
        if not child.ready.done():
            child.ready.set_exception(
                RefereeError(
                    f"a worker process ended while it started (exit code {code}); its own message is on standard "
                    'error. Nothing was judged. Set runtime = "thread" to go on without workers.'
                )
            )
            self._failures += 1
        else:
            log.warning("a worker process died (exit code %d); another takes over its samples", code)
        self.tracker.lost(rank)
        if self._started:
            self._begin(self._replace(rank, child, young=clock.now() - child.started < SOON))

    async def _replace(self, rank: int, gone: Child, young: bool) -> None:
        """Start another. An error that it reports ends the work at once; one that dies before it can is replaced in its
        turn."""
        trouble: BaseException | None = gone.ready.exception()
        while self._failures < STARTS:
            await clock.sleep(0.5 * (young + self._failures))
            try:
                child = await self._launch(rank)
            except (OSError, RefereeError) as error:
                self._failures += 1
                trouble = error
                log.warning("a worker process could not be replaced (%s)", error)
                continue
            try:
                async with asyncio.timeout(START):
                    await asyncio.shield(child.ready)
                return
            except TimeoutError:
                child.end()
                return
            except RefereeError as error:
                if rank not in self._children:
                    return
                trouble = error
                break
        log.error("worker processes died and could not be replaced: %s", trouble)
        self._give_up()
        self.tracker.fail(TicketCancelled(f"Worker processes died and could not be replaced: {trouble}"))

    async def _watch(self) -> None:
        """Kill workers that have work and send nothing: they are stopped or stuck. A dead one closes its pipe.

        Checks are counted, not seconds: while this process was stopped, it read no messages either.
        """
        while True:
            await clock.sleep(LOOK)
            for rank, child in list(self._children.items()):
                quiet = rank not in self._heard and self.tracker.has_work(rank)
                self._silent[rank] = self._silent.get(rank, 0) + 1 if quiet else 0
                if self._silent[rank] >= LOOKS:
                    log.warning("a worker process has sent nothing for %g s and is killed", LOOK * LOOKS)
                    child.end()
            self._heard.clear()

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


class ProcessesRuntime(Background):
    """A Referee's workers, started on first use and again in a forked child."""

    _who = "the thread that serves the worker processes"
    _name = "referee-processes"
    _patience = START + 10.0
    _margin = 1.0

    def __init__(self, config: Config, build: BuildWorker = build_worker) -> None:
        if build is not build_worker:
            raise ConfigError(
                'runtime = "processes" judges in other processes, where a builder of this one cannot go. '
                'Use runtime = "thread" with it.',
                setting="runtime",
            )
        # Workers get keys over their pipe and look nowhere else for them.
        found = tuple(replace(e, api_key=find_key(e), key_env="", key_file="") for e in config.endpoint)
        self._config = replace(config, endpoint=found)
        super().__init__()

    def _reset(self) -> None:
        super()._reset()
        self._pool: WorkerPool | None = None

    async def _begin(self) -> None:
        pool = self._pool = WorkerPool(self._config, os.getcwd(), self._retire)
        self._tracker = pool.tracker
        try:
            await pool.start()
        except BaseException:
            self._pool = self._tracker = None
            with contextlib.suppress(Exception):
                await pool.close(0.0)
            raise

    async def _end(self, seconds: float) -> None:
        assert self._pool is not None
        await self._pool.close(seconds)

    def _after_fork(self) -> None:
        if self._pool is not None:
            _abandoned.append((self._pool, self._loop))
            for child in self._pool.children:
                child.cut()
        self._reset()


_abandoned: list[Any] = []
"""What a forked child inherited. Collected, it would close descriptors that may have been reused since."""
