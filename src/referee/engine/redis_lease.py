"""Limits that several jobs share through Redis: requests and tokens per minute, and a fixed number of calls in flight.

A job's `QuotaClient` reports and is granted blocks, as with any broker; here a script in Redis is the broker. Without
Redis each job uses its even part, by the number of jobs seen last, and starts with an empty pool, so that an outage
does not double any rate. The budget and the adaptive limit stay each job's own.
"""

from __future__ import annotations

import contextlib
import functools
import secrets
from collections.abc import Awaitable, Callable, Sequence
from hashlib import blake2b
from typing import TYPE_CHECKING

from msgspec.structs import replace

from referee import clock
from referee.cache.redis_link import RedisLink, Unavailable, run_script
from referee.config import Config
from referee.engine.admission import Admission
from referee.engine.endpoint import Endpoint
from referee.engine.engine import Engine
from referee.engine.quota_client import BROKER_TIMEOUT_S, RAISE_DELAY_S, Exchange, QuotaClient
from referee.engine.redis_quota import KEEP_S, LEASE, SILENT_S
from referee.limits import FixedLimit
from referee.limits.quota_broker import (
    Broker,
    EndpointGrant,
    EndpointReport,
    Grant,
    PaceReport,
    Pool,
    Report,
    SharedEndpoint,
    fair_part,
)

if TYPE_CHECKING:
    from redis.asyncio import Redis


class Meter(Pool):
    """The shape of a pool that lives in Redis: what it holds at most, and how fast it refills."""

    def shape(self, told: PaceReport, now: float) -> tuple[float, float]:
        """Burst and refill per second, by the configured limit or a lower one that the server's headers name."""
        if told.hints is not None:
            self.observe(told.hints.limit, None, None, now)
        return (self._burst, self._rate) if self.per_minute is not None else (0.0, 0.0)


class EmptyPool(Pool):
    """A pool that starts empty: what was sent before is not known."""

    def __init__(self, per_minute: float | None, now: float) -> None:
        super().__init__(per_minute)
        self.take(self._level, now)


class RedisLease:
    """The Exchange of one job. Never raises: without Redis it grants the job's even part."""

    def __init__(self, config: Config, endpoints: Sequence[Endpoint], link: RedisLink, concurrency: bool) -> None:
        """`concurrency`: share a fixed number of calls in flight too."""
        limits = config.limits
        self.link = link
        self.jobs = 1
        """Jobs that share, this one included, as of the last grant."""
        self.rank = 0
        self.alone = False
        """Redis is unavailable, and the job uses its even part."""
        self._limits = limits
        self._limit = limits.concurrency if concurrency and isinstance(limits.concurrency, int) else 0
        self._name = secrets.token_hex(8)
        self._expected = config.redis.jobs
        self._met = False
        self._since = 0.0
        self._broker: Broker | None = None
        self._meters = [(Meter(limits.rpm), Meter(limits.tpm)) for _ in endpoints]
        self._keys = [
            f"{config.redis.prefix}:{kind}:{scope(endpoint)}" for endpoint in endpoints for kind in ("l1", "s1")
        ]

    async def exchange(self, report: Report) -> Grant:
        """A grant from Redis, or the even part."""
        try:
            lines = await self.link.run(functools.partial(run_script, LEASE, self._keys, self._arguments(report)))
        except Unavailable:
            return self._even_part(report)
        self._met, self.alone, self._broker = True, False, None
        return Grant(endpoints=tuple(self._read(line) for line in lines))

    async def leave(self) -> None:
        """Release what is held, for the other jobs."""
        with contextlib.suppress(Unavailable):
            await self.link.run(self._give_up_seats)

    async def _give_up_seats(self, client: Redis) -> None:
        for seats in self._keys[1::2]:
            await client.hdel(seats, self._name)

    def _arguments(self, report: Report) -> list[str]:
        now = clock.now()
        common = (self._name, max(self.jobs, self._expected) if self._met else 1, int(self._met), int(self.alone))
        found: list[object] = [*common, SILENT_S, int(1000 * KEEP_S)]
        for told, (requests, tokens) in zip(report.endpoints, self._meters, strict=True):
            want = told.in_flight + told.waiting
            found += [self._limit, told.share, told.in_flight, want, told.pause]
            for pace, meter in ((told.requests, requests), (told.tokens, tokens)):
                found += [*meter.shape(pace, now), pace.least, pace.most, pace.returned, _block(pace)]
        return [f"{item:.6f}" if isinstance(item, float) else str(item) for item in found]

    def _read(self, line: bytes) -> EndpointGrant:
        share, requests, tokens, pause, jobs, rank = line.split()
        self.jobs, self.rank = int(jobs), int(rank)
        return EndpointGrant(
            share=int(share) if self._limit else None,
            limit=self._limit,
            requests=float(requests),
            tokens=float(tokens),
            pause=float(pause),
        )

    def _even_part(self, report: Report) -> Grant:
        now = clock.now()
        jobs = max(self.jobs, self._expected)
        if self._broker is None:
            self._broker = self._own_broker(report.endpoints, jobs, now)
            self._since, self.alone = now, True
        # A job that had less than its part waits before it takes more: the others must have come down first.
        part = max(1, fair_part(self._limit, jobs, self.rank))
        for endpoint, told in zip(self._broker.endpoints, report.endpoints, strict=True):
            settling = now - self._since < RAISE_DELAY_S
            endpoint.limiter = FixedLimit(min(max(1, told.share), part) if settling else part)
        grant = self._broker.exchange(self._name, report, now)
        if self._limit:
            return grant
        return replace(grant, endpoints=tuple(replace(given, share=None) for given in grant.endpoints))

    def _own_broker(self, told: Sequence[EndpointReport], jobs: int, now: float) -> Broker:
        endpoints = [SharedEndpoint(FixedLimit(1), None, None) for _ in told]
        for endpoint in endpoints:
            endpoint.requests = EmptyPool(_part(self._limits.rpm, jobs), now)
            endpoint.tokens = EmptyPool(_part(self._limits.tpm, jobs), now)
        return Broker(endpoints, None)


