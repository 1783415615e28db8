"""Verdicts already paid for: the key, the stores, and what every store promises. Nothing here asks a judge."""

from referee.cache.entry import Entry
from referee.cache.key import KeyMaker, explain
from referee.cache.layered import LayeredCache, open_cache
from referee.cache.memory import MemoryCache
from referee.cache.port import Cache, Claim, Done, SharedCache, run_all
from referee.cache.redis_link import RedisLink
from referee.cache.sqlite import SqliteCache

__all__ = [
    "Cache",
    "Claim",
    "Done",
    "Entry",
    "KeyMaker",
    "LayeredCache",
    "MemoryCache",
    "RedisLink",
    "SharedCache",
    "SqliteCache",
    "explain",
    "open_cache",
    "run_all",
]
