"""One client's connection to one engine actor: finds it, sends work, fetches results, and reconnects.

A lost connection loses nothing: if the same engine answers again, it still has the work. Only another engine means that
everything is sent again. No wait here is without an end; a batch's own deadline is the client's.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Sequence
from typing import Protocol

from referee import clock, errors
from referee.errors import RefereeError
from referee.runtime.client import RemoteTracker
from referee.runtime.messages import decode_outbound, encode
from referee.runtime.ray_cluster import aside
from referee.runtime.ray_engine import News, Opened
from referee.runtime.ray_settings import PROTOCOL, Sealed
from referee.scoring.messages import Cancel, Update, Work
from referee.version import VERSION

log = logging.getLogger("referee.runtime")

LONG_POLL = 10.0
"""Seconds an engine holds a poll open while there are no results."""
CALL = 20.0
"""Seconds a call may take beyond what it was asked to wait, before the connection counts as lost."""
START = 120.0
"""Seconds an engine may take to come up: a busy cluster first has to find a place for its process."""
AGAIN = 0.2
MOST_AGAIN = 2.0
"""Seconds before reconnecting, doubling from the first to the second."""
CALL_BYTES = 8_000_000
"""Bytes in one call, unless a single message is larger."""


class Engine(Protocol):
    """An engine actor, as its clients see it. Calls may fail in any way that a network can."""

    async def open(self, client: str, lines: int, heard: tuple[str, float], settings: Sealed) -> Opened:
        """As EngineActor.open."""

    async def send(self, client: str, number: int, messages: list[bytes]) -> str:
        """As EngineActor.send."""

    async def poll(self, client: str, confirmed: int, wait: float) -> News:
        """As EngineActor.poll."""

    async def leave(self, client: str) -> None:
        """As EngineActor.leave."""


class _Disconnected(Exception):
    """The connection is lost, or the engine has forgotten this client."""


class ActorClient:
    """The connection from one client to one shard. Lives on the client's loop."""

    def __init__(
        self,
        client: str,
        shard: int,
        tracker: RemoteTracker,
        attach: Callable[[], Engine],
        seal: Callable[[bool], Sealed],
        lines: int,
    ) -> None:
        """`attach` finds or makes the engine; it may block. `seal(with_keys)` gives the settings for it."""
        self._client = client
        self._shard = shard
        self._tracker = tracker
        self._attach = attach
        self._seal = seal
        self._lines = lines
        self._engine: Engine | None = None
        self._known = ""
        self._confirmed = 0
        self._calls = 0
        self.spent_usd = 0.0
        """By all clients of this engine, and of those before it, as last reported."""
        self._unsent: list[bytes] = []
        self._under_way: list[bytes] = []
        """Messages of the call that has no answer yet. Repeated, it must be the same: the engine may have taken it."""
        self._posted = asyncio.Event()
        self.wanted = asyncio.Event()
        """There is work: an engine that could not start is tried again."""
        self.cuts = 0
        """How often the connection was lost so far."""

    def post(self, messages: Sequence[Work | Cancel]) -> None:
        """Send these, in order, as soon as the call before is over."""
        self._unsent += [encode(message) for message in messages]
        self._posted.set()

    async def run(self) -> None:
        """Keep the connection up until cancelled."""
        pause = AGAIN
        while True:
            self.wanted.clear()
            try:
                await self._open()
                pause = AGAIN
                await self._talk()
            except RefereeError as error:
                self._tracker.fail(error)
                await self.wanted.wait()
            except Exception as error:
                self._engine = None
                self.cuts += 1
                if not self._tracker.outstanding:  # no batch waits: no need to make an engine that others have ended
                    self.wanted.clear()
                    await self.wanted.wait()
                    continue
                log.warning(
                    "Ray engine %d does not respond (%s); its work is kept, reconnecting",
                    self._shard,
                    type(error).__name__,  # Ray's messages hold pieces of arguments and of other processes' logs
                )
                await clock.sleep(pause)
                pause = min(MOST_AGAIN, pause * 2)

    async def leave(self) -> None:
        """Tell the engine that this client is gone, if it answers."""
        if self._engine is not None and self._known:
            with contextlib.suppress(Exception):
                await clock.within(self._engine.leave(self._client), 1.0)

    async def _open(self) -> None:
        engine = self._engine = await aside(self._attach)
        opened = Opened("", "")
        for with_keys in (False, True):
            call = engine.open(self._client, self._lines, (self._known, self.spent_usd), self._seal(with_keys))
            opened = Opened(*await clock.within(call, START))
            if not opened.wants_keys:
                break
        if opened.version != f"{VERSION}/{PROTOCOL}":
            raise RefereeError(
                f"the Ray engine runs referee {opened.version}, this process {VERSION}/{PROTOCOL}. Nothing was judged. "
                "Install the same version on every node and end the old engine: referee.runtime.ray.shutdown(config)."
            )
        if opened.wants_keys:
            raise RefereeError("the Ray engine refused the key of this process. Nothing was judged; see its log.")
        if opened.trouble:
            kind = getattr(errors, opened.kind, RefereeError)
            raise kind(f"the Ray engine could not start: {opened.trouble}")
        if opened.engine != self._known:
            if self._known:
                log.warning("Ray engine %d was replaced; its work is sent again", self._shard)
                self._tracker.lost(self._shard)
            self._known = opened.engine
            self._confirmed = self._calls = 0
            self._unsent, self._under_way = [], []
            self._tracker.ready(self._shard)

    async def _talk(self) -> None:
        """Send and fetch until one of both fails."""
        work = [asyncio.ensure_future(self._send()), asyncio.ensure_future(self._fetch())]
        try:
            await asyncio.gather(*work)
        finally:
            for task in work:
                task.cancel()
            await asyncio.gather(*work, return_exceptions=True)

    async def _send(self) -> None:
        engine = self._engine
        assert engine is not None
        while True:
            while not self._unsent and not self._under_way:
                self._posted.clear()
                await self._posted.wait()
            if not self._under_way:
                count = _fitting(self._unsent)
                self._under_way, self._unsent = self._unsent[:count], self._unsent[count:]
            call = engine.send(self._client, self._calls + 1, self._under_way)
            self._check(await clock.within(call, CALL))
            self._calls += 1
            self._under_way = []

    async def _fetch(self) -> None:
        engine = self._engine
        assert engine is not None
        while True:
            call = engine.poll(self._client, self._confirmed, LONG_POLL)
            news = News(*await clock.within(call, LONG_POLL + CALL))
            self._check(news.engine)
            for data in news.landed:
                message = decode_outbound(data)
                if isinstance(message, Update):
                    self.spent_usd = max(self.spent_usd, message.spent_usd)
                    self._tracker.updated(self._shard, message)
            self._confirmed = news.number

    def _check(self, engine: str) -> None:
        if engine != self._known:
            raise _Disconnected("another engine answered")


def _fitting(messages: list[bytes]) -> int:
    """How many of them go into one call."""
    size = 0
    for count, message in enumerate(messages):
        size += len(message)
        if size > CALL_BYTES:
            return max(1, count)
    return len(messages)