class SharedLimits:
    """A job's limits, refilled from Redis. Created on the loop; call `close` before the link is closed."""

    def __init__(self, gate: Admission, config: Config, link: RedisLink) -> None:
        # Inline, calls are sequential: only the rates are shared.
        concurrency = isinstance(config.limits.concurrency, int) and config.runtime != "inline"
        self.lease = RedisLease(config, gate.endpoints, link, concurrency)
        patience = max(BROKER_TIMEOUT_S, 4 * config.redis.timeout)
        self._member = QuotaClient(
            gate, self.lease.exchange, concurrency=concurrency, money=False, heartbeat=True, patience=patience
        )

    async def close(self) -> None:
        """Stop exchanging, and release what is held."""
        await self._member.close()
        await self.lease.leave()


def paced_by_redis(lease: RedisLease, exchange: Exchange) -> Exchange:
    """An exchange with a broker of the job's own whose requests and tokens come from Redis."""

    async def both(report: Report) -> Grant:
        bare = tuple(replace(told, requests=PaceReport(), tokens=PaceReport()) for told in report.endpoints)
        grant = await exchange(replace(report, endpoints=bare))
        leased = await lease.exchange(report)
        endpoints = tuple(
            replace(given, requests=more.requests, tokens=more.tokens, pause=max(given.pause, more.pause))
            for given, more in zip(grant.endpoints, leased.endpoints, strict=True)
        )
        return replace(grant, endpoints=endpoints)

    return both


Paced = Callable[[Exchange], Exchange]
"""Adds rates shared through Redis to an exchange with a job's own broker."""
Close = Callable[[], Awaitable[None]]


def share_limits(engine: Engine, config: Config, link: RedisLink) -> tuple[Paced | None, Close | None]:
    """Share what this configuration limits. Returns what workers that share a broker apply to their exchange with it,
    and what to call when the engine has closed."""
    limits = config.limits
    workers = config.runtime not in ("thread", "inline")
    paced = limits.rpm is not None or limits.tpm is not None
    if not config.redis.limits:
        return None, None
    if workers and paced:
        lease = RedisLease(config, engine.endpoints, link, concurrency=False)
        return functools.partial(paced_by_redis, lease), lease.leave
    if not workers and (paced or (limits.concurrency != "auto" and config.runtime != "inline")):
        return None, SharedLimits(engine.admission, config, link).close
    return None, None


def scope(endpoint: Endpoint) -> str:
    """A name for what a provider counts together: host, model and API key, of which only a digest is kept."""
    bare = endpoint.dialect.headers(None)
    key = "".join(value for name, value in endpoint.headers.items() if bare.get(name) != value)  # each API has its own
    parts = (endpoint.config.host, endpoint.config.model, key)
    text = b"\0".join(part.encode("utf-8", "surrogatepass") for part in parts)
    return blake2b(text, digest_size=12, person=b"referee-scope").hexdigest()


def _block(pace: PaceReport) -> float:
    """Seconds the server's headers say to wait; 0: none."""
    hints = pace.hints
    if hints is None or hints.remaining is None or hints.remaining > 0 or hints.reset is None:
        return 0.0
    return min(60.0, max(0.0, hints.reset))


def _part(limit: int | None, jobs: int) -> float | None:
    return None if limit is None else limit / jobs
