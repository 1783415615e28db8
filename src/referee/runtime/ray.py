"""Judging on a Ray cluster: named engine actors that all processes with the same settings share.

One adaptive limit, one pace, one budget, one cache and one flight per key for the whole cluster, however many trainers,
reward workers and nodes there are. Importing this module does not import Ray; the first batch does.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import functools
import logging
import os
import threading
import uuid
import weakref
from collections.abc import Callable, Sequence
from typing import Any

from referee.batch import Batch
from referee.config import Config
from referee.engine import find_key
from referee.errors import RefereeError, TicketCancelled, WrongContext
from referee.records import Reason, Unscored
from referee.runtime.messages import Cancel, Work
from referee.runtime.ray_cluster import end, find, find_or_make, join
from referee.runtime.ray_engine import CONTENT, DIGESTS, MANY, NOTHING, EngineActor
from referee.runtime.ray_link import Link, RayEngine
from referee.runtime.ray_settings import broker_name, engine_names, key_tag, seal
from referee.runtime.remote import Remote
from referee.runtime.thread import new_loop
from referee.scorer import Scorer, build_scorer

log = logging.getLogger("referee.runtime")

IDLE = 600.0
"""Seconds without a client after which an engine ends itself."""
GATHER = 0.02
"""Seconds that samples wait for company when others were sent less than that ago."""
COMPANY = 256
"""Samples in one batch that need not wait for more."""
PENDING_CALLS = 64
"""Calls of one client that an engine may be behind with; a client of ours has three at most."""
START = 30.0
"""Seconds the client's own thread may take to come up."""
EXIT = 2.0
"""Seconds given to a goodbye when the interpreter exits."""
GRACE = 5.0
"""Seconds an engine has to write its cache out when it is shut down."""


