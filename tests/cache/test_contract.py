"""Every cache passes the same suite."""

from __future__ import annotations

from pathlib import Path

from tests.contracts.cache_suite import CacheContract

from referee.cache import Cache, LayeredCache, MemoryCache, SqliteCache


class TestMemory(CacheContract):
    """In memory."""

    def open(self, path: Path) -> Cache:
        return MemoryCache(1000)


class TestSqlite(CacheContract):
    """In a file."""

    def open(self, path: Path) -> Cache:
        return SqliteCache(path)


class TestLayered(CacheContract):
    """Memory in front of a file."""

    def open(self, path: Path) -> Cache:
        return LayeredCache(MemoryCache(1000), SqliteCache(path))


class TestLayeredWithoutMemory(CacheContract):
    """Memory of no size in front of a file."""

    def open(self, path: Path) -> Cache:
        return LayeredCache(MemoryCache(0), SqliteCache(path))


class TestMemoryBeforeNoFile(CacheContract):
    """Memory in front of a file that cannot be used: a directory is in its place."""

    def open(self, path: Path) -> Cache:
        path.mkdir(parents=True)
        return LayeredCache(MemoryCache(1000), SqliteCache(path))
