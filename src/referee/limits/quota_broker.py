"""One limit for several engines: who may have how much of it. Pure: `now` is an argument.

Every engine (a member) reports what it uses and wants, and is granted a share of the concurrency limit, a block of
requests and tokens, and a block of money. Shares never add up to more than the limit: what one member is to lose is
given to another only after its own report shows that it is gone.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from msgspec import Struct

from referee.limits.bucket import Bucket
from referee.limits.budget import NANO
from referee.limits.limit import Limit, Outcome, Stamp

LEASE = 1.0
"""Seconds a block of requests or tokens may be used. The pools refill that much slower, so that no minute passes the
limit even if every block is used at its last moment."""
SILENT = 10.0
"""Seconds a new broker waits for members of the one before it, and a good time to forget a silent member."""
AHEAD = 4
"""Beyond what it wants now, a member gets at least this many, if there are any."""
TURN = 1.0
"""Seconds after which the odd ones of a share pass to the next member."""
BLOCK = 4
"""A block of money is at most this part of an even split of what is left: money in a dead member's hands is lost."""

OUTCOMES: tuple[Outcome, ...] = ("ok", "throttled", "overloaded", "ignored")


class Event(Struct, frozen=True, array_like=True, gc=False):
    """One request that is over, for the limiter that learns from it."""

    ago: float
    """Seconds before the report."""
    outcome: int
    """Place in OUTCOMES."""
    stamp: int
    """The epoch it was sent in, from the grant then in force."""
    in_flight: int
    """The member's own requests in flight, this one no longer counted."""
    latency: float
    tokens_out: int


class Hints(Struct, frozen=True, array_like=True, gc=False):
    """What the server's headers last said of a pace: its limit, what remains, seconds until it is full again."""

    limit: float | None = None
    remaining: float | None = None
    reset: float | None = None


class PaceReport(Struct, frozen=True, array_like=True, gc=False):
    """A member's use of requests, or tokens, per minute."""

    least: float = 0.0
    """What the next request needs. 0: nothing is waiting."""
    most: float = 0.0
    """What everything that waits needs."""
    returned: float = 0.0
    """Leased and not needed any more."""
    hints: Hints | None = None


class EndpointReport(Struct, frozen=True, array_like=True, gc=False):
    """What a member does at one endpoint."""

    share: int = 0
    """The share it goes by now, which says which grant it has seen."""
    in_flight: int = 0
    waiting: int = 0
    """Requests that could be sent if the share were larger."""
    pause: float = 0.0
    """Seconds the server asked to be left alone."""
    requests: PaceReport = PaceReport()
    tokens: PaceReport = PaceReport()
    events: tuple[Event, ...] = ()
    """What was over since the last report, oldest first. Empty where the limit is a fixed number."""


class MoneyReport(Struct, frozen=True, array_like=True, gc=False):
    """A member's use of the budget, in whole nano-dollars."""

    spent: int = 0
    """In total."""
    leased: int = 0
    """Everything that counts as taken out of the budget: spent, reserved for requests in flight, and still free. More
    than was ever granted if requests cost more than was foreseen: a debt is taken out too."""
    least: int = 0
    """What the next request needs beyond that. 0: nothing waits for money."""
    most: int = 0
    """What everything that waits needs."""


class Report(Struct, frozen=True, array_like=True, gc=False):
    """What one member says. Each report follows the grant that answered the one before it."""

    endpoints: tuple[EndpointReport, ...]
    money: MoneyReport = MoneyReport()


class EndpointGrant(Struct, frozen=True, array_like=True, gc=False):
    """What a member may do at one endpoint until the next grant."""

    share: int | None = None
    """Requests in flight. None: this is not shared, the member keeps its own limiter."""
    limit: int = 0
    """The whole limit, for records and for a member that loses its broker."""
    stamp: int = 0
    requests: float = 0.0
    tokens: float = 0.0
    """To be used within LEASE seconds, on top of what is left of earlier ones."""
    pause: float = 0.0
    """Seconds to send nothing: another member was told so."""


class Grant(Struct, frozen=True, array_like=True, gc=False):
    """The answer to a report."""

    endpoints: tuple[EndpointGrant, ...]
    money: int = 0
    """Nano-dollars, on top of what was granted before."""
    broke: bool = False
    """The budget is spent and nothing will come back: what waits for money waits in vain."""
    recall: bool = False
    """Somebody is short of money: return what is not needed at once."""
    spent: int = 0
    """Nano-dollars that all members together have spent, as far as they have reported."""


