"""One Referee for many callers: what is let in, tickets to collect later, health, and an orderly end.

Lives on the server's event loop. Knows nothing of HTTP but the refusals it raises.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import msgspec

from referee import clock
from referee.errors import EndpointClosed, RefereeError, UnscoredError
from referee.records import Reason, Reward, Sample, Unscored
from referee.referee import Referee
from referee.scoring.build import columns_shown, rubric_polarity
from referee.server.refusals import LATER, SOON, Refusal, refusal_of
from referee.server.shapes import Health, TicketReply, encode, result_of
from referee.server.shares import Shares
from referee.ticket import Ticket
from referee.version import VERSION

log = logging.getLogger("referee.server")

HURRY = 2.0
"""Seconds cancelled work has to hand in its ends before the process goes."""
AT_ONCE = 1024
"""Samples whose submission is quick enough for the event loop; more of them are checked in a thread."""


class Held:
    """A ticket to be collected."""

    __slots__ = ("caller", "collected", "done", "id", "refusal", "results", "samples", "task", "ticket", "timer")

    def __init__(self, name: str, caller: str, ticket: Ticket) -> None:
        self.id = name
        self.caller = caller
        self.samples = len(ticket)
        self.ticket: Ticket | None = ticket
        """None once it is done: what it was made of is let go, only its results are kept."""
        self.results = b""
        self.refusal: Refusal | None = None
        self.done = asyncio.Event()
        self.collected = False
        self.task: asyncio.Task[None] | None = None
        self.timer: asyncio.TimerHandle | None = None

    def reply(self) -> bytes:
        """Its state, or its results, as JSON."""
        landed = self.samples if self.ticket is None else self.ticket.landed()
        return encode(
            TicketReply(
                id=self.id,
                samples=self.samples,
                landed=landed,
                done=self.done.is_set(),
                results=msgspec.Raw(self.results) if self.results else None,
            )
        )


class Service:
    """Admission, tickets and health around one Referee. Does not own the Referee: its maker closes it."""

    def __init__(self, referee: Referee) -> None:
        self.referee = referee
        self.config = referee.config.serve
        self.columns = columns_shown(referee.config)
        self.polarity = rubric_polarity(referee.config)
        """Columns that the judges' templates show, and every sample must have."""
        self.draining = False
        self.pending = 0
        """Samples accepted and not final."""
        self.answers: dict[tuple[str, int], int] = {}
        """Answers given so far, by route and status."""
        self._kept = 0
        self._samples = Shares(self.config.max_queue)
        self._places = Shares(self.config.max_tickets)
        self._closed: EndpointClosed | None = None
        self._active: set[Ticket] = set()
        self._held: dict[str, Held] = {}
        self._idle = asyncio.Event()
        self._idle.set()
        self._warm = False

    @property
    def tickets(self) -> int:
        """Tickets kept, finished ones included."""
        return len(self._held)

    @property
    def closed(self) -> EndpointClosed | None:
        """Why no judge can answer, if so."""
        return self._closed

    @contextlib.asynccontextmanager
    async def judging(
        self, samples: Sequence[Sample], deadline: float | None = None, caller: str = ""
    ) -> AsyncIterator[Ticket]:
        """Let a batch in and hold its place until the block ends; work that is not done by then is cancelled."""
        count = len(samples)
        self._make_room(count, caller)
        self._samples.take(caller, count)
        self._add(count)
        ticket: Ticket | None = None
        try:
            ticket = await self._submit(samples, deadline, caller)
            self._active.add(ticket)
            yield ticket
        except RefereeError as error:
            raise self._told(error) from error
        finally:
            self._samples.give_back(caller, count)
            self._add(-count)
            if ticket is not None:
                self._active.discard(ticket)
                ticket.cancel()

    async def rewards(self, ticket: Ticket) -> list[Reward]:
        """All rewards of a batch, in order."""
        rewards = await ticket
        self.noticed(rewards)
        return rewards

    def noticed(self, rewards: Sequence[Reward | None]) -> None:
        """Whether a judge can answer, from what came back: a call that was made, or a budget that is spent."""
        given = [reward for reward in rewards if reward is not None]
        if self._closed is not None and any(reward.settled.origin == "call" for reward in given):
            self._closed = None
        for reward in given:
            verdict = reward.verdict
            if self._closed is None and isinstance(verdict, Unscored) and verdict.reason is Reason.BUDGET:
                self._closed = EndpointClosed(verdict.detail, reason=Reason.BUDGET)
                log.warning(
                    "%s Requests are answered from the cache only until the service is restarted.", self._closed
                )

    async def open(self, samples: Sequence[Sample], deadline: float | None = None, caller: str = "") -> Held:
        """Start judging for a caller that will ask for the results by the ticket's id."""
        self._forget_collected(lambda: not self._places.fits(caller, 1))
        if not self._places.fits(caller, 1):
            raise Refusal(
                429,
                "too_many_tickets",
                f"Tickets kept and not collected: {len(self._held)}, of them yours: {self._places.held(caller)}; "
                "[serve] max_tickets allows no more. Collect or delete some. Nothing was judged.",
                SOON,
            )
        started: asyncio.Future[Held] = asyncio.get_running_loop().create_future()
        task = asyncio.create_task(self._hold(samples, deadline, caller, started))
        either: set[asyncio.Future[Any]] = {task, started}
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        if not started.done():
            await task
        held = started.result()
        held.task = task
        return held

    async def collect(self, name: str, wait: float) -> Held:
        """A ticket, after waiting up to `wait` seconds for its end. Can be asked for again until it is forgotten."""
        held = self._find(name)
        if wait and not held.done.is_set():
            with contextlib.suppress(TimeoutError):
                await clock.within(held.done.wait(), wait)
            held = self._find(name)  # it may have been deleted meanwhile
        if held.done.is_set():
            held.collected = True
            if held.refusal is not None:
                raise held.refusal
        return held

    def drop(self, name: str) -> None:
        """Forget a ticket, and stop judging what it is for."""
        held = self._find(name)
        if held.ticket is not None:
            held.ticket.cancel()
        self._forget(held)

    def health(self, details: bool) -> tuple[int, Health]:
        """Status and body of /healthz. `details`: the caller may know where the judge is."""
        if self.draining:
            status, state, why = 503, "draining", "no new work is taken; the process is about to end."
        elif self._closed is not None:
            status, state = 503, "closed"
            why = str(self._closed) if details else f"no judge can answer ({self._closed.reason})."
        else:
            status, state, why = 200, "ok", ""
        return status, Health(status=state, why=why, version=VERSION, queued=self.pending)

    async def drain(self, seconds: float) -> None:
        """Take no new work and finish what was accepted within `seconds`; then cancel the rest."""
        self.draining = True
        if not await self._idle_within(seconds):
            log.warning("not judged within %g s of draining, so cancelled: %d", seconds, self.pending)
            self.stop()
            await self._idle_within(HURRY)

    def stop(self) -> None:
        """Cancel everything under way; it ends as unscored (cancelled)."""
        self.draining = True
        for ticket in list(self._active):
            ticket.cancel()

    async def _idle_within(self, seconds: float) -> bool:
        try:
            await clock.within(self._idle.wait(), seconds)
        except TimeoutError:
            return False
        return True

    def _make_room(self, count: int, caller: str) -> None:
        if self.draining:
            raise Refusal(503, "draining", "The service is about to end and takes no new work. Try again.", LATER)
        limit = self.config.max_queue
        if count > limit:
            raise Refusal(
                413,
                "too_many_samples",
                f"{count} samples in one request; [serve] max_queue allows {limit}. Send fewer. Nothing was judged.",
            )
        room = self._samples
        self._forget_collected(lambda: not room.fits(caller, count))
        if not room.fits(caller, count):
            raise Refusal(
                429,
                "busy",
                f"Samples being judged: {self.pending}, waiting to be collected: {self._kept}, of them yours: "
                f"{room.held(caller)}; {count} more would pass [serve] max_queue = {limit} and your "
                f"share of it, {room.share(caller)}. Try again. Nothing was judged.",
                SOON,
            )

    def _add(self, count: int) -> None:
        self.pending += count
        if self.pending:
            self._idle.clear()
        else:
            self._idle.set()

    async def _submit(self, samples: Sequence[Sample], deadline: float | None, caller: str) -> Ticket:
        longest = self.referee.config.limits.deadline
        seconds = longest if deadline is None else min(deadline, longest)
        # Only the thread runtime, once it runs, takes a batch without blocking.
        if self._warm and len(samples) <= AT_ONCE and self.referee.config.runtime == "thread":
            return self.referee.submit(samples, seconds, caller=caller)
        ticket = await asyncio.to_thread(self.referee.submit, samples, seconds, caller=caller)
        self._warm = True
        return ticket

    async def _hold(
        self, samples: Sequence[Sample], deadline: float | None, caller: str, started: asyncio.Future[Held]
    ) -> None:
        """Carry a held ticket to its end. `started` gets it once it exists."""
        held: Held | None = None
        try:
            async with self.judging(samples, deadline, caller) as ticket:
                held = Held(secrets.token_urlsafe(16), caller, ticket)
                self._held[held.id] = held
                self._places.take(caller, 1)
                started.set_result(held)
                held.results = encode([result_of(reward) for reward in await self.rewards(ticket)])
        except Refusal as refusal:
            if held is None:
                raise
            held.refusal = refusal
        except Exception as error:
            if held is None:
                raise
            log.exception("a ticket could not be finished")
            held.refusal = Refusal(500, "internal", f"The results could not be kept ({type(error).__name__}).")
        finally:
            if held is not None:
                self._finish(held)

    def _finish(self, held: Held) -> None:
        held.ticket = None
        held.done.set()
        if held.id in self._held:
            self._kept += held.samples
            self._samples.take(held.caller, held.samples)
            loop = asyncio.get_running_loop()
            held.timer = clock.at(loop, loop.time() + self.config.ticket_seconds, lambda: self._forget(held))

    def _find(self, name: str) -> Held:
        held = self._held.get(name)
        if held is None:
            raise Refusal(
                404,
                "no_ticket",
                "There is no such ticket: it was deleted, or finished more than [serve] ticket_seconds = "
                f"{self.config.ticket_seconds:g} ago, or the service was started again. What was judged is cached: "
                "submit the samples again.",
            )
        return held

    def _forget(self, held: Held) -> None:
        if self._held.pop(held.id, None) is not None:
            self._places.give_back(held.caller, 1)
            if held.done.is_set():
                self._kept -= held.samples
                self._samples.give_back(held.caller, held.samples)
        if held.timer is not None:
            held.timer.cancel()  # else it would keep the results until it rings

    def _forget_collected(self, crowded: Callable[[], bool]) -> None:
        """While it is crowded, let go of finished tickets that were collected, the oldest first."""
        for held in [held for held in self._held.values() if held.collected]:
            if not crowded():
                return
            self._forget(held)

    def _told(self, error: RefereeError) -> Refusal:
        if isinstance(error, EndpointClosed):
            self._closed = error
        elif isinstance(error, UnscoredError):
            self.noticed(error.rewards or ())
        return refusal_of(error)
