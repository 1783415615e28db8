"""One limit for several engines: shares never add up to more, budget and rates hold, no member starves."""

from __future__ import annotations

import itertools
import math
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from referee.limits import FixedLimit
from referee.limits.budget import NANO
from referee.limits.quota_broker import (
    LEASE_S,
    MEMBER_TIMEOUT_S,
    Broker,
    EndpointReport,
    Grant,
    MoneyReport,
    PaceReport,
    Pool,
    Report,
    SharedEndpoint,
    divide,
    fair_part,
)


def broker(limit: int = 10, rpm: float | None = None, budget: float | None = None, **more: float) -> Broker:
    return Broker([SharedEndpoint(FixedLimit(limit), rpm, None)], budget, **more)  # type: ignore[arg-type]


def report(share: int = 0, in_flight: int = 0, waiting: int = 0, **more: object) -> Report:
    money = more.pop("money", MoneyReport())
    return Report((EndpointReport(share, in_flight, waiting, **more),), money)  # type: ignore[arg-type]


@given(st.integers(1, 600), st.lists(st.integers(0, 500), min_size=1, max_size=12), st.integers(0, 20))
def test_a_limit_is_divided_and_never_passed(limit: int, wants: list[int], rotation: int) -> None:
    """Shares add up to at most the limit; demand is met while there is any left."""
    shares = divide(limit, wants, rotation)
    assert min(shares) >= 0
    assert sum(shares) <= limit
    idle = sum(share for share, want in zip(shares, wants, strict=True) if want == 0)
    assert sum(min(share, want) for share, want in zip(shares, wants, strict=True)) >= min(limit - idle, sum(wants))


@given(st.integers(1, 600), st.lists(st.integers(1, 500), min_size=1, max_size=12), st.integers(0, 20))
def test_a_larger_demand_never_gets_less(limit: int, wants: list[int], rotation: int) -> None:
    """Up to one slot of the remainder."""
    shares = divide(limit, wants, rotation)
    ranked = sorted(zip(wants, shares, strict=True))
    for (_, small), (_, large) in itertools.pairwise(ranked):
        assert small <= large + 1


def test_a_limit_of_one_goes_around() -> None:
    """With more members than slots, the remainder rotates over time."""
    owners = {divide(1, [5, 5, 5], rotation).index(1) for rotation in range(3)}
    assert owners == {0, 1, 2}


@given(st.integers(1, 100), st.integers(1, 12))
def test_even_parts_are_the_whole(limit: int, members: int) -> None:
    """Without a broker the parts still add up to the limit."""
    assert sum(fair_part(limit, members, rank) for rank in range(members)) == limit


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 2**32), st.integers(1, 30), st.integers(1, 6))
def test_what_is_in_flight_never_passes_the_limit(seed: int, limit: int, members: int) -> None:
    """Members report at any time, get grants late and use all they may: the sum holds at every moment."""
    rng = random.Random(seed)
    shared = broker(limit)
    share, flying = [0] * members, [0] * members
    waiting = [rng.randrange(40) for _ in range(members)]
    on_the_way: dict[int, int] = {}
    now = 0.0
    for _ in range(300):
        now += rng.random() * 0.1
        member = rng.randrange(members)
        step = rng.randrange(4)
        if step == 0 and member not in on_the_way:
            reported = report(share[member], flying[member], waiting[member])
            given_share = shared.exchange(str(member), reported, now).endpoints[0].share
            assert given_share is not None
            on_the_way[member] = given_share
        elif step == 1 and member in on_the_way:
            share[member] = on_the_way.pop(member)
        elif step == 2 and waiting[member] and flying[member] < share[member]:
            more = rng.randint(1, min(waiting[member], share[member] - flying[member]))
            flying[member] += more
            waiting[member] -= more
        elif step == 3:
            flying[member] -= min(flying[member], rng.randrange(5))
            waiting[member] += rng.randrange(3)
        assert sum(flying) <= limit