class Pool(Bucket):
    """A pace that is handed out in blocks."""

    def __init__(self, per_minute: float | None) -> None:
        super().__init__(None if per_minute is None else per_minute * 60.0 / (60.0 + LEASE))

    def lease(self, wanted: PaceReport, part: float, now: float) -> float:
        """As much as there is, up to this member's part of it. A single large request passes when the pool is full."""
        if self.per_minute is None or wanted.least <= 0 or self.wait(wanted.least, now) > 0:
            return 0.0
        amount = max(wanted.least, min(wanted.most, self._at(now) * part))
        self.take(amount, now)
        return amount


class _Seat:
    """One member at one endpoint."""

    __slots__ = ("held", "in_flight", "requests", "tokens", "want")

    def __init__(self) -> None:
        self.held = 0
        self.in_flight = 0
        self.want = 0
        self.requests = 0.0
        self.tokens = 0.0


class _Member:
    __slots__ = ("leased", "seats", "seen", "short", "spent")

    def __init__(self, endpoints: int, now: float) -> None:
        self.seats = [_Seat() for _ in range(endpoints)]
        self.seen = now
        self.leased = 0
        self.spent = 0
        self.short = False


class SharedEndpoint:
    """What is shared at one endpoint: the limiter and the two paces."""

    def __init__(self, limiter: Limit, rpm: float | None, tpm: float | None) -> None:
        self.limiter = limiter
        self.requests = Pool(rpm)
        self.tokens = Pool(tpm)
        self.paused_until = 0.0
        self.clock = 0.0