class RayRuntime:
    """A client of the cluster's engines: a daemon thread whose loop only moves messages."""

    def __init__(
        self, config: Config, build: Callable[[Config], Scorer] = build_scorer, idle: float | None = None
    ) -> None:
        """An engine with a `build` of its own belongs to this client alone and ends with it."""
        self._config = config
        self._build = None if build is build_scorer else build
        self._idle = IDLE if idle is None else idle
        self._reset()
        _alive.add(self)

    def _reset(self) -> None:
        """As new. Also in a forked child, where the parent's thread does not exist and its locks may be held."""
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._remote: Remote | None = None
        self._links: list[Link] = []
        self._closed = False
        self._own = f"-{uuid.uuid4().hex[:8]}" if self._build is not None else ""

    def submit(self, batch: Batch) -> None:
        """Start judging on the cluster."""
        self._start().call_soon_threadsafe(self._take, batch)

    def cancel(self, batch: Batch) -> None:
        """Stop judging a batch."""
        loop, remote = self._loop, self._remote
        if loop is not None and remote is not None and not self._closed:
            why = Unscored(reason=Reason.CANCELLED, detail="cancelled by the caller")
            loop.call_soon_threadsafe(remote.cancel, batch, why)

    def trouble(self, blocking: bool) -> str:
        """Why a batch submitted here cannot finish."""
        if blocking and self._thread is threading.current_thread():
            raise WrongContext(
                "a blocking call from referee's own event loop would wait for itself. Use `await ticket` or "
                "`await referee.ascore(...)` there."
            )
        if self._closed:
            return "The Referee was closed."
        if self._thread is not None and not self._thread.is_alive():
            return "The thread that talks to Ray has died; see the log."
        return ""

    def record(self, line: Any) -> None:
        """Add a line to the ledger, from any thread."""
        loop, remote = self._loop, self._remote
        if loop is not None and remote is not None and not self._closed:
            loop.call_soon_threadsafe(remote.books.write, line)

    def metrics(self) -> dict[str, float]:
        """Counts of this client, and how hard the whole cluster presses the endpoints."""
        remote = self._remote
        if remote is None:
            return {}
        found = remote.metrics()
        if len(self._links) == 1:  # a single engine carries on what those before it had spent
            found["budget_spent_usd"] = self._links[0].spent_usd
        return found

    def close(self, seconds: float = EXIT) -> None:
        """End what is in flight, say goodbye, write the ledger out. Shared engines go on for others."""
        if self._pid != os.getpid():
            return
        with self._lock:
            thread, loop = self._thread, self._loop
            closed, self._closed = self._closed, True
        if closed or thread is None or loop is None:
            return
        if thread is threading.current_thread():
            loop.call_soon(loop.stop)
            return
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(loop.stop)
            thread.join(seconds)
            if seconds and thread.is_alive():
                log.warning("the line to Ray did not close within %g s; it ends with the process", seconds)

    def _start(self) -> asyncio.AbstractEventLoop:
        if self._pid != os.getpid():
            self._reset()
        with self._lock:
            if self._closed:
                raise WrongContext("this Referee is closed; make a new one.")
            if self._thread is not None and not self._thread.is_alive():
                log.error("the thread that talks to Ray died; starting another")
                self._loop = None
            if self._loop is None:
                self._launch()
            assert self._loop is not None
            return self._loop

    def _launch(self) -> None:
        ready = threading.Event()
        failure: list[BaseException] = []
        loop = new_loop()
        thread = threading.Thread(target=self._live, args=(loop, ready, failure), name="referee-ray", daemon=True)
        thread.start()
        if not ready.wait(START):
            raise RefereeError(f"the client thread did not start within {START:g} s; the machine may be overloaded.")
        if failure:
            thread.join(1.0)
            raise failure[0]
        self._thread, self._loop = thread, loop

    def _live(self, loop: asyncio.AbstractEventLoop, ready: threading.Event, failure: list[BaseException]) -> None:
        asyncio.set_event_loop(loop)
        try:
            tasks = loop.run_until_complete(self._begin())
        except BaseException as error:
            failure.append(error)
            loop.close()
            return
        finally:
            ready.set()
        try:
            loop.run_forever()
        finally:
            loop.run_until_complete(self._end(tasks))
            loop.close()

    async def _begin(self) -> list[asyncio.Task[None]]:
        config, client = self._config, f"{os.getpid()}-{uuid.uuid4().hex}"
        remote = self._remote = Remote(config, config.shards, self._post, gather=GATHER)
        lines = NOTHING if not remote.books.kept else CONTENT if config.ledger.content else DIGESTS
        names = engine_names(config, self._own)
        self._links = [
            Link(client, rank, remote, functools.partial(self._attach, rank, name), self._seal, lines)
            for rank, name in enumerate(names)
        ]
        return [asyncio.get_running_loop().create_task(link.run()) for link in self._links]

    def _seal(self, with_keys: bool) -> Any:
        return seal(self._config, with_keys)

    def _attach(self, rank: int, name: str) -> RayEngine:
        """Find or make an engine. Blocks: called in a thread of its own."""
        join(self._config.ray_address)
        _say_goodbye_before_ray()
        config = self._config
        tag = key_tag([find_key(endpoint) for endpoint in config.endpoint])
        handle = find_or_make(
            EngineActor,
            name,
            lambda: (name, tag, rank, config.shards, self._idle, self._build),
            max_concurrency=MANY,
            max_pending_calls=PENDING_CALLS,
        )
        return RayEngine(handle)

    def _take(self, batch: Batch) -> None:
        assert self._remote is not None
        if self._closed:
            batch.fail(TicketCancelled("The Referee was closed."))
            return
        self._remote.submit(batch)
        if len(batch.samples) >= COMPANY:
            self._remote._flush_all()
        for link in self._links:
            link.wanted.set()

    def _post(self, shard: int, messages: Sequence[Work | Cancel]) -> None:
        self._links[shard].post(messages)

    async def _end(self, tasks: list[asyncio.Task[None]]) -> None:
        assert self._remote is not None
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._remote.end_all(Unscored(reason=Reason.CANCELLED, detail="the Referee was closed"))
        self._remote.fail(TicketCancelled("The Referee was closed."))
        await asyncio.gather(*(link.leave() for link in self._links))
        if self._own:
            names = engine_names(self._config, self._own)
            for name in [*names, broker_name(names[0])]:
                with contextlib.suppress(Exception):
                    end(name)
        self._remote.close()


def shutdown(config: Config) -> int:
    """End the engines of this configuration for all who use them, cache written out. Returns how many there were.

    Clients that still have work out find or make new engines and send it again.
    """
    ray = join(config.ray_address)
    ended = 0
    names = engine_names(config)
    for name in names:
        actor = find(name)
        if actor is None:
            continue
        with contextlib.suppress(Exception):
            ray.get(actor.close.remote(), timeout=GRACE)
        ended += end(name)
    end(broker_name(names[0]))
    return ended


def look(config: Config, seconds: float = GRACE) -> list[tuple[str, dict[str, float] | None]]:
    """The engines of this configuration and how they are doing; None for one that is not there or does not answer."""
    ray = join(config.ray_address)
    found: list[tuple[str, dict[str, float] | None]] = []
    for name in engine_names(config):
        actor, status = find(name), None
        if actor is not None:
            with contextlib.suppress(Exception):
                status = ray.get(actor.status.remote(), timeout=seconds)
        found.append((name, status))
    return found


_alive: weakref.WeakSet[RayRuntime] = weakref.WeakSet()
_registered = False


def _say_goodbye_before_ray() -> None:
    """What is registered last runs first at exit: registered after Ray is imported, we still can talk then."""
    global _registered
    if not _registered:
        _registered = True
        atexit.register(_close_all)


def _close_all() -> None:
    for runtime in list(_alive):
        runtime.close(EXIT)


def _after_fork() -> None:
    for runtime in list(_alive):
        runtime._reset()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
