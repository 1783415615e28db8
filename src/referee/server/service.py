"""A Referee for many callers: what is let in, tickets to collect later, health, and an orderly end.

Lives on the server's event loop. Knows nothing of HTTP but the refusals it raises.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Mapping, Sequence

from referee import clock
from referee.config import Secret
from referee.errors import EndpointClosed, RefereeError, UnscoredError
from referee.records import Reason, Reward, Sample
from referee.referee import Referee
from referee.server.access import note
from referee.server.refusals import LATER, SOON, Refusal, refusal_of
from referee.server.reload import Referees
from referee.server.schemas import Health
from referee.server.shares import Shares
from referee.server.teams import OPERATOR, Teams, of_team, unpaid
from referee.server.tickets import Tickets
from referee.server.tokens import Caller, Tokens
from referee.ticket import Ticket
from referee.version import VERSION

log = logging.getLogger("referee.server")

CANCEL_GRACE_S = 2.0
"""Seconds cancelled work has to hand in its ends before the process goes."""
AT_ONCE = 1024
"""Samples whose submission is quick enough for the event loop; more of them are checked in a thread."""


class Service:
    """Admission, tickets and health around one Referee. Does not own the Referee: its maker closes it."""

    def __init__(self, referee: Referee, tokens: Tokens) -> None:
        self.referees = Referees(referee)
        self.tokens = tokens
        self.config = referee.config.serve
        self.teams = Teams(referee)
        self.draining = self.stopped = False
        """No new work is taken; and what is under way was cancelled."""
        self.pending = 0
        """Samples accepted and not final."""
        self.answers: dict[tuple[str, int], int] = {}
        """Answers given so far, by route and status."""
        self.room = Shares(self.config.max_queue)
        """Samples being judged, or waiting to be collected."""
        self.tickets = Tickets(self, referee.config)
        self._closed: dict[str, EndpointClosed] = {}
        """By team: they may use different judges."""
        self._active: dict[Ticket, Referee] = {}
        self._idle = asyncio.Event()
        self._idle.set()
        self._warm = False

    @property
    def referee(self) -> Referee:
        """The one that takes new work."""
        return self.referees.current

    def renew(self, referee: Referee, tokens: Mapping[str, Secret] | None = None) -> None:
        """New work goes to another Referee, under its configuration; what is under way ends where it is. `tokens`: of
        its teams; None: those there are."""
        self.teams = Teams(referee, self.teams)  # first, because it finds mistakes
        self.config = referee.config.serve
        self.tokens.renew(referee.config, self.tokens.teams if tokens is None else tokens)
        self.room.limit = self.config.max_queue
        self.tickets.renew(referee.config)
        self._closed, self._warm = {}, True
        self.referees.renew(referee)

    @property
    def closed(self) -> EndpointClosed | None:
        """Why no judge can answer, if so: to anybody, or to each of the teams."""
        teams = [self._closed.get(team.name) for team in self.referee.config.team]
        return self._closed.get("") or (teams[0] if teams and all(teams) else None)

    @contextlib.asynccontextmanager
    async def judging(
        self, samples: Sequence[Sample], deadline: float | None = None, caller: Caller = OPERATOR
    ) -> AsyncIterator[Ticket]:
        """Let a batch in and hold its place until the block ends; work that is not done by then is cancelled."""
        count = len(samples)
        note(samples=count)
        hacked = self.referee.auditor.hacked() if self.referee.auditor is not None else None
        if hacked is not None:  # nothing is spent on what would not be handed out
            raise refusal_of(hacked)
        self._make_room(count, caller)
        self.room.take(caller.share, count)
        self._add(count)
        ticket: Ticket | None = None
        with self.referees.working() as referee:
            try:
                ticket = await self._submit(referee, samples, deadline, caller)
                self._active[ticket] = referee
                yield ticket
            except RefereeError as error:
                raise self._told(error, referee, caller) from error
            finally:
                self.room.give_back(caller.share, count)
                self._add(-count)
                if ticket is not None:
                    self._active.pop(ticket, None)
                    ticket.cancel()

    async def rewards(self, ticket: Ticket, caller: Caller = OPERATOR, whole: bool = False) -> list[Reward]:
        """All rewards of a batch, in order. Where the team's budget left samples without verdicts they are refused: if
        there is no verdict, or with `whole` if one is missing."""
        rewards = await ticket
        self.noticed(ticket, rewards, caller)
        if whole or not any(reward.scored for reward in rewards):
            self.teams.refuse_spent(caller, rewards)
        return rewards

    def noticed(self, ticket: Ticket, rewards: Sequence[Reward | None], caller: Caller = OPERATOR) -> None:
        """Whether a judge can answer, from what came back: a call that was made, or a budget that is spent."""
        self._notice(self._active.get(ticket), rewards, caller)

    def _notice(self, referee: Referee | None, rewards: Sequence[Reward | None], caller: Caller) -> None:
        if referee is not self.referee:
            return  # work under an older configuration says nothing about this one
        given = [reward for reward in rewards if reward is not None]
        if self._closed and any(reward.settled.origin == "call" for reward in given):
            self._closed.pop("", None)
            self._closed.pop(caller.team, None)
        for reward in given:
            verdict = reward.verdict
            if not self._closed and unpaid(verdict) and not of_team(verdict.detail, caller.team):
                closed = self._closed[""] = EndpointClosed(verdict.detail, reason=Reason.BUDGET)
                log.warning("%s. Requests are answered from the cache only until a restart or SIGHUP.", closed)

    def health(self, caller: Caller | None) -> Health:
        """Body of /healthz and /readyz. None: a caller without the token is not told where the judge is, or of
        teams."""
        state, why, spent = "ok", "", self.teams.spent()
        if self.draining:
            state, why = "draining", "no new work is taken; the process is about to end."
        elif (closed := self.closed) is not None:
            state = "budget" if closed.reason is Reason.BUDGET else "closed"
            told = caller is not None and not caller.team
            why = str(closed) if told else f"no judge can answer ({closed.reason})."
        elif self._all_teams_spent:
            state, why = "budget", "every team has spent its budget of this day or month (UTC)."
        mine = [name for name in spent if caller is not None and caller.team in ("", name)]
        return Health(status=state, why=why, version=VERSION, queued=self.pending, spent_teams=mine)

    @property
    def ready(self) -> bool:
        """New work is taken and a judge can answer, somebody at least."""
        return self.health(None).status == "ok"

    @property
    def _all_teams_spent(self) -> bool:
        """Every team has spent its budget, and there is no operator."""
        return bool(self.teams.names) and not self.tokens.of_operator and self.teams.spent() == self.teams.names

    async def drain(self, seconds: float) -> None:
        """Take no new work and finish what was accepted within `seconds`; then cancel the rest. Results that only this
        process has may be collected in that time."""
        self.draining = True
        until = clock.now() + seconds
        if not await self._idle_within(seconds):
            log.warning("not judged within %g s of draining, so cancelled: %d", seconds, self.pending)
            self.stop()
            await self._idle_within(CANCEL_GRACE_S)
        await self.tickets.leave(until)

    def stop(self) -> None:
        """Cancel everything under way; it ends as unscored (cancelled)."""
        self.draining = self.stopped = True
        for ticket in list(self._active):
            ticket.cancel()

    async def _idle_within(self, seconds: float) -> bool:
        try:
            await clock.within(self._idle.wait(), seconds)
        except TimeoutError:
            return False
        return True

    def _make_room(self, count: int, caller: Caller) -> None:
        if self.draining:
            raise Refusal(503, "draining", "The service is about to end and takes no new work. Try again.", LATER)
        limit = self.config.max_queue
        if count > limit:
            raise Refusal(
                413,
                "too_many_samples",
                f"{count} samples in one request; [serve] max_queue allows {limit}. Send fewer. Nothing was judged.",
            )
        self.teams.check(caller)
        room, share = self.room, caller.share
        self.tickets.forget_collected(lambda: not room.fits(share, count))
        if not room.fits(share, count):
            self.teams.refused[caller.team, "full"] += 1
            raise Refusal(
                429,
                "busy",
                f"Samples being judged: {self.pending}, waiting to be collected: {self.tickets.kept}, of them yours: "
                f"{room.held(share)}; {count} more would pass [serve] max_queue = {limit} and your "
                f"share of it, {room.share(share)}. Try again. Nothing was judged.",
                SOON,
            )

    def _add(self, count: int) -> None:
        self.pending += count
        if self.pending:
            self._idle.clear()
        else:
            self._idle.set()

    async def _submit(
        self, referee: Referee, samples: Sequence[Sample], deadline: float | None, caller: Caller
    ) -> Ticket:
        longest = referee.config.limits.deadline
        seconds = longest if deadline is None else min(deadline, longest)
        # Only the thread runtime, once it runs, takes a batch without blocking.
        if self._warm and len(samples) <= AT_ONCE and referee.config.runtime == "thread":
            return referee.submit(samples, seconds, **caller.submitted())
        ticket = await asyncio.to_thread(referee.submit, samples, seconds, **caller.submitted())
        self._warm = True
        return ticket

    def _told(self, error: RefereeError, referee: Referee, caller: Caller) -> Refusal:
        if isinstance(error, EndpointClosed) and referee is self.referee:
            self._closed[caller.team] = error
        elif isinstance(error, UnscoredError):
            rewards = [reward for reward in error.rewards or () if reward is not None]
            self._notice(referee, rewards, caller)
            self.teams.refuse_spent(caller, rewards)
        return refusal_of(error)
