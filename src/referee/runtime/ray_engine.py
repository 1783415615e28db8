"""The engine as a Ray actor: a WorkerEngine with many clients. Work comes in calls, results are fetched by long polls.

Every answer names its engine. A client that gets an answer of another engine than before sends its work again; a result
is kept until its client has confirmed it. No method raises: Ray would log the exception with its arguments.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import uuid
from typing import Any, NamedTuple

import msgspec

from referee import clock
from referee.errors import RefereeError
from referee.limits import make_limit
from referee.limits.quota_broker import MEMBER_TIMEOUT_S, Broker, Grant, Report, SharedEndpoint
from referee.runtime.collector import collect_rarely
from referee.runtime.messages import decode_inbound, encode
from referee.runtime.ray_cluster import aside, came_back, end, find_or_make
from referee.runtime.ray_settings import PROTOCOL, Sealed, broker_name, unseal
from referee.runtime.worker_engine import WorkerEngine
from referee.scoring.build import build_worker
from referee.scoring.lines import Wanted
from referee.scoring.local import BuildWorker
from referee.scoring.messages import Cancel, Update, Work
from referee.version import VERSION
from referee.wire import scrub

log = logging.getLogger("referee.runtime")

CLIENT_LEASE = 30.0
"""Seconds without a call from a client after which it counts as gone and its work is stopped."""
CHECK = 1.0
"""Seconds between two checks for clients that are gone; shorter where the idle lifetime is."""
MANY = 10_000
"""Calls an engine may have open at once: each client keeps one poll open."""

NOTHING, DIGESTS, CONTENT = 0, 1, 2
"""What a client wants of ledger lines."""


class Opened(NamedTuple):
    """The answer to `open`."""

    engine: str
    """Which engine this is, and which registration of the client: a forgotten one gets another. Empty: not open."""
    version: str
    wants_keys: bool = False
    trouble: str = ""
    kind: str = ""
    """Name of the exception's class in referee.errors."""


class News(NamedTuple):
    """The answer to `poll`: from which engine, up to which number, and what has landed since the confirmed one."""

    engine: str
    number: int
    landed: list[bytes]


class _Client:
    """What the engine knows of one client."""

    def __init__(self, engine: str, lines: int) -> None:
        self.engine = engine
        self.wanted = None if lines == NOTHING else Wanted(lines == CONTENT)
        self.taken = 0
        self.number = 0
        self.unconfirmed: list[tuple[int, bytes]] = []
        self.changed = asyncio.Event()
        self.seen = clock.monotonic()
        self.open_calls = 0


