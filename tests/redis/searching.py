"""Searches in a shared cache as the engine makes them, and a wait for conditions on a loop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from tests.redis.server import PATIENCE, RedisServer

from referee import clock
from referee.cache import Claim, Entry, MemoryCache
from referee.cache.redis import RedisCache, RedisLink
from referee.config import RedisConfig

Result = asyncio.Future[tuple[str, Entry] | None]


def start(cache: RedisCache, *keys: str, patience: float = PATIENCE) -> tuple[Claim, Result]:
    """Begin a search."""
    future: Result = asyncio.get_running_loop().create_future()
    claim = cache.claim(keys, patience, future.set_result)
    assert claim is not None
    return claim, future


async def search(cache: RedisCache, *keys: str, patience: float = PATIENCE) -> Entry | None:
    """Search to the end, and judge nothing."""
    claim, future = start(cache, *keys, patience=patience)
    found = await future
    claim.release()
    return found[1] if found else None


async def until(holds: Callable[[], Any], what: str) -> None:
    """Let the loop run until this is true."""
    end = clock.now() + PATIENCE
    while not holds():
        assert clock.now() < end, f"waited {PATIENCE:g} s in vain: {what}"
        await asyncio.sleep(0.005)


@asynccontextmanager
async def machines(server: RedisServer, count: int = 1, **settings: Any) -> AsyncIterator[list[RedisCache]]:
    """Caches with nothing of their own, as on so many machines."""
    config = RedisConfig(**{"url": server.url, "timeout": PATIENCE, **settings})
    caches = [RedisCache(MemoryCache(0), RedisLink(config)) for _ in range(count)]
    try:
        yield caches
    finally:
        for cache in caches:
            await cache.finish()
            await cache.link.close()
            cache.close()
