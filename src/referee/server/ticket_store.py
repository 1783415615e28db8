"""Tickets in Redis: any replica answers for any ticket, and takes over those of a replica that died.

A ticket is a hash: its samples until it ends, then its results, and which replica (owner) judges it. Every BEAT_S an
owner says that it lives. A ticket whose owner does not is judged again, from its samples, by the replica that is asked
for it. What one replica deletes, its owner drops at the next beat. Without Redis tickets stay where they are.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import secrets
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

from referee import clock
from referee.cache.redis_link import RedisLink, Unavailable, patient, run_script
from referee.config import RedisConfig
from referee.records import Sample
from referee.server.refusals import Refusal
from referee.server.teams import OPERATOR
from referee.server.ticket_scripts import BEAT, CLAIM, DELETE, LOOK, RELEASE, STORE
from referee.server.tokens import Caller

if TYPE_CHECKING:
    from referee.server.tickets import HeldTicket

log = logging.getLogger("referee.server")

BEAT_S = 1.5
"""Seconds between two signs of life."""
OWNER_MS = 6000
"""A replica without a sign of life for this long is dead."""
TOMB_MS = 60_000
"""How long a deleted ticket is remembered, so that its owner learns of it."""
LARGEST = 16 * 2**20
"""Bytes of samples, or of results, that are kept in Redis. A larger ticket stays with its replica."""
AT_ONCE = 4
"""Commands under way."""
CHUNK = 128
"""Tickets for each beat's round trip."""


class Work(Struct, frozen=True):
    """All that is needed to judge a ticket again. No token, no key."""

    samples: tuple[Sample, ...]
    caller: Caller = OPERATOR
    deadline: float | None = None


class End(Struct, frozen=True, kw_only=True):
    """How a ticket ended: results as JSON, or a refusal."""

    results: bytes = b""
    status: int = 0
    error: str = ""
    message: str = ""
    retry_after: int = 0

    @classmethod
    def of(cls, refusal: Refusal) -> End:
        """The end of a ticket that is refused."""
        return cls(status=refusal.status, error=refusal.error, message=refusal.message, retry_after=refusal.retry_after)

    def refusal(self) -> Refusal | None:
        """The refusal, if it is one."""
        return Refusal(self.status, self.error, self.message, self.retry_after) if self.status else None


class State(Struct, frozen=True, kw_only=True):
    """What Redis says of a ticket."""

    samples: int
    landed: int
    ours: bool
    """This replica judges it."""
    alive: bool
    """The replica that judges it lives."""
    deleted: bool
    end: End | None = None


_work = msgspec.msgpack.Decoder(Work)
_end = msgspec.msgpack.Decoder(End)
_results = msgspec.json.Decoder(list[msgspec.Raw])
_pack = msgspec.msgpack.Encoder().encode