def test_a_lowered_share_is_free_only_after_its_owners_report() -> None:
    """Another member gets it once the owner has reported fewer in flight."""
    shared = broker(10)
    assert shared.exchange("a", report(0, 0, 100), 0.0).endpoints[0].share == 10
    assert shared.exchange("b", report(0, 0, 100), 0.0).endpoints[0].share == 0
    assert shared.over_share == {"a"}
    assert shared.exchange("a", report(10, 10, 100), 0.1).endpoints[0].share == 5
    assert shared.exchange("b", report(0, 0, 100), 0.1).endpoints[0].share == 0
    assert shared.exchange("a", report(5, 7, 100), 0.2).endpoints[0].share == 5
    assert shared.exchange("b", report(0, 0, 100), 0.2).endpoints[0].share == 3
    assert shared.exchange("a", report(5, 5, 100), 0.3).endpoints[0].share == 5
    assert shared.exchange("b", report(3, 3, 100), 0.3).endpoints[0].share == 5
    assert shared.over_share == set()


def test_the_share_of_a_dead_member_is_free_at_once() -> None:
    """The next report gets it."""
    shared = broker(10)
    shared.exchange("a", report(0, 0, 100), 0.0)
    shared.leave("a")
    assert shared.exchange("b", report(0, 0, 100), 0.0).endpoints[0].share == 10


def test_a_silent_member_is_dropped_where_configured() -> None:
    """It may come back with what it holds."""
    shared = broker(10, forget=MEMBER_TIMEOUT_S)
    shared.exchange("a", report(0, 0, 6), 0.0)
    assert shared.exchange("b", report(0, 0, 100), MEMBER_TIMEOUT_S - 1.0).endpoints[0].share < 10
    assert shared.exchange("b", report(0, 0, 100), MEMBER_TIMEOUT_S + 1.0).endpoints[0].share == 10
    assert shared.exchange("a", report(6, 6, 0), MEMBER_TIMEOUT_S + 2.0).endpoints[0].share == 0


def test_under_a_new_broker_no_share_grows_before_all_have_reported() -> None:
    """After a restart every member keeps its share until the others have reported theirs."""
    shared = broker(10, expected=2)
    assert shared.exchange("b", report(2, 2, 50), 0.0).endpoints[0].share == 2
    assert shared.exchange("a", report(8, 8, 50), 0.1).endpoints[0].share == 5
    alone = broker(10, expected=2)
    assert alone.exchange("b", report(2, 2, 50), 0.0).endpoints[0].share == 2
    assert alone.exchange("b", report(2, 2, 50), MEMBER_TIMEOUT_S + 1.0).endpoints[0].share == 10


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 2**32), st.sampled_from([30, 300, 3000]), st.integers(1, 5))
def test_no_minute_passes_the_rate(seed: int, rpm: int, members: int) -> None:
    """Blocks used at any moment of their lease never put more than `rpm` into sixty seconds."""
    rng = random.Random(seed)
    shared = broker(1000, rpm)
    used: list[float] = []
    have = [0.0] * members
    for step in range(1500):
        now = step * 0.1 + rng.random() * 0.05
        reported = report(waiting=50, requests=PaceReport(1.0, float(rng.randint(1, 50))))
        member = rng.randrange(members)
        have[member] += shared.exchange(str(member), reported, now).endpoints[0].requests
        whole = math.floor(have[member] + 1e-9)
        have[member] -= whole
        used += [now + rng.random() * LEASE_S] * whole
    used.sort()
    for place, at in enumerate(used):
        if place >= rpm:
            assert at - used[place - rpm] >= 60.0 - 1e-6
    assert len(used) >= 0.9 * rpm * 150 / 60 - 2 - members


def test_what_is_returned_can_be_leased_again() -> None:
    """An unused block goes back to the pool."""
    pool = Pool(600)
    first = pool.lease(PaceReport(1.0, 100.0), 1.0, 0.0)
    assert first == pytest.approx(600 * 60 / 61 / 60)
    assert pool.lease(PaceReport(1.0, 100.0), 1.0, 0.0) == 0.0
    pool.take(-first, 0.0)
    assert pool.lease(PaceReport(1.0, 100.0), 1.0, 0.0) == pytest.approx(first)


