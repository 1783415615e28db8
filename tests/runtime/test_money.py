"""One budget for several engines: it is kept, and when it is spent everybody is told at once."""

from __future__ import annotations

import math

import pytest
from tests.engine.harness import samples
from tests.runtime.fleet import Fleet, Job, sail

from referee import clock
from referee.sim import ProviderSpec


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
