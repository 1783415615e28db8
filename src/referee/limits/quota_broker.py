"""One limit shared by several engines: what each may use of it. Pure: `now` is an argument.

Every engine (a member) reports what it uses and wants, and is granted a share of the concurrency limit, a block of
requests and tokens, and a block of money. Shares never add up to more than the limit: what a member is to lose is given
to another only after the member's own report shows that it is free.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from msgspec import Struct

from referee.limits.bucket import Bucket
from referee.limits.budget import NANO
from referee.limits.limit import Limit, Outcome, Stamp

LEASE_S = 1.0
"""How long a block of requests or tokens may be used. The pools refill that much slower, so that no minute passes the
limit even if every block is used at its last moment."""
MEMBER_TIMEOUT_S = 10.0
"""How long a new broker waits for members of its predecessor, and the usual silence after which a member is dropped."""
MIN_SPARE = 4
"""A member's share exceeds its demand by at least this many, if there are any left."""
ROTATE_S = 1.0
"""How long the remainder of a division stays with the same members."""
MONEY_BLOCKS = 4
"""Blocks into which a member's even part of the remaining budget is divided: what a dead member holds is lost."""

OUTCOMES: tuple[Outcome, ...] = ("ok", "throttled", "overloaded", "ignored")


class Event(Struct, frozen=True, array_like=True, gc=False):
    """One finished request, for the limiter that learns from it."""

    ago: float
    """Seconds before the report."""
    outcome: int
    """Index into OUTCOMES."""
    stamp: int
    """The epoch it was sent in, from the grant then in force."""
    in_flight: int
    """The member's own requests in flight, this one excluded."""
    latency: float
    tokens_out: int


class Hints(Struct, frozen=True, array_like=True, gc=False):
    """The latest rate-limit headers: limit, what remains, seconds until it is full again."""

    limit: float | None = None
    remaining: float | None = None
    reset: float | None = None


class PaceReport(Struct, frozen=True, array_like=True, gc=False):
    """A member's use of requests, or tokens, per minute."""

    least: float = 0.0
    """What the next request needs. 0: nothing is waiting."""
    most: float = 0.0
    """What all waiting requests need."""
    returned: float = 0.0
    """Leased and no longer needed."""
    hints: Hints | None = None


class EndpointReport(Struct, frozen=True, array_like=True, gc=False):
    """What a member does at one endpoint."""

    share: int = 0
    """The share in force, which shows which grant has arrived."""
    in_flight: int = 0
    waiting: int = 0
    """Requests that could be sent if the share were larger."""
    pause: float = 0.0
    """Seconds of Retry-After."""
    requests: PaceReport = PaceReport()
    tokens: PaceReport = PaceReport()
    events: tuple[Event, ...] = ()
    """Requests finished since the last report, oldest first. Empty for a fixed limit."""


class MoneyReport(Struct, frozen=True, array_like=True, gc=False):
    """A member's use of the budget, in whole nano-dollars."""

    spent: int = 0
    """In total."""
    leased: int = 0
    """Everything taken out of the budget: spent, reserved for requests in flight, and free. More than was ever granted
    if requests cost more than was reserved: a debt is taken out too."""
    least: int = 0
    """What the next request needs beyond that. 0: nothing waits for money."""
    most: int = 0
    """What all waiting requests need."""


class Report(Struct, frozen=True, array_like=True, gc=False):
    """What one member sends. Each report follows the grant that answered the one before it."""

    endpoints: tuple[EndpointReport, ...]
    money: MoneyReport = MoneyReport()


class EndpointGrant(Struct, frozen=True, array_like=True, gc=False):
    """What a member may do at one endpoint until the next grant."""

    share: int | None = None
    """Requests in flight. None: not shared, the member keeps its own limiter."""
    limit: int = 0
    """The total limit, for records and for a member that loses its broker."""
    stamp: int = 0
    requests: float = 0.0
    tokens: float = 0.0
    """To be used within LEASE_S seconds, on top of what is left of earlier grants."""
    pause: float = 0.0
    """Seconds to send nothing: another member got a Retry-After."""


class Grant(Struct, frozen=True, array_like=True, gc=False):
    """The reply to a report."""

    endpoints: tuple[EndpointGrant, ...]
    money: int = 0
    """Nano-dollars, on top of earlier grants."""
    broke: bool = False
    """The budget is spent and nothing will come back: waiting for money is in vain."""
    recall: bool = False
    """Another member is short of money: return what is not needed at once."""
    spent: int = 0
    """Nano-dollars spent by all members, as far as reported."""


