"""Judging on a Ray cluster: named engine actors that all processes with the same settings share.

One adaptive limit, one pace, one budget, one cache and one flight per key for the whole cluster, however many trainers,
reward workers and nodes there are. Importing this module does not import Ray; the first batch does.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import functools
import os
import uuid
from collections.abc import Sequence
from typing import Any

from referee.config import Config
from referee.engine import find_key
from referee.errors import TicketCancelled
from referee.records import Reason, Unscored
from referee.runtime.background import Background, close_all
from referee.runtime.client import RemoteTracker
from referee.runtime.ray_actor_client import ActorClient, Engine
from referee.runtime.ray_cluster import calls_of, end, find, find_or_make, join
from referee.runtime.ray_engine import CONTENT, DIGESTS, MANY, NOTHING, EngineActor
from referee.runtime.ray_settings import broker_name, engine_names, key_tag, seal
from referee.scoring.batch import Batch
from referee.scoring.build import build_worker
from referee.scoring.local import BuildWorker
from referee.scoring.messages import Cancel, Work

IDLE = 600.0
"""Seconds without a client after which an engine ends itself."""
GATHER = 0.02
"""After a call was sent, seconds that further samples wait to share the next one."""
FULL_CALL = 256
"""Samples in one batch that are sent without waiting for more."""
PENDING_CALLS = 64
"""Calls of one client that an engine may be behind with; a client of ours has three at most."""
GRACE = 5.0
"""Seconds an engine has to write its cache out when it is shut down."""


class RayRuntime(Background):
    """A client of the cluster's engines: a daemon thread whose loop only moves messages."""

    _who = "the thread that talks to Ray"
    _name = "referee-ray"

    def __init__(self, config: Config, build: BuildWorker = build_worker, idle: float | None = None) -> None:
        """An engine with a `build` of its own belongs to this client alone and ends with it."""
        self._config = config
        self._build = None if build is build_worker else build
        self._idle = IDLE if idle is None else idle
        super().__init__()

    def _reset(self) -> None:
        super()._reset()
        self._links: list[ActorClient] = []
        self._runs: list[asyncio.Task[None]] = []
        self._own = f"-{uuid.uuid4().hex[:8]}" if self._build is not None else ""

    def metrics(self) -> dict[str, float]:
        """Counts of this client, and how hard the whole cluster presses the endpoints."""
        found = super().metrics()
        if found and len(self._links) == 1:  # a single engine carries on what those before it had spent
            found["budget_spent_usd"] = self._links[0].spent_usd
        return found

    async def _begin(self) -> None:
        config, client = self._config, f"{os.getpid()}-{uuid.uuid4().hex}"
        tracker = self._tracker = self._remote = RemoteTracker(config, config.shards, self._post, gather=GATHER)
        lines = NOTHING if not tracker.recorder.kept else CONTENT if config.ledger.content else DIGESTS
        names = engine_names(config, self._own)
        self._links = [
            ActorClient(client, rank, tracker, functools.partial(self._attach, rank, name), self._seal, lines)
            for rank, name in enumerate(names)
        ]
        self._runs = [asyncio.get_running_loop().create_task(link.run()) for link in self._links]

    def _seal(self, with_keys: bool) -> Any:
        return seal(self._config, with_keys)

    def _attach(self, rank: int, name: str) -> Engine:
        """Find or make an engine. Blocks: called in a thread of its own."""
        join(self._config.ray_address)
        _leave_before_ray_exits()
        config = self._config
        tag = key_tag([find_key(endpoint) for endpoint in config.endpoint])
        engine: Engine = calls_of(
            find_or_make(
                EngineActor,
                name,
                lambda: (name, tag, rank, config.shards, self._idle, self._build),
                max_concurrency=MANY,
                max_pending_calls=PENDING_CALLS,
            )
        )
        return engine

    def _take(self, batch: Batch, submitted: float) -> None:
        if self._closed:
            batch.fail(TicketCancelled("The Referee was closed."))
            return
        super()._take(batch, submitted)
        if len(batch.samples) >= FULL_CALL:
            self._remote.flush()
        for link in self._links:
            link.wanted.set()

    def _post(self, shard: int, messages: Sequence[Work | Cancel]) -> None:
        self._links[shard].post(messages)

    async def _end(self, seconds: float) -> None:
        for task in self._runs:
            task.cancel()
        await asyncio.gather(*self._runs, return_exceptions=True)
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
    """End the engines of this configuration for all their clients, cache written out. Returns how many there were.

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
    """The engines of this configuration and their status; None for one that does not exist or does not answer."""
    ray = join(config.ray_address)
    found: list[tuple[str, dict[str, float] | None]] = []
    for name in engine_names(config):
        actor, status = find(name), None
        if actor is not None:
            with contextlib.suppress(Exception):
                status = ray.get(actor.status.remote(), timeout=seconds)
        found.append((name, status))
    return found


_registered = False


def _leave_before_ray_exits() -> None:
    """At exit the last registered function runs first: registered after Ray's import, ours can still make calls."""
    global _registered
    if not _registered:
        _registered = True
        atexit.register(close_all)
