"""Memory in front of a file, and the choice of cache from the configuration."""

from __future__ import annotations

import math
from collections.abc import Sequence

from referee.cache.entry import Entry
from referee.cache.memory import MemoryCache
from referee.cache.port import Cache, Done
from referee.cache.redis import RedisCache
from referee.cache.redis_link import RedisLink
from referee.cache.sqlite import Notify, SqliteCache
from referee.config import CacheConfig

MAX_ABSENT = 10_000
"""Keys remembered as absent. Those of batches that were stopped are never asked for."""


class LayeredCache:
    """Memory first; what the file has is copied into memory. If the file fails, memory works on alone."""

    def __init__(self, memory: MemoryCache, disk: SqliteCache) -> None:
        self.memory = memory
        self.disk = disk
        self._absent: set[str] = set()
        """Expected keys, not asked for yet, that the file does not have."""

    def get(self, key: str) -> Entry | None:
        """From memory, else from the file."""
        entry = self.memory.get(key)
        if entry is None:
            if key in self._absent:
                self._absent.discard(key)
                return None
            entry = self.disk.get(key)
            if entry is not None:
                self.memory.put(key, entry)
        return entry

    def expect(self, keys: Sequence[str]) -> None:
        """Copy what the file has of these into memory, and remember which it does not have until they are asked for."""
        unknown = [key for key in keys if key not in self.memory]
        found = self.disk.get_many(unknown)
        for key, entry in found.items():
            self.memory.put(key, entry)
        if len(self._absent) > MAX_ABSENT:
            self._absent.clear()
        self._absent.update(unknown)
        self._absent.difference_update(found)

    def put(self, key: str, entry: Entry, done: Done | None = None) -> bool:
        """Into memory now, into the file soon."""
        self._absent.discard(key)
        self.memory.put(key, entry)
        return self.disk.put(key, entry, done)

    @property
    def lost(self) -> int:
        """Of the file."""
        return self.disk.lost

    def hurry(self) -> None:
        """Passed to the file."""
        self.disk.hurry()

    def close(self) -> None:
        """Close both."""
        self.disk.close()
        self.memory.close()

    def __repr__(self) -> str:
        return f"LayeredCache({self.memory!r}, {self.disk!r})"


def open_cache(config: CacheConfig, notify: Notify | None = None, link: RedisLink | None = None) -> Cache:
    """The cache of a configuration. A fault of the file, or of Redis, is a warning, never an error."""
    if not config.enabled:
        return MemoryCache(0)
    memory = MemoryCache(config.memory_items)
    max_bytes = config.max_gb * 1e9 or math.inf
    local: Cache = LayeredCache(memory, SqliteCache(config.path, notify, max_bytes)) if config.path else memory
    return local if link is None or not link.config.cache else RedisCache(local, link)
