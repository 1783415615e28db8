"""One budget for several engines: it is kept, and when it is spent everybody is told at once."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.engine.harness import samples
from tests.engine.network import Books, Claiming
from tests.runtime.fleet import Fleet, Job, sail
from tests.runtime.simulated_ray import Make, Start
from tests.runtime.simulated_ray import samples as many

from referee import clock
from referee.sim import ProviderSpec

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("seconds", [60.0, math.inf])
@pytest.mark.parametrize("hosts", [1, 2, 4])
def test_workers_that_pay_more_than_they_reserved_end_for_want_of_money(hosts: int, seconds: float) -> None:
    """Every reply is billed far above what was foreseen: once nothing is left, what waits ends as `budget`."""
    jobs: list[Job] = []
    ended: list[float] = []

    async def story(fleet: Fleet) -> None:
        jobs.append(fleet.submit(samples(400), seconds=seconds))
        await jobs[0].result()
        ended.append(clock.now())

    sail(
        story,
        ProviderSpec(latency_median=0.5, reasoning_tokens=4000),
        hosts=hosts,
        endpoint={"price_in": 10.0, "price_out": 10.0},
        limits={"budget_usd": 1.0, "concurrency": 20},
        judge={"max_tokens": 64},
        missing={"abort_above": 1.0},
    )
    assert set(jobs[0].reasons()) == {"scored", "budget"}
    assert ended[0] < 30.0


@settings(max_examples=15, deadline=None)
@given(
    hosts=st.integers(1, 4),
    chars=st.floats(1.0, 6.0),
    hidden=st.sampled_from([0, 60, 500, 5000]),
    dying=st.sampled_from([0.0, 0.15]),
    concurrency=st.integers(1, 60),
    budget=st.floats(0.05, 0.8),
)
def test_no_more_is_billed_than_the_budget_of_all(
    hosts: int, chars: float, hidden: int, dying: float, concurrency: int, budget: float
) -> None:
    """Dense text and dead connections never pass it; hidden reasoning only by what no earlier reply could tell."""
    books = Books()
    jobs: list[Job] = []

    async def story(fleet: Fleet) -> None:
        jobs.append(fleet.submit(samples(400), seconds=300.0))
        await jobs[0].result()

    sail(
        story,
        ProviderSpec(latency_median=0.5, latency_sigma=0.3, chars_per_token=chars, reasoning_tokens=hidden),
        hosts=hosts,
        network=books.network(dying),
        endpoint={"price_in": 10.0, "price_out": 10.0},
        limits={"budget_usd": budget, "concurrency": concurrency},
        judge={"max_tokens": 64},
        missing={"abort_above": 1.0},
    )
    assert set(jobs[0].reasons()) <= {"scored", "budget"}
    assert books.billed(10.0) <= budget + books.unforeseen(10.0, 64) + 1e-9


@settings(max_examples=8, deadline=None)
@given(
    hosts=st.integers(1, 4),
    rpm=st.sampled_from([20, 60, 150]),
    latency=st.floats(0.01, 3.0),
    spread=st.floats(0.0, 0.99),
    dying=st.sampled_from([0.0, 0.15]),
)
def test_no_minute_of_the_servers_holds_more_than_rpm(
    hosts: int, rpm: int, latency: float, spread: float, dying: float
) -> None:
    """However late requests arrive, up to a second, and however many were sent again: by the server's clock."""
    books = Books()

    async def story(fleet: Fleet) -> None:
        await fleet.submit(samples(2 * rpm), seconds=3000.0).result()

    spec = ProviderSpec(latency_median=latency, latency_sigma=0.3)
    sail(story, spec, hosts=hosts, network=books.network(dying, spread), limits={"rpm": rpm})
    assert rpm // 2 <= books.busiest_minute() <= rpm


def test_workers_try_a_server_that_says_nothing_is_left() -> None:
    """It serves all the same: nobody waits for the hour it speaks of, nor for a minute."""

    async def story(fleet: Fleet) -> None:
        job = fleet.submit(samples(300), seconds=300.0)
        await job.result()
        assert job.reasons() == {"scored": 300}
        assert clock.now() < 30.0

    sail(story, ProviderSpec(latency_median=0.1), hosts=3, network=Claiming, limits={"concurrency": 10, "rpm": 60_000})


def test_shards_that_pay_more_than_they_reserved_end_for_want_of_money(start: Start, connect: Make) -> None:
    """Engines of the Ray runtime learn from their broker that nothing is left, long before the deadline."""
    cluster = start(latency_median=0.01, reasoning_tokens=4000)
    referee = connect(
        cluster,
        shards=2,
        limits={"budget_usd": 0.1, "concurrency": 20},
        judge={"max_tokens": 64},
        missing={"abort_above": 1.0},
    )
    rewards = referee.score(many(400))
    assert {"scored" if r.scored else str(r.verdict.reason) for r in rewards} == {"scored", "budget"}