class Pool(Bucket):
    """A rate that is leased in blocks."""

    def __init__(self, per_minute: float | None) -> None:
        super().__init__(None if per_minute is None else per_minute * 60.0 / (60.0 + LEASE_S))

    def lease(self, wanted: PaceReport, part: float, now: float) -> float:
        """What is there, up to this part of it. A single large request passes when the pool is full."""
        if self.per_minute is None or wanted.least <= 0 or self.wait(wanted.least, now) > 0:
            return 0.0
        amount = max(wanted.least, min(wanted.most, self._at(now) * part))
        self.take(amount, now)
        return amount


class _Usage:
    """One member at one endpoint, as last reported and granted."""

    __slots__ = ("held", "in_flight", "requests", "tokens", "want")

    def __init__(self) -> None:
        self.held = 0
        self.in_flight = 0
        self.want = 0
        self.requests = 0.0
        self.tokens = 0.0


class _Member:
    __slots__ = ("last_report", "leased", "short", "spent", "usage")

    def __init__(self, endpoints: int, now: float) -> None:
        self.usage = [_Usage() for _ in range(endpoints)]
        self.last_report = now
        self.leased = 0
        self.spent = 0
        self.short = False


class SharedEndpoint:
    """What is shared at one endpoint: the limiter and both rates."""

    def __init__(self, limiter: Limit, rpm: float | None, tpm: float | None) -> None:
        self.limiter = limiter
        self.requests = Pool(rpm)
        self.tokens = Pool(tpm)
        self.paused_until = 0.0
        self.clock = 0.0