def test_a_large_request_passes_a_full_pool() -> None:
    """It leaves a debt, which is paid before the next lease."""
    pool = Pool(60)
    assert pool.lease(PaceReport(40.0, 40.0), 1.0, 0.0) == 40.0
    assert pool.lease(PaceReport(1.0, 1.0), 1.0, 30.0) == 0.0
    assert pool.lease(PaceReport(1.0, 1.0), 1.0, 50.0) == 1.0


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 2**32), st.integers(1, 5), st.sampled_from([0.0, 0.3]))
def test_money_is_never_leased_twice(seed: int, members: int, dearer: float) -> None:
    """However much members spend, whichever die, whichever grants are lost: the budget is passed only by what requests
    cost beyond their reservations; and when all has come back, a member that needs more learns that it is spent."""
    rng = random.Random(seed)
    budget, beyond = 1000, 0
    shared = broker(10, budget=budget / NANO)
    limit, spent, reserved = [0] * members, [0] * members, [0] * members
    lives, gone = [0] * members, 0

    def reported(member: int, back: int, least: int, step: int) -> Grant:
        limit[member] -= back
        leased = max(limit[member], spent[member] + reserved[member])
        money = MoneyReport(spent[member], leased, least, least * 5)
        grant = shared.exchange(f"{member}.{lives[member]}", report(money=money), float(step))
        if grant.money and rng.random() < 0.9:
            limit[member] = leased + grant.money
        assert sum(limit) <= budget
        return grant

    for step in range(200):
        member = rng.randrange(members)
        free = max(0, limit[member] - spent[member] - reserved[member])
        action = rng.randrange(5)
        if action == 0:
            grant = reported(member, rng.randint(0, free), rng.choice([0, 7, 50]), step)
            if grant.broke:
                assert all(limit[n] <= spent[n] for n in range(members))
        elif action == 1:
            reserved[member] += rng.randint(0, free)
        elif action in (2, 3) and reserved[member]:
            part = rng.randint(1, reserved[member])
            reserved[member] -= part
            more = rng.randint(1, 50) if rng.random() < dearer else 0
            spent[member] += more + rng.randint(0, part)
            beyond += more
        elif action == 4 and rng.random() < 0.1:
            shared.leave(f"{member}.{lives[member]}")
            lives[member] += 1
            gone += spent[member] + reserved[member]
            limit[member] = spent[member] = reserved[member] = 0
        assert gone + sum(spent) + sum(reserved) <= budget + beyond
    for member in range(members):
        spent[member], reserved[member] = spent[member] + reserved[member], 0
        reported(member, limit[member], 0, 200)
    assert reported(0, 0, budget + 1, 201).broke


def test_broke_is_said_only_when_nothing_can_come_back() -> None:
    """While another member still holds money it may return, waiting goes on, and that money is recalled."""
    shared = broker(budget=100 / NANO)
    assert shared.exchange("a", report(money=MoneyReport(0, 0, 80, 80)), 0.0).money == 80
    grant = shared.exchange("b", report(money=MoneyReport(0, 0, 50, 50)), 0.0)
    assert (grant.money, grant.broke) == (0, False)
    assert shared.exchange("a", report(money=MoneyReport(70, 80, 0, 0)), 0.1).recall
    shared.exchange("a", report(money=MoneyReport(70, 70, 0, 0)), 0.2)
    grant = shared.exchange("b", report(money=MoneyReport(0, 0, 50, 50)), 0.2)
    assert (grant.broke, grant.spent) == (True, 70)


def test_under_a_new_broker_no_money_is_granted_before_all_have_reported() -> None:
    """A member yet to report may hold all of it; nor does the budget count as spent."""
    shared = broker(budget=100 / NANO, expected=2)
    grant = shared.exchange("b", report(money=MoneyReport(0, 0, 50, 50)), 0.0)
    assert (grant.money, grant.broke) == (0, False)
    shared.exchange("a", report(money=MoneyReport(70, 90, 0, 0)), 0.1)
    assert shared.exchange("b", report(money=MoneyReport(0, 0, 10, 10)), 0.2).money == 10
