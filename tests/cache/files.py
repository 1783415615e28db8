"""Cache files to test with, and what was said about them."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
from tests.contracts.cache_suite import entry, key, store

from referee.cache import SqliteCache


def filled(path: Path, rows: int = 5) -> None:
    """A closed cache file with some rows."""
    cache = SqliteCache(path)
    for number in range(rows):
        cache.put(key(number), entry(number))
    store(cache, key(rows), entry(rows))
    cache.close()


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [r.getMessage() for r in caplog.records if r.name == "referee.cache" and r.levelno >= logging.WARNING]