class Broker:
    """Runs the one limiter of each endpoint and divides it. Used from one thread; never waits."""

    def __init__(
        self,
        endpoints: Sequence[SharedEndpoint],
        budget_usd: float | None,
        expected: int = 0,
        forget: float = math.inf,
    ) -> None:
        """`expected`: members that may hold shares from an earlier broker. Until that many have reported, or
        MEMBER_TIMEOUT_S have passed, no share grows. `forget`: seconds of silence after which a member counts as gone,
        for callers that cannot detect it and call `leave`."""
        self.endpoints = tuple(endpoints)
        self._budget = None if budget_usd is None else int(budget_usd * NANO)
        self._gone: dict[str, int] = {}
        self._forget = forget
        self._members: dict[str, _Member] = {}
        self._expected = expected
        self._began: float | None = None
        self.over_share: set[str] = set()
        """Members that hold more than their target while others want it. The caller may ask them to report now, and
        then clears this; otherwise it only takes longer."""

    def leave(self, name: str) -> None:
        """A member is gone. Its share is free; its leased money counts as spent, because it may have been."""
        member = self._members.pop(name, None)
        self.over_share.discard(name)
        if member is not None:
            self._gone[name] = member.leased

    def exchange(self, name: str, report: Report, now: float) -> Grant:
        """Take a member's report and grant what it may use next."""
        self._drop_silent(name, now)
        self.over_share.discard(name)
        member = self._members.get(name)
        if member is None:
            member = self._members[name] = _Member(len(self.endpoints), now)
            # A member that was cut off, or whose broker is new, still holds what it reports.
            self._gone.pop(name, None)
        member.last_report = now
        grants = []
        for index, (endpoint, reported) in enumerate(zip(self.endpoints, report.endpoints, strict=True)):
            grants.append(self._grant(endpoint, member, index, reported, now))
        money, broke = self._grant_money(member, report.money, now)
        recall = any(other.short for other in self._members.values() if other is not member)
        return Grant(endpoints=tuple(grants), money=money, broke=broke, recall=recall, spent=self._spent())

    def _grant(
        self, endpoint: SharedEndpoint, member: _Member, index: int, reported: EndpointReport, now: float
    ) -> EndpointGrant:
        usage = member.usage[index]
        others = [other.usage[index] for other in self._members.values() if other is not member]
        self._learn(endpoint, reported, sum(other.in_flight for other in others), now)
        usage.in_flight = reported.in_flight
        usage.want = reported.in_flight + reported.waiting
        held = max(reported.share, reported.in_flight)
        limit = endpoint.limiter.limit
        free = limit - sum(other.held for other in others)
        target, over_share = held, list[str]()
        if self._complete(now):
            wants = [other.usage[index].want for other in self._members.values()]
            shares = divide(limit, wants, int(now / ROTATE_S))
            for (name, other), share in zip(self._members.items(), shares, strict=True):
                if other is member:
                    target = share
                elif share < other.usage[index].held:
                    over_share.append(name)
            if target <= free:
                over_share.clear()
        self.over_share.update(over_share)
        share = max(0, min(target, free))
        usage.held = max(held, share)
        if reported.pause > 0:
            endpoint.paused_until = max(endpoint.paused_until, now + reported.pause)
        usage.requests, usage.tokens = reported.requests.most, reported.tokens.most
        return EndpointGrant(
            share=share,
            limit=limit,
            stamp=int(endpoint.limiter.admit(now, usage.in_flight + sum(other.in_flight for other in others))),
            requests=_lease(endpoint.requests, reported.requests, sum(other.requests for other in others), now),
            tokens=_lease(endpoint.tokens, reported.tokens, sum(other.tokens for other in others), now),
            pause=max(0.0, endpoint.paused_until - now),
        )

    def _learn(self, endpoint: SharedEndpoint, reported: EndpointReport, elsewhere: int, now: float) -> None:
        """Feed the limiter with what happened, at the time it happened. Its clock never goes back."""
        for event in reported.events:
            endpoint.clock = max(endpoint.clock, now - event.ago)
            endpoint.limiter.release(
                Stamp(event.stamp),
                OUTCOMES[event.outcome],
                endpoint.clock,
                event.in_flight + elsewhere,
                event.latency,
                event.tokens_out,
            )

    def _grant_money(self, member: _Member, reported: MoneyReport, now: float) -> tuple[int, bool]:
        """What the member gets, and whether the budget is spent. What it holds is what it reports: a sum kept here
        would differ as soon as a request cost more than was reserved, or a grant was lost."""
        member.spent, member.leased = reported.spent, reported.leased
        if self._budget is None or not self._complete(now):
            return 0, False
        left = self._budget - sum(self._gone.values()) - sum(other.leased for other in self._members.values())
        member.short = reported.least > left
        if not reported.least:
            return 0, False
        if member.short:
            may_return = any(other.leased > other.spent for other in self._members.values())
            return 0, not may_return
        amount = max(reported.least, min(reported.most, left // (MONEY_BLOCKS * len(self._members))))
        member.leased += amount
        return amount, False

    def _spent(self) -> int:
        return sum(self._gone.values()) + sum(member.spent for member in self._members.values())

    def _complete(self, now: float) -> bool:
        """Whether every member of the earlier broker has reported, or had time to."""
        if self._began is None:
            self._began = now
        return len(self._members) >= self._expected or now - self._began > MEMBER_TIMEOUT_S

    def _drop_silent(self, reporting: str, now: float) -> None:
        silent = [name for name, member in self._members.items() if now - member.last_report > self._forget]
        for name in silent:
            if name != reporting:
                self.leave(name)

    def __repr__(self) -> str:
        shares = ", ".join(f"{name}: {[usage.held for usage in m.usage]}" for name, m in self._members.items())
        return f"Broker({[endpoint.limiter for endpoint in self.endpoints]}, {shares})"


def divide(limit: int, wants: Sequence[int], rotation: int = 0) -> list[int]:
    """Max-min fair division of a limit by demand. Of the surplus, members with demand get as much again; the rest stays
    free for new ones. A member without demand gets 1 if there is plenty: its first request need not ask.

    `rotation` says which member the remainder starts with. It changes with time, so a limit of 1 goes around.
    """
    count = len(wants)
    shares = [int(want <= 0 and limit >= 4 * count) for want in wants]
    left = limit - sum(shares)
    busy = [i for i in range(count) if wants[i] > 0]
    level = _fair_level(left, sorted(wants[i] for i in busy))
    for i in busy:
        shares[i] = min(wants[i], level)
    left = limit - sum(shares)
    for surplus in (False, True):  # first up to the demand, then beyond
        asking = [i for i in busy if surplus or shares[i] < wants[i]]
        asking.sort(key=lambda i: (i - rotation) % count)
        for at, i in enumerate(asking):
            extra = min(-(-left // (len(asking) - at)), max(MIN_SPARE, wants[i])) if surplus else min(left, 1)
            shares[i] += extra
            left -= extra
    return shares


def _fair_level(pool: int, wants: Sequence[int]) -> int:
    """The water-filling level: the most that every demand above it can get. `wants` ascend."""
    for at, want in enumerate(wants):
        even = pool // (len(wants) - at)
        if want > even:
            return even
        pool -= want
    return max(wants, default=0)


def fair_part(limit: int, members: int, rank: int) -> int:
    """A member's even part without a broker; all parts add up to the limit."""
    return limit // members + (rank < limit % members)


def _lease(pool: Pool, reported: PaceReport, elsewhere: float, now: float) -> float:
    if reported.returned:
        pool.take(-reported.returned, now)
    if reported.hints is not None:
        pool.observe(reported.hints.limit, reported.hints.remaining, reported.hints.reset, now)
    return pool.lease(reported, reported.most / max(reported.most + elsewhere, 1e-9), now)
