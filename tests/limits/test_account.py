"""A team's money holds in any order of events: members that come, spend, lose answers, are killed; days that end."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from referee.config import TeamConfig
from referee.engine.spend_file import SpendFile
from referee.limits.account import ALIVE_S, REMEMBERED, Account, Claim, ClaimResult, PeriodBudget, Row, grant, periods
from referee.limits.budget import NANO, nano

DAY = 86400.0
NOON = 1_795_003_200.0  # 2026-11-18 12:00 UTC
MIDNIGHT = NOON + DAY / 2


class Kept:
    """Sums as a book keeps them, in memory."""

    def __init__(self) -> None:
        self.rows: dict[tuple[str, str], dict[str, tuple[float, int, int]]] = {}

    def tell(self, member: str, claim: Claim, wall: float, beside: int = 0) -> ClaimResult:
        """Record a claim and answer it."""
        rows = self.rows.setdefault((claim.team, claim.period), {})
        others = {
            name: Row(spent, held, wall - seen <= ALIVE_S)
            for name, (seen, spent, held) in rows.items()
            if name != member
        }
        given = grant(claim, others)
        rows[member] = wall, claim.spent, claim.held + given.granted + beside
        return given

    def exchange(self, member: str, account: Account, wall: float, busy: bool, lost: bool = False) -> None:
        """One member tells everything; `lost`: the answer does not arrive."""
        granted = 0
        for budget, claim in account.claims(wall, busy):
            beside = granted if claim.follows else 0
            given = self.tell(member, claim, wall, beside)
            granted = given.granted
            if not lost:
                budget.answer(claim, given, beside)

    def held(self, period: str) -> int:
        """Nano-dollars that count as spent, should all members be gone."""
        return sum(held for (_, name), rows in self.rows.items() if name == period for _, _, held in rows.values())


def team(day: float | None = 1.0, month: float | None = None, **more: Any) -> TeamConfig:
    return TeamConfig(name="math", token_env="T", budget_usd_day=day, budget_usd_month=month, **more)


def spend(kept: Kept, account: Account, cost: float, wall: float = NOON, member: str = "a") -> bool:
    """One request, from its lease to its end."""
    for _ in range(3):
        hold = account.reserve(cost, wall)
        if hold is not None:
            for budget in hold:
                budget.settle(cost, cost)
            return True
        kept.exchange(member, account, wall, busy=True)
    return False


def test_the_whole_budget_can_be_spent_to_the_nano_dollar() -> None:
    """Leases shrink towards the end, so that what is left can still be spent; nothing can after it."""
    kept, account = Kept(), Account(team(0.01))
    while spend(kept, account, 0.000_3):
        pass
    assert spend(kept, account, 0.000_1)
    assert not spend(kept, account, 1e-9)
    assert account.lacking(NOON) is not None
    kept.exchange("a", account, NOON, busy=False)
    assert kept.held("2026-11-18") == nano(0.01)


def test_a_day_and_a_month_have_their_names_and_ends() -> None:
    """UTC, and the end of a year too."""
    day, month = periods(NOON)
    assert (day.name, day.ends, month.name, month.ends) == ("2026-11-18", MIDNIGHT, "2026-11", MIDNIGHT + 12 * DAY)
    day, month = periods(1_798_761_599.0)
    assert (day.name, month.name) == ("2026-12-31", "2026-12")
    assert day.ends == month.ends == 1_798_761_600.0


def test_what_was_sent_before_midnight_is_charged_to_the_day_it_was_sent() -> None:
    """However late its answer comes; the new day begins with all of its money."""
    kept, account = Kept(), Account(team(1.0))
    assert account.reserve(0.5, NOON) is None
    kept.exchange("a", account, NOON, busy=True)
    hold = account.reserve(0.5, NOON)
    assert hold is not None
    kept.exchange("a", account, MIDNIGHT + 1, busy=True)
    for budget in hold:
        budget.settle(0.5, 0.4)
    kept.exchange("a", account, MIDNIGHT + 2, busy=False)
    assert kept.held("2026-11-18") == nano(0.4)
    assert sum(spend(kept, account, 0.1, MIDNIGHT + 3) for _ in range(11)) == 10
    kept.exchange("a", account, MIDNIGHT + 4, busy=False)
    assert (kept.held("2026-11-19"), kept.held("2026-11")) == (nano(1.0), nano(1.4))


@pytest.mark.parametrize("limits", [(1.0, None), (1.0, 30.0), (None, 30.0)])
@pytest.mark.parametrize("later", [0.0, 20 * DAY])
def test_a_lease_of_which_nothing_was_spent_is_given_back(
    limits: tuple[float | None, float | None], later: float
) -> None:
    """What was granted is told too, or no one would know that there is something to give back: its caller left."""
    kept, account = Kept(), Account(team(*limits))
    assert account.reserve(0.1, NOON) is None
    kept.exchange("a", account, NOON, busy=True)
    assert kept.held("2026-11") >= nano(0.1)
    told = account.claims(NOON + later, busy=False)
    assert all(budget.untold(claim) for budget, claim in told if claim.period == "2026-11")
    kept.exchange("a", account, NOON + later, busy=False)
    assert kept.held("2026-11") == kept.held("2026-11-18") == 0
    assert not any(budget.untold(claim) for budget, claim in account.claims(NOON + later, busy=False))


@pytest.mark.parametrize("over", [1.0, 20 * DAY])
def test_a_clock_that_is_set_back_gives_no_money_twice(over: float) -> None:
    """A day or a month that had ended and is the present again goes on from what was spent in it."""
    kept, account = Kept(), Account(team(1.0, 1.5))
    assert sum(spend(kept, account, 0.1) for _ in range(11)) == 10
    for after in range(3):
        kept.exchange("a", account, MIDNIGHT + over + after, busy=False)
    assert not spend(kept, account, 0.1, MIDNIGHT - 1)
    kept.exchange("a", account, MIDNIGHT - 1, busy=False)
    assert (kept.held("2026-11-18"), kept.held("2026-11")) == (nano(1.0), nano(1.0))


def test_periods_that_ended_long_ago_are_forgotten() -> None:
    """A member that runs for years holds a bounded number of them, and never forgets one that is not settled."""
    kept, account = Kept(), Account(team(1.0, 1.5))
    hold = account.reserve(0.1, NOON) or (kept.exchange("a", account, NOON, busy=True), account.reserve(0.1, NOON))[1]
    assert hold is not None
    for day in range(400):
        kept.exchange("a", account, NOON + day * DAY, busy=False)
    assert repr(account).count("Budget(") <= REMEMBERED + 4
    for budget in hold:
        budget.settle(0.1, 0.05)
    kept.exchange("a", account, NOON + 400 * DAY, busy=False)
    assert kept.held("2026-11-18") == nano(0.05)


@pytest.mark.parametrize("limits", [(1.0, None), (1.0, 30.0), (None, 30.0)])
def test_a_month_has_spent_no_less_than_its_day_after_a_kill(limits: tuple[float | None, float | None]) -> None:
    """Whichever of them has a limit, and at whatever moment of leasing the process was killed."""
    kept = Kept()
    for number in range(20):
        account = Account(team(*limits))
        for _ in range(number + 1):
            account.reserve(0.001, NOON)
            kept.exchange(f"killed {number}", account, NOON, busy=True)
            assert kept.held("2026-11") >= kept.held("2026-11-18")
            assert limits[1] or kept.held("2026-11") == kept.held("2026-11-18")
    account = Account(team(*limits))
    kept.exchange("next", account, NOON + 2 * ALIVE_S, busy=False)
    day, month = account.budgets(NOON)
    assert month.total_spent >= day.total_spent > 0
    spend(kept, account, 0.001, NOON + 2 * ALIVE_S, "next")
    kept.exchange("next", account, NOON + 2 * ALIVE_S, busy=False)
    assert {rows["next"][1:] for rows in kept.rows.values()} == {(nano(0.001), nano(0.001))}


def test_the_month_is_what_is_said_to_be_spent_where_both_are() -> None:
    """Its next beginning is the later one."""
    kept, account = Kept(), Account(team(0.2, 0.2))
    assert sum(spend(kept, account, 0.1) for _ in range(3)) == 2
    lacking = account.lacking(NOON)
    assert lacking is not None
    assert lacking.period.kind == "month"
    assert lacking.no_room(0.1).startswith("budget_usd_month = 0.2 has no room")


def test_money_that_another_member_holds_is_waited_for_and_that_of_a_dead_one_is_not() -> None:
    """It may come back as long as that member reports."""
    claim = Claim("math", "2026-11-18", 100, least=10, most=10)
    assert not grant(claim, {"b": Row(50, 95, alive=True)}).final
    assert grant(claim, {"b": Row(95, 95, alive=True)}).final
    dead = grant(claim, {"b": Row(50, 95, alive=False)})
    assert dead == ClaimResult(0, 95, final=True, free=5)


def test_a_budget_that_was_refused_is_open_again_when_others_give_some_back() -> None:
    """The next report asks for it, also while no request waits."""
    kept, one, two = Kept(), Account(team(1.0)), Account(team(1.0))
    assert one.reserve(0.9, NOON) is None
    kept.exchange("one", one, NOON, busy=True)
    hold = one.reserve(0.9, NOON)
    assert hold is not None
    for budget in hold:
        budget.settle(0.9, 0.9)
    kept.exchange("one", one, NOON, busy=False)
    assert not spend(kept, two, 0.2, member="two")
    assert two.lacking(NOON) is not None
    rows = kept.rows["math", "2026-11-18"]
    rows["one"] = NOON, nano(0.1), nano(0.1)
    kept.exchange("two", two, NOON, busy=False)
    assert two.lacking(NOON) is None
    assert spend(kept, two, 0.2, member="two")


@pytest.mark.parametrize("in_flight", [0, 7])
def test_a_kill_costs_no_more_than_a_lease(in_flight: int) -> None:
    """One part in a hundred of the budget and the worst case of what is in flight; while nothing is, nothing."""
    kept, account, worst = Kept(), Account(team(10.0)), 0.001
    for _ in range(500):
        assert spend(kept, account, worst)
    spent = nano(500 * worst)
    for _ in range(in_flight):
        while account.reserve(worst, NOON) is None:
            kept.exchange("a", account, NOON, busy=True)
    kept.exchange("a", account, NOON, busy=in_flight > 0)
    assert 0 <= kept.held("2026-11-18") - spent <= (nano(10.0) // 100 + nano(in_flight * worst) if in_flight else 0)


@given(st.lists(st.integers(0, 10**15), max_size=5), st.integers(0, 10**15), st.integers(1, 10**12), st.booleans())
def test_a_grant_never_passes_the_limit(held: list[int], mine: int, least: int, alive: bool) -> None:
    """And is what was asked for, or nothing."""
    others = {str(n): Row(0, h, alive) for n, h in enumerate(held)}
    found = grant(Claim("t", "p", 10**15, 0, mine, least, 3 * least), others)
    assert found.granted == 0 or (
        least <= found.granted <= 3 * least and sum(held) + mine + found.granted <= 10**15 and not found.final
    )
    assert found.granted or sum(held) + mine + least > 10**15


def test_what_was_leased_and_not_spent_is_free_again_in_a_file(tmp_path: Path) -> None:
    """Also where nothing of it was spent: another member may have it at once, to the last nano-dollar."""

    async def main() -> None:
        one, two = SpendFile(str(tmp_path / "s")), SpendFile(str(tmp_path / "s"))
        (first,), _ = await one.exchange([Claim("math", "d", 1000, least=1000, most=1000)], NOON)
        (none,), _ = await two.exchange([Claim("math", "d", 1000, least=10, most=10)], NOON)
        assert (first.granted, none) == (1000, ClaimResult(0, 0, final=False))
        await one.exchange([Claim("math", "d", 1000)], NOON)
        (all_of_it,), _ = await two.exchange([Claim("math", "d", 1000, least=1000, most=1000)], NOON)
        assert all_of_it.granted == 1000

    asyncio.run(main())


def test_a_file_keeps_for_the_month_what_its_day_holds(tmp_path: Path) -> None:
    """In the transaction that grants it: there is no moment to be killed in between. The file is its owner's alone."""

    async def main() -> None:
        path, account = tmp_path / "of" / "s", Account(team(1.0))
        account.reserve(0.001, NOON)
        claims = [claim for _, claim in account.claims(NOON, busy=True)]
        (day, _), _ = await SpendFile(str(path)).exchange(claims, NOON)
        with contextlib.closing(sqlite3.connect(path)) as link:
            held = dict(link.execute("SELECT period, held FROM spent"))
        assert held == {"2026-11-18": day.granted, "2026-11": day.granted}
        assert day.granted > 0
        assert path.stat().st_mode & 0o777 == 0o600

    asyncio.run(main())


