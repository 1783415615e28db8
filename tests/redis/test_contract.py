"""The shared cache passes the suite of every cache: with a local one in front, and alone."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any, TypeVar

import pytest
from tests.contracts.cache_suite import CacheContract, entry
from tests.redis.searching import search
from tests.redis.server import PATIENCE, RedisServer

from referee.cache import Cache, Entry, LayeredCache, MemoryCache, SqliteCache
from referee.cache.port import Done
from referee.cache.redis import RedisCache, RedisLink
from referee.config import RedisConfig

T = TypeVar("T")

pytestmark = pytest.mark.slow


class FromOutside:
    """A shared cache for callers without a loop: a loop in a thread, and a `get` that searches as the engine does."""

    def __init__(self, make: Callable[[], RedisCache]) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="outside", daemon=True)
        self._thread.start()
        self._closed = False

        async def begin() -> RedisCache:
            return make()

        self.cache = self._run(begin())

    def get(self, key: str) -> Entry | None:
        return None if self._closed else self._run(self._get(key))

    def expect(self, keys: Sequence[str]) -> None:
        self._loop.call_soon_threadsafe(self.cache.expect, keys)

    def hurry(self) -> None:
        self._loop.call_soon_threadsafe(self.cache.hurry)

    def put(self, key: str, entry: Entry, done: Done | None = None) -> bool:
        async def put() -> bool:
            return self.cache.put(key, entry, done)

        return self._run(put())

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True

        async def close() -> None:
            await self.cache.finish()
            await self.cache.link.close()
            self.cache.close()
            self.cache.close()
            assert self.cache.get("0" * 32) is None
            assert not self.cache.put("0" * 32, entry()), "stored after close"

        self._run(close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(PATIENCE)
        self._loop.close()

    async def _get(self, key: str) -> Entry | None:
        found = self.cache.get(key)
        return found if found is not None else await search(self.cache, key)

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(PATIENCE)


class RedisContract(CacheContract):
    """With a server for each test."""

    @pytest.fixture(autouse=True)
    def begin(self, server: RedisServer) -> None:
        self.config = RedisConfig(url=server.url, timeout=PATIENCE)

    def local(self, path: Path) -> Cache:
        raise NotImplementedError

    def open(self, path: Path) -> Any:
        return FromOutside(lambda: RedisCache(self.local(path), RedisLink(self.config)))


class TestRedisAlone(RedisContract):
    """Nothing in front: every entry makes the way there and back."""

    def local(self, path: Path) -> Cache:
        return MemoryCache(0)


class TestRedisBehindAFile(RedisContract):
    """As it is used."""

    def local(self, path: Path) -> Cache:
        return LayeredCache(MemoryCache(100), SqliteCache(path))