class Broker:
    """Runs the one limiter of each endpoint and divides it. Used from one thread; answers at once."""

    def __init__(
        self,
        endpoints: Sequence[SharedEndpoint],
        budget_usd: float | None,
        expected: int = 0,
        forget: float = math.inf,
    ) -> None:
        """`expected`: members that may already hold shares from a broker before this one. Until that many have
        reported, or SILENT seconds have passed, everybody keeps what he has and nobody gets more. `forget`: seconds
        without a report after which a member counts as gone, where nobody would call `leave`."""
        self.endpoints = tuple(endpoints)
        self._budget = None if budget_usd is None else int(budget_usd * NANO)
        self._gone: dict[str, int] = {}
        self._forget = forget
        self._members: dict[str, _Member] = {}
        self._expected = expected
        self._began: float | None = None
        self.owing: set[str] = set()
        """Members who hold more than their part while others want it: a report of theirs would help. Whoever can tell
        them does, and clears this; if nobody does, it only takes longer."""

    @property
    def members(self) -> tuple[str, ...]:
        """Who shares now."""
        return tuple(self._members)

    @property
    def spent_usd(self) -> float:
        """Spent so far by everybody, with everything that dead members had leased."""
        return (sum(self._gone.values()) + sum(member.spent for member in self._members.values())) / NANO

    def leave(self, name: str) -> None:
        """A member is gone. Its share is free; the money it had leased counts as spent, because nobody knows."""
        member = self._members.pop(name, None)
        self.owing.discard(name)
        if member is not None:
            self._gone[name] = member.leased

    def exchange(self, name: str, report: Report, now: float) -> Grant:
        """Take a member's report and say what it may do next."""
        self._forget_silent(name, now)
        self.owing.discard(name)
        member = self._members.get(name)
        if member is None:
            member = self._members[name] = _Member(len(self.endpoints), now)
            # A member that was cut off, or whose broker is new, brings along what it holds.
            self._gone.pop(name, None)
        member.seen = now
        grants = []
        for place, (endpoint, told) in enumerate(zip(self.endpoints, report.endpoints, strict=True)):
            grants.append(self._at(endpoint, member, place, told, now))
        money, broke = self._money(member, report.money, now)
        recall = any(other.short for other in self._members.values() if other is not member)
        spent = sum(self._gone.values()) + sum(other.spent for other in self._members.values())
        return Grant(endpoints=tuple(grants), money=money, broke=broke, recall=recall, spent=spent)

    def _at(
        self, endpoint: SharedEndpoint, member: _Member, place: int, told: EndpointReport, now: float
    ) -> EndpointGrant:
        seat = member.seats[place]
        others = [other.seats[place] for other in self._members.values() if other is not member]
        self._learn(endpoint, told, sum(other.in_flight for other in others), now)
        seat.in_flight = told.in_flight
        seat.want = told.in_flight + told.waiting
        held = max(told.share, told.in_flight)
        limit = endpoint.limiter.limit
        free = limit - sum(other.held for other in others)
        wanted, owing = held, list[str]()
        if self._settled(now):
            wants = [other.seats[place].want for other in self._members.values()]
            for (name, other), target in zip(self._members.items(), divide(limit, wants, int(now / TURN)), strict=True):
                if other is member:
                    wanted = target
                elif target < other.seats[place].held:
                    owing.append(name)
            if wanted <= free:
                owing.clear()
        self.owing.update(owing)
        share = max(0, min(wanted, free))
        seat.held = max(held, share)
        if told.pause > 0:
            endpoint.paused_until = max(endpoint.paused_until, now + told.pause)
        seat.requests, seat.tokens = told.requests.most, told.tokens.most
        return EndpointGrant(
            share=share,
            limit=limit,
            stamp=int(endpoint.limiter.admit(now, seat.in_flight + sum(other.in_flight for other in others))),
            requests=_lease(endpoint.requests, told.requests, sum(other.requests for other in others), now),
            tokens=_lease(endpoint.tokens, told.tokens, sum(other.tokens for other in others), now),
            pause=max(0.0, endpoint.paused_until - now),
        )

    def _learn(self, endpoint: SharedEndpoint, told: EndpointReport, elsewhere: int, now: float) -> None:
        """Tell the limiter what happened, at the time it happened. Its clock never goes back."""
        for event in told.events:
            endpoint.clock = max(endpoint.clock, now - event.ago)
            endpoint.limiter.release(
                Stamp(event.stamp),
                OUTCOMES[event.outcome],
                endpoint.clock,
                event.in_flight + elsewhere,
                event.latency,
                event.tokens_out,
            )

    def _money(self, member: _Member, told: MoneyReport, now: float) -> tuple[int, bool]:
        """What the member gets, and whether the budget is spent. What it holds is what it says: a sum kept here beside
        it would differ as soon as a request cost more than was reserved, or a grant was lost on its way."""
        member.spent, member.leased = told.spent, told.leased
        if self._budget is None or not self._settled(now):
            return 0, False
        left = self._budget - sum(self._gone.values()) - sum(other.leased for other in self._members.values())
        member.short = told.least > left
        if not told.least:
            return 0, False
        if told.least > left:
            out = any(other.leased > other.spent for other in self._members.values())
            return 0, not out
        amount = max(told.least, min(told.most, left // (BLOCK * max(1, len(self._members)))))
        member.leased += amount
        return amount, False

    def _settled(self, now: float) -> bool:
        if self._began is None:
            self._began = now
        return len(self._members) >= self._expected or now - self._began > SILENT

    def _forget_silent(self, name: str, now: float) -> None:
        for other in [key for key, found in self._members.items() if now - found.seen > self._forget and key != name]:
            self.leave(other)

    def __repr__(self) -> str:
        shares = ", ".join(f"{n}: {[seat.held for seat in m.seats]}" for n, m in self._members.items())
        return f"Broker({[endpoint.limiter for endpoint in self.endpoints]}, {shares})"


def divide(limit: int, wants: Sequence[int], turn: int = 0) -> list[int]:
    """Split a limit by demand: nobody gets more than others while somebody wants it. Of what is left over, those who
    want something get as much again; the rest stays free for who comes next. Who wants nothing gets 1 if there is
    plenty: his first request need not ask.

    `turn` says with whom the odd ones begin. It changes with time: a limit of 1 goes around.
    """
    count = len(wants)
    shares = [int(want <= 0 and limit >= 4 * count) for want in wants]
    left = limit - sum(shares)
    busy = [place for place in range(count) if wants[place] > 0]
    level = _level(left, sorted(wants[place] for place in busy))
    for place in busy:
        shares[place] = min(wants[place], level)
    left = limit - sum(shares)
    for more in (False, True):  # first up to what they want, then beyond
        asking = [place for place in busy if more or shares[place] < wants[place]]
        asking.sort(key=lambda place: (place - turn) % count)
        for at, place in enumerate(asking):
            extra = min(-(-left // (len(asking) - at)), max(AHEAD, wants[place])) if more else min(left, 1)
            shares[place] += extra
            left -= extra
    return shares


def _level(pool: int, wants: Sequence[int]) -> int:
    """The most that can be given to each who wants that much. `wants` ascend."""
    for at, want in enumerate(wants):
        even = pool // (len(wants) - at)
        if want > even:
            return even
        pool -= want
    return max(wants, default=0)


def fair_part(limit: int, members: int, rank: int) -> int:
    """What a member without a broker may have: an even part, so that all parts together are the limit."""
    return limit // members + (rank < limit % members)


def _lease(pool: Pool, told: PaceReport, elsewhere: float, now: float) -> float:
    if told.returned:
        pool.take(-told.returned, now)
    if told.hints is not None:
        pool.observe(told.hints.limit, told.hints.remaining, told.hints.reset, now)
    return pool.lease(told, told.most / max(told.most + elsewhere, 1e-9), now)
