"""The cache that several machines share: the local one in front, Redis behind it, and one flight per key for all jobs.

A job that misses takes a lock on the key and judges; the others poll until the verdict is there or the lock is gone.
The lock only saves money: a verdict is the same from every job, so losing a lock costs at most a second call. Faults of
Redis never reach the caller: a damaged value is a miss, and without Redis every search ends at once with nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import itertools
import logging
import secrets
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from referee import clock
from referee.cache.entry import Entry, pack, unpack
from referee.cache.port import Cache, Done, Found
from referee.cache.redis_link import RedisLink, Unavailable, run_script
from referee.cache.redis_scripts import LOOK, RELEASE, RENEW

if TYPE_CHECKING:
    from redis.asyncio import Redis

log = logging.getLogger("referee.redis")

LOCK_TTL_S = 5.0
"""A lock expires this long after its last renewal."""
LOCK_RENEWAL_S = 1.5
"""Interval of renewals."""
POLL_MIN_S, POLL_GROWTH, POLL_MAX_S = 0.05, 1.5, 0.25
"""Intervals of looking at a key that another job is judging."""
BATCH_KEYS = 128
"""Requests per round trip."""
MAX_UNSENT = 20_000
"""Verdicts waiting to be sent. Beyond this the oldest stay local."""


class _Search:
    """One request: searched for, then perhaps waited for, then perhaps locked by us."""

    __slots__ = ("_cache", "found", "keys", "lock", "locked", "next", "over", "pause", "token", "told", "until")

    def __init__(
        self, cache: RedisCache, keys: Sequence[str], lock: str, until: float, found: Found, token: str
    ) -> None:
        self._cache = cache
        self.keys = tuple(keys)
        self.lock = lock
        self.until = until
        self.found = found
        self.token = token
        self.pause = POLL_MIN_S
        self.next = 0.0
        self.locked = False
        self.told = False
        """`found` has been called."""
        self.over = False
        """Released: its result is not wanted any more."""

    def release(self) -> None:
        """Stop searching; release the lock."""
        if not self.over:
            self.over = True
            self._cache._released(self)


class RedisCache:
    """A SharedCache. Created and used on one event loop; `hits` counts verdicts of other jobs."""

    def __init__(self, local: Cache, link: RedisLink) -> None:
        prefix, keep_days = link.config.prefix, link.config.keep_days
        self.local = local
        self.link = link
        self.hits = 0
        self._value = f"{prefix}:v1:"
        self._lock = f"{prefix}:f1:"
        self._keep = int(keep_days * 86400) or None
        self._owner = secrets.token_hex(8)
        self._numbers = itertools.count()
        self._asked: dict[str, _Search] = {}
        """By token, like the next two: to be searched in the next round trip."""
        self._waiting: dict[str, _Search] = {}
        """Another job is judging it."""
        self._held: dict[str, _Search] = {}
        """We are judging it, under its lock."""
        self._writes: dict[str, bytes] = {}
        self._unlocks: dict[str, str] = {}
        self._renew_at = 0.0
        self._pump: asyncio.Task[None] | None = None
        self._renewal: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._closed = False
        link.on_change.append(self._changed)

    def get(self, key: str) -> Entry | None:
        """From the local cache."""
        return self.local.get(key)

    def expect(self, keys: Sequence[str]) -> None:
        """Passed to the local cache."""
        self.local.expect(keys)

    def put(self, key: str, entry: Entry, done: Done | None = None) -> bool:
        """Into the local cache as that does it; to Redis soon, without waiting for it."""
        promised = self.local.put(key, entry, done)
        if self.link.up and not self._closed:
            with contextlib.suppress(UnicodeError, OverflowError, TypeError):
                self._writes[key] = pack(key, entry)
                if len(self._writes) > MAX_UNSENT:
                    del self._writes[next(iter(self._writes))]
                self._wake()
        return promised

    @property
    def lost(self) -> int:
        """Of the local cache."""
        return self.local.lost

    def hurry(self) -> None:
        """Passed to the local cache."""
        self.local.hurry()

    def claim(self, keys: Sequence[str], patience: float, found: Found, team: str = "") -> _Search | None:
        """Search in Redis, together with all other searches of this iteration of the loop. Each team has locks of its
        own: one that may not send now would hold back the others."""
        if not self.link.up or self._closed:
            return None
        lock = f"{self._lock}{team}:{keys[0]}" if team else self._lock + keys[0]
        search = _Search(self, keys, lock, clock.now() + patience, found, f"{self._owner}:{next(self._numbers)}")
        self._asked[search.token] = search
        self._wake()
        return search

    async def finish(self) -> None:
        """Send verdicts and release locks, as far as Redis takes them in time. The link is closed by its owner."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        if self._renewal is not None:
            self._renewal.cancel()
        for search in list(self._held.values()):
            search.release()
        pump = self._pump
        if pump is not None and not pump.done():
            await asyncio.wait({pump}, timeout=1.0)
        with contextlib.suppress(Unavailable):
            await self._flush()

    def close(self) -> None:
        """Close the local cache."""
        self._closed = True
        self.local.close()

    def __repr__(self) -> str:
        return f"RedisCache({self.local!r}, {self.link!r}, {self.hits} found)"

    # Sending. One round trip at a time: what comes up meanwhile shares the next.

    def _wake(self) -> None:
        if self._pump is None or self._pump.done():
            self._pump = asyncio.get_running_loop().create_task(self._send())

    async def _send(self) -> None:
        try:
            while self._asked or self._writes or self._unlocks:
                await self._flush()
                if self._asked:
                    await self._look()
                    self._set_timer()
        except Unavailable:
            self._changed()
        except Exception:  # a bug of ours: callers must not hang
            log.exception("using Redis failed unexpectedly")
            self._drop_all()
        self._set_timer()

    async def _flush(self) -> None:
        """Verdicts first, locks after them: a job that finds no lock must find the verdict."""
        while self._writes:
            some = dict(itertools.islice(self._writes.items(), BATCH_KEYS))
            results = await self.link.run(functools.partial(self._store, some))
            for key, value in some.items():
                if self._writes.get(key) is value:
                    del self._writes[key]
            refused = [result for result in results if isinstance(result, Exception)]
            if refused:
                self.link.complain("write", f"does not store verdicts ({type(refused[0]).__name__}). They stay local.")
        while self._unlocks:
            locks = dict(itertools.islice(self._unlocks.items(), BATCH_KEYS))
            for token in locks:
                del self._unlocks[token]
            await self.link.run(functools.partial(run_script, RELEASE, list(locks.values()), list(locks)))

    async def _store(self, some: dict[str, bytes], client: Redis) -> list[Any]:
        async with client.pipeline(transaction=False) as pipe:
            for key, value in some.items():
                pipe.set(self._value + key, value, ex=self._keep)
            return await pipe.execute(raise_on_error=False)

    async def _look(self) -> None:
        width = len(next(iter(self._asked.values())).keys)
        some = [s for s in itertools.islice(self._asked.values(), BATCH_KEYS) if len(s.keys) == width]
        for search in some:
            del self._asked[search.token]
        names = [name for s in some for name in (s.lock, *(self._value + key for key in s.keys))]
        arguments = [str(int(LOCK_TTL_S * 1000)), str(width), *(s.token for s in some)]
        try:
            answer = await self.link.run(functools.partial(run_script, LOOK, names, arguments))
            for search, code, value in zip(some, answer[::2], answer[1::2], strict=True):
                self._answered(search, int(code), value)
        except Exception:
            for search in some:
                if search.token not in self._waiting:
                    self._end(search, None)
            raise

    def _answered(self, search: _Search, code: int, value: bytes) -> None:
        if code == 0:
            search.locked = True
            if search.over:
                self._unlock(search)
                return
            if not self._held:
                self._renew_at = clock.now() + LOCK_RENEWAL_S
            self._held[search.token] = search
            self._end(search, None)
        elif search.over:
            return
        elif code > 0:
            key = search.keys[code - 1]
            entry = unpack(key, value)
            if entry is None:
                self.link.complain("damaged", "holds a damaged verdict. It is asked for again and replaced.")
                self._end(search, None)
                return
            self.hits += 1
            self.local.put(key, entry)
            self._end(search, (key, entry))
        elif clock.now() >= search.until:
            self._end(search, None)
        else:
            search.next = clock.now() + search.pause
            search.pause = min(POLL_MAX_S, search.pause * POLL_GROWTH)
            self._waiting[search.token] = search

    def _end(self, search: _Search, result: tuple[str, Entry] | None) -> None:
        if search.told or search.over:
            return
        search.told = True
        try:
            search.found(result)
        except Exception:
            log.exception("the callback of a search failed")

    # Timers and events: polling, renewing, outages.

    def _released(self, search: _Search) -> None:
        self._asked.pop(search.token, None)
        self._waiting.pop(search.token, None)
        if search.locked:
            self._unlock(search)

    def _unlock(self, search: _Search) -> None:
        self._held.pop(search.token, None)
        search.locked = False
        if self.link.up:
            self._unlocks[search.token] = search.lock
            if not self._closed:
                self._wake()

    def _set_timer(self) -> None:
        """One timer for the next poll or the next renewal."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._closed or not self.link.up or not (self._waiting or self._held):
            return
        when = min((search.next for search in self._waiting.values()), default=float("inf"))
        if self._held:
            when = min(when, self._renew_at)
        loop = asyncio.get_running_loop()
        # Polls that are nearly due share a round trip.
        self._timer = clock.at(loop, max(when, loop.time() + POLL_MIN_S / 2), self._due)

    def _due(self) -> None:
        self._timer = None
        now = clock.now()
        for token in [t for t, search in self._waiting.items() if search.next <= now]:
            self._asked[token] = self._waiting.pop(token)
        if self._held and now >= self._renew_at:
            self._renew_at = now + LOCK_RENEWAL_S
            self._renewal = asyncio.get_running_loop().create_task(self._renew())
        if self._asked:
            self._wake()
        else:
            self._set_timer()

    async def _renew(self) -> None:
        held = list(self._held.values())
        for start in range(0, len(held), BATCH_KEYS):
            some = [search for search in held[start : start + BATCH_KEYS] if search.locked]
            names = [search.lock for search in some]
            arguments = [str(int(LOCK_TTL_S * 1000)), *(search.token for search in some)]
            if some:
                with contextlib.suppress(Unavailable):
                    await self.link.run(functools.partial(run_script, RENEW, names, arguments))

    def _changed(self) -> None:
        """Redis became unavailable, or available. While it is unavailable no search waits for it."""
        if self.link.up:
            self._set_timer()
        else:
            self._drop_all()

    def _drop_all(self) -> None:
        self._writes.clear()
        self._unlocks.clear()
        for searches in (self._asked, self._waiting):
            for search in list(searches.values()):
                searches.pop(search.token, None)
                self._end(search, None)