def test_the_rate_is_divided_among_members() -> None:
    """Half of it each, from an empty bucket: what the other has sent is not known."""
    account = Account(team(rpm=60))
    account.divide(1, 0.0)
    assert account.requests.wait(1, 0.0) == 0.0
    account.divide(2, 0.0)
    assert account.requests.wait(1, 0.0) > 1.0
    assert account.requests.per_minute == 30


class Spending(RuleBasedStateMachine):
    """Members share a day's budget; each request costs at most what was reserved for it. `true` is what a provider
    would bill, by day."""

    LIMIT = 1.0

    def __init__(self) -> None:
        super().__init__()
        self.kept = Kept()
        self.members: dict[str, Account] = {}
        self.open: list[tuple[str, tuple[PeriodBudget, ...], float]] = []
        self.wall = NOON
        self.started = 0
        self.true: dict[str, int] = {}
        self.killed: set[str] = set()
        """Days in which a member was killed."""

    @initialize()
    def begin(self) -> None:
        self.start()

    @rule()
    def start(self) -> None:
        if len(self.members) < 3:
            self.started += 1
            self.members[f"m{self.started}"] = Account(team(self.LIMIT))

    @rule(who=st.integers(0, 2), worst=st.sampled_from([1e-9, 0.000_7, 0.01, 0.13, 0.4]))
    def send(self, who: int, worst: float) -> None:
        name, account = self._member(who)
        hold = account.reserve(worst, self.wall)
        if hold is not None:
            self.open.append((name, hold, worst))

    @rule(which=st.integers(0, 99), share=st.sampled_from([0.0, 0.3, 0.999, 1.0]))
    def answer(self, which: int, share: float) -> None:
        if self.open:
            _, hold, worst = self.open.pop(which % len(self.open))
            for budget in hold:
                budget.settle(worst, worst * share)
            self._bill(hold, nano(worst * share))

    @rule(who=st.integers(0, 2), busy=st.booleans(), lost=st.booleans())
    def exchange(self, who: int, busy: bool, lost: bool) -> None:
        name, account = self._member(who)
        self.kept.exchange(name, account, self.wall, busy, lost)

    @rule(seconds=st.sampled_from([0.5, 20.0, DAY / 3, -20.0, -DAY / 3]))
    def wait(self, seconds: float) -> None:
        """Or the clock is set back."""
        self.wall += seconds

    @rule(who=st.integers(0, 2))
    def kill(self, who: int) -> None:
        """What is in flight is billed in full, and no one settles it."""
        name, account = self._member(who)
        for member, hold, worst in [one for one in self.open if one[0] == name]:
            self.open.remove((member, hold, worst))
            self._bill(hold, nano(worst))
        self.killed |= {budget.period.name for budget in account.open_budgets(self.wall)}
        del self.members[name]
        if not self.members:
            self.start()

    @invariant()
    def never_over(self) -> None:
        for name, spent in self.true.items():
            if len(name) == 10:
                assert spent <= nano(self.LIMIT)
                assert self.kept.held(name) <= nano(self.LIMIT)

    def teardown(self) -> None:
        """An orderly end: the sums are exact, but for what those that were killed had leased."""
        for name, hold, worst in self.open:
            for budget in hold:
                budget.settle(worst, worst)
            self._bill(hold, nano(worst))
            assert name in self.members
        for name, account in self.members.items():
            self.kept.exchange(name, account, self.wall, busy=False)
        for period, spent in self.true.items():
            if len(period) == 10:
                assert spent <= self.kept.held(period)
                if period not in self.killed:
                    assert self.kept.held(period) == spent

    def _member(self, who: int) -> tuple[str, Account]:
        name = list(self.members)[who % len(self.members)]
        return name, self.members[name]

    def _bill(self, hold: tuple[PeriodBudget, ...], cost: int) -> None:
        for budget in hold:
            self.true[budget.period.name] = self.true.get(budget.period.name, 0) + cost


TestSpending = Spending.TestCase
TestSpending.settings = settings(max_examples=60, stateful_step_count=50, deadline=None)


@pytest.mark.parametrize("dollars", [0.000_123, 1e-5, 0.1 + 0.2, 999_999.000_000_001])
def test_a_product_of_floats_is_no_nano_dollar_more(dollars: float) -> None:
    """Sums agree with a bill that is made of whole numbers."""
    assert nano(dollars) == round(dollars * NANO)
