"""What a verdict costs to find: in memory, in the file, in Redis; what a lease costs; what a hung Redis costs.

Needs redis-server on this machine. `python -m bench.redis_cache [--quick]`.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from collections.abc import Awaitable, Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

from tests.redis.server import BINARY, RedisServer

from referee import clock
from referee.cache import Entry, LayeredCache, MemoryCache, RedisLink, SqliteCache
from referee.cache.redis import RedisCache
from referee.config import RedisConfig, load
from referee.engine import Endpoint
from referee.engine.redis_lease import RedisLease
from referee.limits.quota_broker import EndpointReport, PaceReport, Report
from referee.records import Reply, Verdict
from referee.runtime.background import new_loop

BLOCK = 64
"""Requests in a lease's block, for the cost of each."""


def entry() -> Entry:
    """About 600 bytes, as a judge's verdict with its reason is."""
    return Entry(
        verdict=Verdict(score=7, value=0.7, reason="It is mostly right. " * 10),
        reply=Reply(text='{"reason": "…", "score": 7}' * 8, finish="stop", model="m", tokens_in=500, tokens_out=60),
        cost=0.001,
        created=1e9,
        endpoint="host",
    )


async def measured(work: Callable[[], Awaitable[Any]], count: int) -> dict[str, float]:
    """Microseconds for each of `count`: by the clock, and of this process's processor time."""
    wall, cpu = clock.monotonic(), clock.cpu()
    await work()
    return {"wall_us": (clock.monotonic() - wall) / count * 1e6, "cpu_us": (clock.cpu() - cpu) / count * 1e6}


async def search(cache: RedisCache, keys: list[str]) -> int:
    """Look for all of these in one turn of the loop; returns how many were found."""
    loop = asyncio.get_running_loop()
    futures: list[asyncio.Future[Any]] = [loop.create_future() for _ in keys]
    claims = [cache.claim([key], 60.0, future.set_result) for key, future in zip(keys, futures, strict=True)]
    found = await asyncio.gather(*(future for future, claim in zip(futures, claims, strict=True) if claim))
    for claim in claims:
        if claim is not None:
            claim.release()
    return sum(item is not None for item in found)


async def hits(server: RedisServer, folder: Path, count: int) -> dict[str, Any]:
    """The same keys found in each place."""
    keys = [sha256(b"%d" % n).hexdigest()[:32] for n in range(count)]
    value = entry()
    memory = MemoryCache(count)
    file = SqliteCache(folder / "cache.sqlite")
    shared = RedisCache(MemoryCache(0), RedisLink(RedisConfig(url=server.url, timeout=30.0)))
    for key in keys:
        memory.put(key, value)
        file.put(key, value)
        shared.put(key, value)
    while shared._writes:
        await clock.sleep(0.01)
    file.close()
    file = SqliteCache(folder / "cache.sqlite")

    async def one_by_one(cache: Any) -> None:
        assert all(cache.get(key) is not None for key in keys)

    async def in_turns(size: int) -> None:
        for start in range(0, count, size):
            assert await search(shared, keys[start : start + size]) == len(keys[start : start + size])

    async def file_in_turns() -> None:
        for start in range(0, count, 32):
            layered = LayeredCache(MemoryCache(count), file)
            layered.expect(keys[start : start + 32])
            assert all(layered.get(key) is not None for key in keys[start : start + 32])

    async def misses() -> None:
        for start in range(0, count, 32):
            some = [f"miss{key}" for key in keys[start : start + 32]]
            assert await search(shared, some) == 0
            for key in some:
                shared.put(key, value)
        while shared._writes:
            await clock.sleep(0.001)

    found = {
        "memory": await measured(lambda: one_by_one(memory), count),
        "file, one by one": await measured(lambda: one_by_one(file), count),
        "file, 32 together": await measured(file_in_turns, count),
        "Redis, 128 together": await measured(lambda: in_turns(128), count),
        "Redis, 32 together": await measured(lambda: in_turns(32), count),
        "Redis, one by one": await measured(lambda: in_turns(1), count),
        "a miss: looked for, locked, stored, unlocked": await measured(misses, count),
    }
    await shared.finish()
    await shared.link.close()
    file.close()
    return found


async def leases(server: RedisServer, count: int) -> dict[str, float]:
    """Exchanges with the script, one after another."""
    config = load({"limits": {"rpm": 6_000_000, "tpm": 600_000_000}, "redis": {"url": server.url, "timeout": 30.0}})
    link = RedisLink(config.redis)
    lease = RedisLease(config, [Endpoint(config.endpoint[0], config.limits, None)], link, False)
    told = EndpointReport(
        waiting=BLOCK,
        requests=PaceReport(least=1.0, most=float(BLOCK)),
        tokens=PaceReport(least=600.0, most=600.0 * BLOCK),
    )

    async def many() -> None:
        for _ in range(count):
            await lease.exchange(Report(endpoints=(told,)))

    await lease.exchange(Report(endpoints=(told,)))
    found = await measured(many, count)
    await lease.leave()
    await link.close()
    return found


async def outage(server: RedisServer, size: int = 64) -> dict[str, float]:
    """Milliseconds a turn of searches takes: Redis well, then hung, then known to be hung."""
    shared = RedisCache(MemoryCache(0), RedisLink(RedisConfig(url=server.url)))
    keys = [f"out{n:029x}" for n in range(size)]
    found = {}
    await search(shared, keys)
    for name in ("well", "hung", "known to be hung"):
        if name == "hung":
            server.freeze()
        began = clock.monotonic()
        await search(shared, keys)
        found[name] = (clock.monotonic() - began) * 1e3
    server.thaw()
    await shared.finish()
    await shared.link.close()
    return found


def run(quick: bool) -> dict[str, Any]:
    """All of it, on a server of our own."""
    if BINARY is None:
        return {}
    count = 2_000 if quick else 20_000
    with tempfile.TemporaryDirectory() as folder:
        server = RedisServer(Path(folder))
        try:
            with asyncio.Runner(loop_factory=new_loop) as runner:
                return {
                    "count": count,
                    "hits": runner.run(hits(server, Path(folder), count)),
                    "lease": runner.run(leases(server, count // 10)),
                    "outage_ms": runner.run(outage(server)),
                }
        finally:
            server.kill()


def report(results: dict[str, Any]) -> list[str]:
    """Lines of markdown."""
    if not results:
        return ["Not measured: redis-server is not installed."]
    lease, away = results["lease"], results["outage_ms"]
    return [
        f"A verdict found, {results['count']:,} keys, microseconds each:",
        "",
        "| where | by the clock | processor, this process |",
        "|---|---|---|",
        *(f"| {name} | {found['wall_us']:.1f} | {found['cpu_us']:.1f} |" for name, found in results["hits"].items()),
        "",
        f"A lease of requests and tokens: {lease['wall_us']:.0f} us by the clock, {lease['cpu_us']:.0f} us of "
        f"processor; {lease['cpu_us'] / BLOCK:.1f} us for each request of a block of {BLOCK}.",
        "",
        f"64 searches together: {away['well']:.1f} ms with Redis well, {away['hung']:.0f} ms when it has just hung, "
        f"{away['known to be hung']:.2f} ms while the breaker is open.",
    ]


if __name__ == "__main__":
    print("\n".join(report(run("--quick" in sys.argv))))