class TicketStore:
    """This replica's side of the tickets in Redis. Lives on the server's loop; starts with the first ticket."""

    def __init__(
        self,
        config: RedisConfig,
        held: Mapping[str, HeldTicket],
        lost: Callable[[str], None],
        keep: float,
        longest: float,
    ) -> None:
        """`held`: this replica's tickets, by id; `lost`: called with one that is not its own any more. `keep`: seconds
        a finished ticket is kept; `longest`: seconds an open one may take."""
        alone = "Tickets stay with the replica that took them, and are gone if it dies."
        self._link = RedisLink(patient(config), without=alone)
        self._held, self._lost = held, lost
        self.keep, self.longest = keep, longest
        self._me = secrets.token_hex(8)
        self._ticket = f"{config.prefix}:ticket:"
        self._owner = f"{config.prefix}:replica:"
        self._at_once = asyncio.Semaphore(AT_ONCE)
        self._beats: asyncio.Task[None] | None = None
        self._closed = False

    async def store(self, held: HeldTicket) -> None:
        """Keep a ticket as it is now: its samples, or how it ended. `held.stored` says whether Redis has it."""
        if self._beats is None and not self._closed:
            self._beats = asyncio.get_running_loop().create_task(self._beat())
        field, value = ("work", held.work) if held.end is None else ("end", held.end)
        data = _pack(value)
        held.too_large = len(data) > LARGEST
        if held.too_large:
            held.stored = False
            what = f"a ticket of {len(data) >> 20} MB is more than the {LARGEST >> 20} MB that are kept in Redis"
            self._link.complain("large", f"{what}. It stays with the replica that took it.")
            return
        seconds = self.keep + (self.longest if held.end is None else 0.0)
        keys = [self._ticket + held.id, self._owner + self._me]
        told = [self._me, held.samples, field, data, _ms(seconds), OWNER_MS, held.caller.team]
        held.stored = await self._run(STORE, keys, told) is not None

    async def look(self, name: str, team: str = "", wanted: bool = False) -> State | None:
        """A ticket's state. None: Redis does not know it, or is away, or it is not of this team. `wanted`: with its
        results, to be handed out."""
        found = await self._run(LOOK, [self._ticket + name], [self._owner, "1" if wanted else "", team])
        if not found:
            return None
        samples, owner, landed, deleted, alive, end = found
        return State(
            samples=int(samples or 0),
            landed=int(landed or 0),
            ours=owner == self._me.encode(),
            alive=bool(alive),
            deleted=bool(deleted),
            end=_decoded(_end, end) if end else None,
        )

    async def claim(self, name: str) -> Work | None:
        """Make a ticket this replica's own, if it is open and its owner is dead."""
        arguments = [self._owner, self._me, _ms(self.keep + self.longest), OWNER_MS]
        found = await self._run(CLAIM, [self._ticket + name], arguments)
        try:
            return _decoded(_work, found) if found else None
        except Refusal:
            await self.delete(name)
            raise

    async def release(self, name: str) -> None:
        """Leave a ticket to whichever replica is asked for it next."""
        await self._run(RELEASE, [self._ticket + name], [self._me])

    async def delete(self, name: str) -> bool:
        """Delete a ticket, wherever it is. False: there was none."""
        return bool(await self._run(DELETE, [self._ticket + name], [TOMB_MS]))

    @property
    def up(self) -> bool:
        """Whether Redis answers."""
        return self._link.up

    async def close(self) -> None:
        """Leave: what is open here is for other replicas at once."""
        self._closed = True
        for _ in range(AT_ONCE):  # what is under way ends first: it could renew the sign of life after its end
            await self._at_once.acquire()
        if self._beats is not None:
            self._beats.cancel()
        with contextlib.suppress(Unavailable):
            await self._link.run(lambda client: client.delete(self._owner + self._me))
        await self._link.close()
        for _ in range(AT_ONCE):
            self._at_once.release()

    async def _beat(self) -> None:
        while True:
            try:
                names = [name for name, held in self._held.items() if not held.too_large]
                for start in range(0, max(1, len(names)), CHUNK):
                    await self._tell(names[start : start + CHUNK])
            except Exception:
                log.exception("the state of tickets in Redis could not be renewed")
            await clock.sleep(BEAT_S)

    async def _tell(self, names: Sequence[str]) -> None:
        there = [(name, self._held[name]) for name in names if name in self._held]
        keys = [self._owner + self._me, *(self._ticket + name for name, _ in there)]
        found = await self._run(BEAT, keys, [self._me, OWNER_MS, *(held.landed for _, held in there)])
        for (name, held), said in zip(there, found or (), strict=False):
            if said == b"lost":
                self._lost(name)
            elif said == b"missing" or (held.end is not None and not held.stored):
                # Redis was away, or has forgotten it.
                await self.store(held)
            elif said == b"collected":
                held.collected = True

    async def _run(self, script: str, keys: list[str], arguments: Sequence[Any]) -> Any:
        """What a script says; None while Redis is away."""
        async with self._at_once:
            try:
                return await self._link.run(functools.partial(run_script, script, keys, list(arguments)))
            except Unavailable:
                return None


def _ms(seconds: float) -> int:
    return int(min(seconds, 1e9) * 1000)


def _decoded(decoder: msgspec.msgpack.Decoder[Any], data: bytes) -> Any:
    try:
        found = decoder.decode(data)
        if isinstance(found, End) and found.results:
            _results.decode(found.results)  # it is handed out as it is
    except (msgspec.MsgspecError, ValueError, RecursionError):
        raise Refusal(
            500, "ticket", "What Redis has of this ticket cannot be read. Submit the samples again."
        ) from None
    return found
