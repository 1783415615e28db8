"""What a team may spend and send: its rate, and its money by UTC day and calendar month.

Money is leased from sums that are kept outside this process, before it is spent: a process that is killed has spent no
more than those sums say. A request is charged to the periods in which it was sent, however late its answer comes.
"""

from __future__ import annotations

import calendar
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from referee.config import TeamConfig
from referee.limits.bucket import Bucket
from referee.limits.budget import NANO, Budget, nano

SHARE = 100
"""A lease is one part in this many of the limit, so that refilling it costs little."""
AHEAD = 32
"""Or, where that is more, as much as this many requests can cost: they may go at once."""
LEAVE = 4
"""A grant leaves this part of what is free, if it can: near its end a limit is divided finely among members."""
REMEMBERED = 64
"""Days and months that are not forgotten when they have ended: a clock that is set back makes one the present again."""
ALIVE_S = 10.0
"""A member that has not reported for this long is gone, and what it held counts as spent."""


class Period(NamedTuple):
    """A day or a month, UTC."""

    kind: str
    """day or month."""
    name: str
    """2026-11-18 or 2026-11: what its sums are kept under."""
    ends: float
    """Wall time."""


def periods(wall: float) -> tuple[Period, Period]:
    """The day and the month of a moment."""
    at = datetime.fromtimestamp(wall, UTC)
    midnight = calendar.timegm((at.year, at.month, at.day, 0, 0, 0))
    following = (at.year + at.month // 12, at.month % 12 + 1, 1, 0, 0, 0)
    return (
        Period("day", f"{at:%Y-%m-%d}", float(midnight + 86400)),
        Period("month", f"{at:%Y-%m}", float(calendar.timegm(following))),
    )


class Claim(Struct, frozen=True):
    """What a member tells of one team's money in one period. Sums are its own, in nano-dollars, and not differences:
    told twice they count once."""

    team: str
    period: str
    limit: int | None
    spent: int = 0
    held: int = 0
    """Leased so far, what is spent included: counts as spent should this member never report again."""
    least: int = 0
    """More that is needed; 0: none. What is granted is from `least` to `most`, or nothing."""
    most: int = 0
    follows: bool = False
    """What is granted to the claim before it is held here too: a month without a limit holds what its day does, so that
    after a kill no month is said to have spent less than its day."""


class Row(NamedTuple):
    """The latest that one member told."""

    spent: int
    held: int
    alive: bool


class ClaimResult(NamedTuple):
    """The answer to a claim."""

    granted: int
    others: int
    """What all other members have spent."""
    final: bool = False
    """Nothing is left, and nobody holds any that may come back."""
    free: int = 0
    """What is left."""


def grant(claim: Claim, others: Mapping[str, Row]) -> ClaimResult:
    """Decide a claim, by what the other members have told. `redis_spend` does the same in Lua."""
    held, spent = sum(row.held for row in others.values()), sum(_spent(row) for row in others.values())
    if claim.limit is None:
        return ClaimResult(0, spent)
    free = max(0, claim.limit - held - claim.held)
    if free < claim.least:
        return ClaimResult(0, spent, not any(row.alive and row.held > row.spent for row in others.values()), free)
    granted = min(free, claim.most, max(claim.least, free // LEAVE)) if claim.least else 0
    return ClaimResult(granted, spent, free=free - granted)


def _spent(row: Row) -> int:
    return row.spent if row.alive else row.held


class PeriodBudget(Budget):
    """One team's money in one period, as far as it is leased here. Without a limit it is only counted."""

    def __init__(self, period: Period, limit_usd: float | None) -> None:
        super().__init__(limit_usd)
        self.period = period
        self.refused = False
        """The last request found no room, and no more will come."""
        self._whole, self._limit = self._limit, None if self._limit is None else 0
        self._worst = self._short = 0
        self._others = self._left = 0
        self._told: tuple[int, int] | None = None

    @property
    def total_spent(self) -> float:
        """US dollars spent by all members, as of the last answer."""
        return (self._spent + self._others) / NANO

    @property
    def free(self) -> bool:
        """Whether something may be spent without asking."""
        return self._limit is None or self._limit > self.used

    @property
    def used(self) -> int:
        """Nano-dollars spent here, or reserved for what is in flight."""
        return self._spent + self._reserved

    @property
    def settled(self) -> bool:
        """Nothing in flight, and all told."""
        return not self._reserved and self._told == (self._spent, self._spent)

    def reserve(self, worst_usd: float) -> bool:
        """Reserve the most a request can cost. False: it needs more than is leased."""
        self._worst = nano(worst_usd)
        if super().reserve(worst_usd):
            self._short, self.refused = 0, False
            return True
        self._short = max(1, self._worst)
        self.refused = self.refused and self._lacks
        return False

    @property
    def wanting(self) -> bool:
        """A request is held back until more is leased."""
        return self._short > 0 and not self.refused

    @property
    def low(self) -> bool:
        """More should be leased before it is needed."""
        return self._limit is not None and 2 * (self._limit - self.used) < self._ahead

    @property
    def _lacks(self) -> bool:
        """Whether there is too little for the last request, here and in the kept sums together."""
        here = 0 if self._limit is None else self._limit - self.used
        return self._short > max(0, here) + self._left

    @property
    def _ahead(self) -> int:
        return max((self._whole or 0) // SHARE, AHEAD * self._worst)

    def claim(self, team: str, busy: bool) -> Claim:
        """What to tell. What is not needed is given back with it, and may not be spent from now on. `busy`: more
        requests are about to be sent."""
        used = self.used
        if self._limit is None:
            return Claim(team, self.period.name, None, self._spent, used)
        ahead = self._ahead if busy else 0
        # What is too little for a request goes back: two members that each keep half of one would wait for each other.
        self._limit = used if self._short else max(used, min(self._limit, used + ahead))
        free = self._limit - used
        least = max(1, self._short) if busy and 2 * free < ahead else 0
        return Claim(team, self.period.name, self._whole, self._spent, self._limit, least, max(least, ahead - free))

    def answer(self, claim: Claim, given: ClaimResult, beside: int = 0) -> None:
        """The sums have recorded a claim and answered it. `beside`: what was granted to the claim that it follows."""
        self._told = claim.spent, claim.held + given.granted + beside
        self._others = given.others
        if self._limit is not None:
            self._limit += given.granted
        self._left = given.free
        self.refused = self._lacks and (given.final if claim.least else self.refused)
        if given.granted:
            self._short = 0

    def untold(self, claim: Claim) -> bool:
        """Whether a claim says or asks anything new."""
        return bool(claim.least) or self._told != (claim.spent, claim.held)

    def no_room(self, worst_usd: float) -> str:
        """Why a request is not sent."""
        return (
            f"budget_usd_{self.period.kind} = {self.limit_usd:g} has no room for another request: "
            f"{self.total_spent:.6g} is spent in {self.period.name} (UTC), and one more could cost up to "
            f"{worst_usd:.2g}, by judge.max_tokens and the length of its prompt"
        )


class Account:
    """One team. Used from one loop; others may look."""

    def __init__(self, team: TeamConfig) -> None:
        self.team = team
        self.requests = Bucket(team.rpm)
        self.sent = 0
        """Requests sent for it."""
        self.in_flight = 0
        self.may_reserve = True
        """The last request had room."""
        self.needs_lease = False
        """More should be leased."""
        self._budgets: dict[str, PeriodBudget] = {}

    def budgets(self, wall: float) -> tuple[PeriodBudget, PeriodBudget]:
        """Its money of this day and of this month."""
        day, month = periods(wall)
        return self._budget(day, self.team.budget_usd_day), self._budget(month, self.team.budget_usd_month)

    def open_budgets(self, wall: float) -> Iterable[PeriodBudget]:
        """Those, and others that are not settled."""
        current = self.budgets(wall)
        found = [budget for budget in list(self._budgets.values()) if budget in current or not budget.settled]
        for name in list(self._budgets)[:-REMEMBERED]:
            if self._budgets[name] not in found:
                del self._budgets[name]
        return found

    def claims(self, wall: float, busy: bool) -> list[tuple[PeriodBudget, Claim]]:
        """What to tell of its money: of earlier periods, of this day and, last, of this month."""
        day, month = self.budgets(wall)
        earlier = [budget for budget in self.open_budgets(wall) if budget is not day and budget is not month]
        found = [(budget, budget.claim(self.team.name, busy=False)) for budget in earlier]
        of_day, of_month = (budget.claim(self.team.name, busy) for budget in (day, month))
        if of_month.limit is None:
            of_month = replace(of_month, held=of_month.held + of_day.held - day.used, follows=True)
        return [*found, (day, of_day), (month, of_month)]

    def reserve(self, worst_usd: float, wall: float) -> tuple[PeriodBudget, PeriodBudget] | None:
        """Reserve the most a request can cost, of the day and of the month. None: one of them has no room."""
        day, month = self.budgets(wall)
        room = [budget for budget in (day, month) if budget.reserve(worst_usd)]
        self.may_reserve = len(room) == 2
        for budget in room if not self.may_reserve else ():
            budget.settle(worst_usd, 0.0)
        self.needs_lease = day.wanting or month.wanting or day.low or month.low
        return (day, month) if self.may_reserve else None

    def lacking(self, wall: float) -> PeriodBudget | None:
        """The period whose money is spent, the longer one first."""
        return next((budget for budget in reversed(self.budgets(wall)) if budget.refused), None)

    def stuck(self, wall: float) -> bool:
        """Whether nothing may be spent without asking for more."""
        return not all(budget.free for budget in self.budgets(wall))

    def divide(self, members: int, now: float) -> None:
        """Keep to an even part of the rate. It starts empty: what the others have sent before is not known."""
        if self.team.rpm is not None and self.requests.per_minute != self.team.rpm / members:
            self.requests = Bucket(self.team.rpm / members)
            self.requests.take(max(1.0, self.team.rpm / members / 60.0), now)

    def _budget(self, period: Period, limit_usd: float | None) -> PeriodBudget:
        found = self._budgets.get(period.name)
        if found is None:  # others may look at midnight too: what is reserved in one of two would be told by none
            found = self._budgets.setdefault(period.name, PeriodBudget(period, limit_usd))
        return found

    def __repr__(self) -> str:
        return f"Account({self.team.name}, {self.sent} sent, {list(self._budgets.values())!r})"
