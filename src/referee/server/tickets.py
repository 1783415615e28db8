"""Tickets to collect later: those of this replica, and, where there is Redis, those of others.

Bounded in number and lifetime. `ticket_store` says what is kept in Redis; here is what a caller gets.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import msgspec

from referee import clock
from referee.config import Config
from referee.records import Reason, Reward, Sample, Unscored
from referee.server.refusals import SOON, Refusal
from referee.server.schemas import TicketReply, encode, result_of
from referee.server.shares import Shares
from referee.server.teams import OPERATOR
from referee.server.ticket_store import End, State, TicketStore, Work
from referee.server.tokens import Caller
from referee.ticket import Ticket

if TYPE_CHECKING:
    from referee.server.service import Service

log = logging.getLogger("referee.server")

HANDOVER_S = 2.0
"""Seconds that unfinished tickets have to be left to other replicas before the process goes."""
POLL_S, POLL_MAX_S = 0.05, 0.5
"""Seconds between looks at a ticket that another replica judges: at first, and later."""
MOVED = "This replica is about to end. Ask again: another one takes the ticket over."


class HeldTicket:
    """A ticket of this replica."""

    def __init__(self, name: str, work: Work, ticket: Ticket, stored: bool) -> None:
        self.id = name
        self.caller = work.caller
        self.samples = len(ticket)
        self.work: Work | None = work
        self.ticket: Ticket | None = ticket
        """Both None once it is done: what it was made of is let go, only its end is kept."""
        self.end: End | None = None
        self.done = asyncio.Event()
        self.collected = False
        self.stored = stored
        """Redis has it, as it is now."""
        self.too_large = False
        """For Redis."""
        self.task: asyncio.Task[None] | None = None
        self.timer: asyncio.TimerHandle | None = None
        """Until it is forgotten. Set from the end of judging on: its samples take room."""

    @property
    def landed(self) -> int:
        """Samples that are final."""
        return self.samples if self.ticket is None else self.ticket.landed()

    def reply(self) -> bytes:
        """Its state, or its results, as JSON."""
        return ticket_reply(self.id, self.samples, self.landed, self.end if self.done.is_set() else None)


class Tickets:
    """All tickets that this replica holds or can answer for."""

    def __init__(self, service: Service, config: Config) -> None:
        self._service = service
        self.kept = 0
        """Samples of finished ones."""
        self.places = Shares(config.serve.max_tickets)
        self._held: dict[str, HeldTicket] = {}
        self._deleting: set[asyncio.Task[bool]] = set()
        self._store: TicketStore | None = None
        if config.redis.url:
            keep, longest = config.serve.ticket_seconds, config.limits.deadline
            self._store = TicketStore(config.redis, self._held, self._lose, keep, longest)

    def __len__(self) -> int:
        return len(self._held)

    def renew(self, config: Config) -> None:
        """Bounds and lifetimes of another configuration."""
        self.places.limit = config.serve.max_tickets
        if self._store is not None:
            self._store.keep, self._store.longest = config.serve.ticket_seconds, config.limits.deadline

    async def open(
        self, samples: Sequence[Sample], deadline: float | None = None, caller: Caller = OPERATOR
    ) -> HeldTicket:
        """Start judging for a caller that will ask for the results by the ticket's id."""
        held = await self._begin(secrets.token_urlsafe(16), Work(tuple(samples), caller, deadline))
        if self._store is not None:
            await self._store.store(held)
        return held

    async def collect(self, name: str, wait: float, caller: Caller = OPERATOR) -> bytes:
        """A ticket's state as JSON, after waiting up to `wait` seconds for its end. Can be asked for again until it is
        forgotten."""
        until, pause = clock.now() + wait, POLL_S
        while True:
            held = await self._here(name, caller)
            if held is not None:
                if not held.done.is_set():
                    with contextlib.suppress(TimeoutError):
                        await clock.within(held.done.wait(), max(0.0, until - clock.now()))
                if self._held.get(name) is not held:
                    continue  # deleted meanwhile, or another replica's
                if held.done.is_set():
                    held.collected = True
                    _raise_refusal(held.end)
                return held.reply()
            state = await self._elsewhere(name, caller)
            _raise_refusal(state.end)
            if state.end is None and not state.alive and await self._take_over(name, state.samples):
                continue
            if state.end is not None or clock.now() >= until:
                return ticket_reply(name, state.samples, state.landed, state.end)
            await clock.sleep(min(pause, until - clock.now()))
            pause = min(2 * pause, POLL_MAX_S)

    async def drop(self, name: str, caller: Caller = OPERATOR) -> None:
        """Forget a ticket, and stop judging what it is for."""
        if await self._here(name, caller) is None:
            await self._elsewhere(name, caller)
        if self._store is not None:
            await self._store.delete(name)
        self._lose(name)

    def forget_collected(self, crowded: Callable[[], bool]) -> None:
        """While it is crowded, let go of finished tickets that were collected, the oldest first."""
        if not crowded():
            return
        for held in [held for held in self._held.values() if held.collected]:
            self._forget(held)
            if self._store is not None:
                task = asyncio.get_running_loop().create_task(self._store.delete(held.id))
                self._deleting.add(task)
                task.add_done_callback(self._deleting.discard)
            if not crowded():
                return

    async def leave(self, until: float) -> None:
        """The process is about to end: callers may collect until then what only it has; the rest is left to others."""
        hurry = clock.now() + HANDOVER_S
        while any(
            clock.now() < (until if held.done.is_set() else hurry) and self._only_here(held)
            for held in self._held.values()
        ):
            await clock.sleep(POLL_S)
        if self._store is not None:
            await self._store.close()

    def _elsewhere_too(self, held: HeldTicket) -> bool:
        """Another replica can go on with it."""
        return held.stored and self._store is not None and self._store.up

    def _leaving(self, held: HeldTicket) -> bool:
        """What ends unjudged now is cancelled by us, and another replica can judge it."""
        return self._service.stopped and self._elsewhere_too(held)

    def _only_here(self, held: HeldTicket) -> bool:
        """Not collected, and gone with this process."""
        return not held.done.is_set() or not (held.collected or self._elsewhere_too(held))

    async def _begin(self, name: str, work: Work, stored: bool = False) -> HeldTicket:
        share = work.caller.share
        self.forget_collected(lambda: not self.places.fits(share, 1))
        if not self.places.fits(share, 1):
            self._service.teams.refused[work.caller.team, "full"] += 1
            raise Refusal(
                429,
                "too_many_tickets",
                f"Tickets kept and not collected: {len(self._held)}, of them yours: {self.places.held(share)}; "
                "[serve] max_tickets allows no more. Collect or delete some. Nothing was judged.",
                SOON,
            )
        self.places.take(share, 1)
        stack = contextlib.AsyncExitStack()
        try:
            judging = self._service.judging(work.samples, work.deadline, work.caller)
            ticket = await stack.enter_async_context(judging)
        except BaseException:
            self.places.give_back(share, 1)
            raise
        held = self._held[name] = HeldTicket(name, work, ticket, stored)
        held.task = asyncio.create_task(self._finish(held, ticket, stack))
        return held

    async def _finish(self, held: HeldTicket, ticket: Ticket, stack: contextlib.AsyncExitStack) -> None:
        """Carry a ticket to its end. `stack` gives its room back."""
        try:
            async with stack:
                rewards = await self._service.rewards(ticket, held.caller)
                if not (any(map(_cancelled, rewards)) and self._leaving(held)):
                    held.end = End(results=encode([result_of(reward) for reward in rewards]))
        except Refusal as refusal:
            held.end = None if self._leaving(held) else End.of(refusal)
        except Exception as error:
            log.exception("a ticket could not be finished")
            held.end = End.of(Refusal(500, "internal", f"The results could not be kept ({type(error).__name__})."))
        finally:
            await self._settle(held)

    async def _settle(self, held: HeldTicket) -> None:
        """Tell other replicas how a ticket ended, then wake the requests that wait here."""
        if self._held.get(held.id) is held:
            self.kept += held.samples
            self._service.room.take(held.caller.share, held.samples)
            loop = asyncio.get_running_loop()
            keep = self._service.config.ticket_seconds
            held.timer = clock.at(loop, loop.time() + keep, lambda: self._forget(held))
        try:
            if self._store is not None and held.end is not None and self._held.get(held.id) is held:
                await self._store.store(held)
        finally:
            held.end = held.end or End.of(Refusal(503, "moved", MOVED, SOON))
            held.ticket = held.work = None
            held.done.set()

    def _forget(self, held: HeldTicket) -> None:
        if self._held.get(held.id) is not held:
            return
        del self._held[held.id]
        self.places.give_back(held.caller.share, 1)
        if held.timer is not None:
            held.timer.cancel()  # else it would keep the results until it rings
            self.kept -= held.samples
            self._service.room.give_back(held.caller.share, held.samples)

    def _lose(self, name: str) -> None:
        """A ticket was deleted, or is another replica's now."""
        held = self._held.get(name)
        if held is not None:
            if held.ticket is not None:
                held.ticket.cancel()
            self._forget(held)

    async def _here(self, name: str, caller: Caller) -> HeldTicket | None:
        """A ticket of this replica, unless Redis says that it is not any more, or it is another team's."""
        held = self._held.get(name)
        if held is not None and caller.team not in ("", held.caller.team):
            raise self._unknown()
        state = await self._store.look(name) if held is not None and self._store is not None else None
        if state is not None and (state.deleted or not state.ours):
            self._lose(name)
        return self._held.get(name)

    async def _elsewhere(self, name: str, caller: Caller) -> State:
        state = None if self._store is None else await self._store.look(name, caller.team, wanted=True)
        if state is None or state.deleted:
            raise self._unknown()
        return state

    async def _take_over(self, name: str, samples: int) -> bool:
        """Judge a ticket of a replica that died. False: it is another's by now, or there is no room for it here yet."""
        assert self._store is not None
        room = self._service.room.fits("", samples) and self.places.fits("", 1)
        work = await self._store.claim(name) if room and not self._service.draining else None
        if work is None:
            return False
        try:
            await self._begin(name, work, stored=True)
        except BaseException as error:
            await self._store.release(name)
            if isinstance(error, Refusal) and error.status in (429, 503):
                return False
            raise
        log.warning("a ticket of a replica that is gone is judged again here; samples: %d", samples)
        return True

    def _unknown(self) -> Refusal:
        if self._store is not None and not self._store.up:
            return Refusal(503, "tickets", "Redis is away, and this replica does not have the ticket. Ask again.", SOON)
        return Refusal(
            404,
            "no_ticket",
            "There is no such ticket: it was deleted, or finished more than [serve] ticket_seconds = "
            f"{self._service.config.ticket_seconds:g} ago, or the service was started again. What was judged is "
            "cached: submit the samples again.",
        )


def ticket_reply(name: str, samples: int, landed: int, end: End | None) -> bytes:
    """The state of a ticket, or its results, as JSON."""
    results = msgspec.Raw(end.results) if end is not None and end.results else None
    landed = landed if end is None else samples
    return encode(TicketReply(id=name, samples=samples, landed=landed, done=end is not None, results=results))


def _raise_refusal(end: End | None) -> None:
    refusal = end.refusal() if end is not None else None
    if refusal is not None:
        raise refusal


def _cancelled(reward: Reward) -> bool:
    return isinstance(reward.verdict, Unscored) and reward.verdict.reason is Reason.CANCELLED