class EngineActor:
    """One engine of a cluster, for all clients with the same settings."""

    def __init__(
        self, name: str, tag: str, rank: int, members: int, idle: float, build: BuildWorker | None = None
    ) -> None:
        """`tag`: of the keys it is named after. `idle`: seconds without a client after which it ends itself."""
        self._name = name
        self._tag = tag
        self._rank, self._members = rank, members
        self._idle = idle
        self._build = build or build_worker
        self._id = uuid.uuid4().hex
        self._clients: dict[str, _Client] = {}
        self._met = 0
        self._host: WorkerEngine | None = None
        self._opening = asyncio.Lock()
        self._broker: Any = None
        self._before = 0.0
        self._last_call = clock.monotonic()
        self._watch: asyncio.Task[None] | None = None

    async def open(self, client: str, lines: int, heard: tuple[str, float], settings: Sealed) -> Opened:
        """Register a client. `heard`: the engine it was registered at last, and what was spent there."""
        self._last_call = clock.monotonic()
        try:
            async with self._opening:
                if self._watch is None:
                    self._watch = asyncio.get_running_loop().create_task(self._watch_clients())
                if self._host is None and not self._start(settings):
                    return Opened("", f"{VERSION}/{PROTOCOL}", wants_keys=True)
                self._carry(*heard)
        except RefereeError as error:
            return Opened("", f"{VERSION}/{PROTOCOL}", False, scrub(str(error)), type(error).__name__)
        except Exception as error:  # its text may hold anything
            log.error("an engine could not start (%s)", type(error).__name__)
            return Opened("", f"{VERSION}/{PROTOCOL}", False, f"internal error: {type(error).__name__}", "RefereeError")
        known = self._clients.get(client)
        if known is None:
            self._met += 1
            known = self._clients[client] = _Client(f"{self._id}-{self._met}", lines)
        known.seen = clock.monotonic()
        return Opened(known.engine, f"{VERSION}/{PROTOCOL}")

    async def send(self, client: str, number: int, messages: list[bytes]) -> str:
        """Take work, or stop it, once for each number. Returns which engine has it; empty for an unknown client."""
        known, host = self._known(client), self._host
        if known is None or host is None:
            return ""
        if number <= known.taken:
            return known.engine  # the answer to it was lost
        known.taken = number
        for data in messages:
            message = decode_inbound(data)
            if isinstance(message, Work):
                host.take(message, client)
            elif isinstance(message, Cancel):
                host.cancel(message, client)
        return known.engine

    async def poll(self, client: str, confirmed: int, wait: float) -> News:
        """What has landed for a client and is not yet confirmed, waiting up to `wait` seconds for something."""
        known = self._known(client)
        if known is None:
            return News("", 0, [])
        known.unconfirmed = [update for update in known.unconfirmed if update[0] > confirmed]
        if not known.unconfirmed and wait > 0:
            known.changed.clear()
            known.open_calls += 1
            try:
                with contextlib.suppress(TimeoutError):
                    await clock.within(known.changed.wait(), wait)
            finally:
                known.open_calls -= 1
            self._last_call = known.seen = clock.monotonic()
            if self._clients.get(client) is not known:
                return News("", 0, [])
        return News(known.engine, known.number, [data for _, data in known.unconfirmed])

    async def leave(self, client: str) -> None:
        """A client is done: its work is stopped."""
        self._last_call = clock.monotonic()
        self._drop(client)

    async def status(self) -> dict[str, float]:
        """Gauges, for tools that look at the cluster."""
        found: dict[str, float] = {
            "clients": len(self._clients),
            "rank": self._rank,
            "members": self._members,
            "pid": os.getpid(),
        }
        if self._host is not None:
            found["pending"] = self._host.pending
            state = self._host.state()
            found.update(
                in_flight=float(sum(gauge.in_flight for gauge in state.gauges)),
                limit=float(sum(gauge.limit for gauge in state.gauges)),
                queued=float(state.queued),
                requests=float(sum(gauge.sent for gauge in state.gauges)),
                throttled=float(sum(gauge.throttled for gauge in state.gauges)),
                budget_spent_usd=state.spent_usd,
            )
        return found

    async def close(self) -> None:
        """Stop everything and write the cache out, before the actor is ended."""
        for client in list(self._clients):
            self._drop(client)
        host, self._host = self._host, None
        if host is not None:
            await host.close()

    def _known(self, client: str) -> _Client | None:
        known = self._clients.get(client)
        self._last_call = clock.monotonic()
        if known is not None:
            known.seen = self._last_call
        return known

    def _start(self, settings: Sealed) -> bool:
        config = unseal(settings, self._tag)
        if config is None:
            return False
        shared: dict[str, Any] = {}
        if self._members > 1:
            shared = {
                "exchange": self._exchange,
                "members": self._members,
                "rank": self._rank,
                "heartbeat": True,
            }
        self._config = config
        self._host = WorkerEngine(config, self._landed, wanted=self._wanted, build=self._build, **shared)
        collect_rarely()
        return True

    def _carry(self, engine: str, spent_usd: float) -> None:
        """The budget goes on where the engine before this one was lost; shared limits remember by themselves."""
        if not engine or engine.startswith(self._id) or self._members > 1:
            return
        if self._host is not None and spent_usd > self._before:
            self._host.worker.engine.admission.budget.settle(0.0, spent_usd - self._before)
            self._before = spent_usd

    def _wanted(self, client: str) -> Wanted | None:
        known = self._clients.get(client)
        return None if known is None else known.wanted

    def _landed(self, client: str, update: Update) -> None:
        known = self._clients.get(client)
        if known is None:
            return
        if known.unconfirmed and not update.parts and not update.texts:
            return  # gauges alone: the client will poll for the results that wait, anyway
        known.number += 1
        known.unconfirmed.append((known.number, encode(update)))
        known.changed.set()

    def _drop(self, client: str) -> None:
        known = self._clients.pop(client, None)
        if known is not None:
            known.changed.set()
        if self._host is not None:
            self._host.forget(client)

    async def _watch_clients(self) -> None:
        """Forget clients that are gone; end after `idle` seconds without any."""
        while True:
            await clock.sleep(min(CHECK, self._idle / 4))
            now = clock.monotonic()
            for name, client in list(self._clients.items()):
                if not client.open_calls and now - client.seen > CLIENT_LEASE:
                    log.warning("no call from a client for %g s; its work is stopped", CLIENT_LEASE)
                    self._drop(name)
            waiting = any(client.open_calls for client in self._clients.values())
            if not waiting and not self._pending and now - self._last_call > self._idle:
                await self.close()
                end(self._name)
                return

    @property
    def _pending(self) -> int:
        return self._host.pending if self._host is not None else 0

    async def _exchange(self, report: Report) -> Grant:
        if self._broker is None:
            name = broker_name(self._name)
            limits = msgspec.msgpack.encode([self._config.limits, len(self._config.endpoint)])
            self._broker = await aside(
                lambda: find_or_make(BrokerActor, name, lambda: (name, limits, self._members, self._idle))
            )
        try:
            data = await self._broker.exchange.remote(self._rank, self._id, msgspec.msgpack.encode(report))
        except Exception:
            self._broker = None
            raise
        return msgspec.msgpack.decode(data, type=Grant)


class BrokerActor:
    """Divides the limits among the engines of one configuration. Ends itself when they are gone."""

    def __init__(self, name: str, limits: bytes, members: int, idle: float) -> None:
        from referee.config import LimitsConfig

        told, endpoints = msgspec.msgpack.decode(limits, type=tuple[LimitsConfig, int])
        self._name = name
        self._idle = idle
        self._engines: dict[int, str] = {}
        self._last_call = clock.monotonic()
        self._watch: asyncio.Task[None] | None = None
        shared = [SharedEndpoint(make_limit(told), told.rpm, told.tpm) for _ in range(endpoints)]
        # After a restart, a broker first waits for every engine to report what it holds.
        self._broker = Broker(shared, told.budget_usd, expected=members if came_back() else 0, forget=MEMBER_TIMEOUT_S)

    async def exchange(self, rank: int, engine: str, report: bytes) -> bytes:
        """A report for a grant. An engine that has come back in another's place frees what that one held."""
        self._last_call = clock.monotonic()
        if self._watch is None:
            self._watch = asyncio.get_running_loop().create_task(self._end_when_idle())
        before = self._engines.get(rank)
        if before is not None and before != engine:
            self._broker.leave(before)
        self._engines[rank] = engine
        told = msgspec.msgpack.decode(report, type=Report)
        return msgspec.msgpack.encode(self._broker.exchange(engine, told, clock.monotonic()))

    async def _end_when_idle(self) -> None:
        while clock.monotonic() - self._last_call < self._idle:
            await clock.sleep(self._idle / 4)
        end(self._name)
