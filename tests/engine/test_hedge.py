"""Hedging: a late request is asked again under the budget, the first answer counts, nothing is left behind."""

from __future__ import annotations

import asyncio

import pytest
from tests.engine.harness import expected, run, samples

from referee.engine.hedge import hedged
from referee.sim import ProviderSpec, run_virtual

SLOW = ProviderSpec(latency_median=1.0, latency_sigma=0.1, tail_share=0.03, tail_factor=20.0)


def test_a_tail_is_cut() -> None:
    """Three in a hundred take 20 s; hedged, the batch does not wait for them, and few are asked twice."""
    given = samples(400)
    plain = run(given, SLOW, limits={"concurrency": 50})
    cut = run(given, SLOW, limits={"concurrency": 50, "hedge": 0.05})
    assert [v.score for v in cut.verdicts()] == expected(given)  # type: ignore[union-attr]
    assert cut.metrics["hedged"] <= 0.05 * 400
    assert cut.seen.received <= 1.05 * 400
    assert cut.seconds < plain.seconds
    assert plain.metrics["hedged"] == 0


def test_a_full_house_is_not_hedged() -> None:
    """While requests wait in line, a place goes to them."""
    found = run(samples(100), SLOW, limits={"concurrency": 1, "hedge": 0.5})
    assert found.metrics["hedged"] == 0
    assert found.reasons() == {"scored": 100}


def test_both_are_paid() -> None:
    """The attempt that was called off may be billed, so the budget counts its worst case."""
    prices = {"price_in": 1.0, "price_out": 1.0}
    found = run(samples(200), SLOW, endpoints=[prices], limits={"concurrency": 50, "hedge": 0.05, "budget_usd": 1.0})
    assert found.metrics["hedged"] > 0
    assert found.metrics["budget_spent_usd"] > found.metrics["cost_usd"]


def play(first: float, second: float | None, bad: tuple[int, ...] = ()) -> tuple[int, float, int]:
    """Who won, when, and how many tasks were left."""

    async def attempt(number: int, seconds: float) -> int:
        await asyncio.sleep(seconds)
        return number

    async def main() -> tuple[int, float, int]:
        found = await hedged(
            attempt(1, first),
            lambda: 1.0,
            lambda: None if second is None else attempt(2, second),
            lambda number: number not in bad,
        )
        return found, asyncio.get_running_loop().time(), len(asyncio.all_tasks()) - 1

    return run_virtual(main())


@pytest.mark.parametrize(
    ("first", "second", "bad", "won"),
    [
        (0.5, 1.0, (), (1, 0.5)),  # in time: no second
        (9.0, 1.0, (), (2, 2.0)),  # late: the second is sooner
        (2.0, 5.0, (), (1, 2.0)),  # late, but still sooner
        (9.0, None, (), (1, 9.0)),  # no second to be had
        (9.0, 1.0, (2,), (1, 9.0)),  # the second fails: the first is waited for
        (2.0, 3.0, (1,), (2, 4.0)),  # the first fails: the second is waited for
        (2.0, 3.0, (1, 2), (1, 4.0)),  # both fail: the first's failure counts
    ],
)
def test_the_first_good_answer_counts(
    first: float, second: float | None, bad: tuple[int, ...], won: tuple[int, float]
) -> None:
    """And nothing runs on afterwards."""
    assert play(first, second, bad) == (*won, 0)


def test_cancelling_calls_both_off() -> None:
    """Who stops waiting leaves nothing running."""

    async def main() -> int:
        async def forever() -> int:
            return await asyncio.get_running_loop().create_future()

        task = asyncio.ensure_future(hedged(forever(), lambda: 1.0, forever, lambda _: True))
        await asyncio.sleep(5.0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        return len(asyncio.all_tasks()) - 1

    assert run_virtual(main()) == 0
