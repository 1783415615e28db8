"""Limiter, breaker, rate buckets and budget of an engine that shares its limits with other members. They hold what a
broker granted and collect what to report; `quota_client` exchanges both.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from referee.limits.adaptive import AdaptiveLimit
from referee.limits.breaker import Breaker
from referee.limits.bucket import Bucket
from referee.limits.budget import NANO, Budget
from referee.limits.limit import Limit, Outcome, Stamp
from referee.limits.quota_broker import LEASE_S, OUTCOMES, Event, Grant, Hints, MoneyReport, PaceReport

RECHECK_S = 0.1
"""Wait of a rate without a lease; a grant triggers the next try sooner."""


class SharedLimit:
    """A share of a limiter that the broker holds. Collects outcomes until the next report."""

    def __init__(self, own: Limit, poke: Callable[[], None], hurry: Callable[[], None], learns: bool) -> None:
        self.share = 0
        self.whole = own.limit
        """The limit that all members share, as of the last grant."""
        self.stamp = Stamp(0)
        self.events: list[tuple[float, Event]] = []
        self._poke = poke
        self._hurry = hurry
        self._learns = learns

    @property
    def limit(self) -> int:
        """How many may be in flight here. Reading a share of 0 asks for more."""
        if not self.share:
            self._poke()
        return self.share

    def admit(self, now: float, in_flight: int) -> Stamp:
        """A request is being sent; if it uses up the share, ask for more."""
        if in_flight >= self.share:
            self._poke()
        return self.stamp

    def release(
        self, stamp: Stamp, outcome: Outcome, now: float, in_flight: int, latency: float, tokens_out: int
    ) -> None:
        """A request ended: collected for the broker's limiter. A refusal is reported at once, and its place stays
        empty until the next grant: refusals come fast, and so would the next one in its place."""
        if not self._learns or outcome == "ignored":
            return
        place = OUTCOMES.index(outcome)
        self.events.append((now, Event(0.0, place, int(stamp), in_flight, latency, tokens_out)))
        if outcome == "throttled":
            self.share = max(0, min(self.share, in_flight))
            self._hurry()

    def caused_refusal(self, in_flight: int) -> bool:
        """Whether a refusal at this concurrency was caused by it: then the limit will come down."""
        return self._learns and in_flight >= AdaptiveLimit.SATURATED * self.share

    def is_stale(self, stamp: Stamp) -> bool:
        """Whether the limit was cut after that request was sent: its refusal is no news."""
        return self._learns and stamp < self.stamp

    def take_events(self, now: float) -> tuple[Event, ...]:
        """Outcomes since the last call, and how long ago."""
        events, self.events = self.events, []
        return tuple(Event(now - at, e.outcome, e.stamp, e.in_flight, e.latency, e.tokens_out) for at, e in events)

    def __repr__(self) -> str:
        return f"SharedLimit({self.share} of {self.whole})"


class SharedBreaker(Breaker):
    """Keeps the end of the pause that the server itself asked for: it holds for all members."""

    asked_until = -math.inf

    def on_throttled(
        self,
        now: float,
        chance: float,
        retry_after: float | None = None,
        latency: float = Breaker.PAUSE_MIN_S,
        over_limit: bool = False,
        stale: bool = False,
    ) -> None:
        """Refused: too many."""
        super().on_throttled(now, chance, retry_after, latency, over_limit, stale)
        if retry_after is not None and self.wait(now) > 0:
            self.asked_until = max(self.asked_until, now + min(retry_after, self.RETRY_AFTER_MAX_S))


class SharedPace(Bucket):
    """A rate leased in blocks. Without a broker it is an ordinary bucket with an even part of the rate."""

    def __init__(self, per_minute: float | None, part: float, poke: Callable[[], None]) -> None:
        super().__init__(None if per_minute is None else per_minute * part)
        self._leased = per_minute is not None
        self._poke = poke
        self._have = 0.0
        self._until = 0.0
        self._unit = 1.0
        self._hints: Hints | None = None
        self.alone = False

    def wait(self, amount: float, now: float) -> float:
        """0, or the seconds until the next try; a grant triggers one sooner."""
        if self.alone or not self._leased:
            return super().wait(amount, now)
        blocked = max(0.0, self._blocked_until - now)
        if now > self._until:
            self._have = min(0.0, self._have)
        self._unit = amount
        if amount <= self._have + 1e-6:
            return blocked
        self._poke()
        return max(blocked, RECHECK_S)

    def take(self, amount: float, now: float) -> None:
        """This amount is sent."""
        super().take(amount, now)
        self._have -= amount

    def settle(self, estimated: float, actual: float, now: float) -> None:
        """Replace an estimate by what was used."""
        super().settle(estimated, actual, now)
        self._have += estimated - actual

    def observe(self, limit: float | None, remaining: float | None, reset: float | None, now: float) -> None:
        """Limits from the server's headers hold here at once, and for other members with the next report."""
        super().observe(None, remaining, reset, now)
        if self._leased and (limit is not None or remaining is not None):
            self._hints = Hints(limit, remaining, reset)

    def report(self, waiting: int, now: float) -> PaceReport:
        """What the queued requests need, and what is returned."""
        if not self._leased:
            return PaceReport()
        hints, self._hints = self._hints, None
        expired = now > self._until
        returned = 0.0
        if not waiting or expired:
            returned, self._have = max(0.0, self._have), min(0.0, self._have)
        if not waiting:
            returned, self._have = returned + self._have, 0.0  # a debt is settled by the pool
            return PaceReport(returned=returned, hints=hints)
        most = self._unit * waiting - self._have
        least = self._unit - min(0.0, self._have) if most > 0 else 0.0
        return PaceReport(least=least, most=max(least, most), returned=returned, hints=hints)

    def grant(self, amount: float, now: float) -> None:
        """More to use, until the lease ends."""
        if amount > 0:
            self._have += amount
            self._until = now + LEASE_S


class SharedBudget(Budget):
    """Money leased in blocks. The limits of all members together never exceed the budget; what a member has used beyond
    its own limit is leased with its next report, and is subtracted before the rest is divided."""

    def __init__(self, limit_usd: float | None, poke: Callable[[], None]) -> None:
        super().__init__(limit_usd)
        self._shared = limit_usd is not None
        self._poke = poke
        self._short = 0
        self._told = 0
        self._recalled = False
        self._all_spent = 0
        self.broke = False
        if self._shared:
            self._limit = 0

    @property
    def waiting(self) -> bool:
        """True if money may still be granted: a refusal to reserve is not final."""
        return self._shared and not self.broke

    @property
    def total_spent(self) -> float:
        """US dollars spent by all members together, as of the last grant."""
        return max(self._spent, self._all_spent) / NANO

    def reserve(self, worst_usd: float) -> bool:
        """Set aside the most a request can cost, out of what is leased."""
        if super().reserve(worst_usd):
            self._short = 0
            return True
        self._short = max(1, -int(-worst_usd * NANO // 1))
        self._poke()
        return False

    def report(self, waiting: int) -> MoneyReport:
        """What is spent, held and needed. A member that is short, or has nothing to send, returns the rest."""
        if not self._shared or self._limit is None:
            return MoneyReport()
        self.broke = False
        short = self._short if waiting else 0
        used = self._spent + self._reserved
        if short or not waiting or self._recalled:
            self._limit = min(self._limit, used)
        self._told = max(self._limit, used)
        return MoneyReport(self._spent, self._told, short, short * (waiting + 1))

    def grant(self, given: Grant) -> None:
        """More to spend, or that nothing is left."""
        if given.money and self._shared:
            self._limit = self._told + given.money
        self._recalled = given.recall
        self._all_spent = given.spent
        if given.money:
            self._short = 0
        self.broke = given.broke
