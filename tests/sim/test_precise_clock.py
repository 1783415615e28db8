"""A clock finer than the loop's."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Awaitable, Callable

import pytest

from referee import clock

if sys.platform != "linux":
    pytest.skip("timerfd is Linux's", allow_module_level=True)

from referee.sim.precise_clock import PreciseClock


def with_clock(story: Callable[[PreciseClock], Awaitable[None]]) -> None:
    async def main() -> None:
        precise, failed = PreciseClock(), list[object]()
        asyncio.get_running_loop().set_exception_handler(lambda loop, what: failed.append(what))
        try:
            await asyncio.wait_for(story(precise), 10)
        finally:
            precise.close()
        assert not failed
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(precise._timer)

    asyncio.run(main())


def test_everyone_is_woken_in_order_and_not_too_soon() -> None:
    """Whatever the order they went to sleep in."""
    woken: list[float] = []

    async def story(precise: PreciseClock) -> None:
        async def one(seconds: float) -> None:
            began = clock.monotonic()
            await precise.sleep(seconds)
            assert clock.monotonic() - began >= seconds
            woken.append(began + seconds)  # on a busy machine they do not begin together

        await asyncio.gather(*(one(seconds / 10_000) for seconds in (50, 3, 200, 1, 0, 70, 3)))

    with_clock(story)
    assert woken == sorted(woken)
    assert len(woken) == 7


def test_one_that_is_cancelled_does_not_hold_up_the_others() -> None:
    """Nor does it break the clock."""

    async def story(precise: PreciseClock) -> None:
        gone, stays = (asyncio.ensure_future(precise.sleep(seconds)) for seconds in (0.001, 0.002))
        await asyncio.sleep(0)
        gone.cancel()
        await stays
        assert gone.cancelled()
        await precise.sleep(0.001)

    with_clock(story)


def test_a_long_sleep_does_not_put_off_a_short_one() -> None:
    """The timer is set for the earliest sleep."""

    async def story(precise: PreciseClock) -> None:
        short, long = (asyncio.ensure_future(precise.sleep(seconds)) for seconds in (0.001, 1000.0))
        await short
        await precise.sleep(0.001)
        long.cancel()

    with_clock(story)


def test_a_ring_without_anybody_to_wake() -> None:
    """It wakes no sleeper, and the next expiration is not lost."""

    async def story(precise: PreciseClock) -> None:
        sleeper = asyncio.ensure_future(precise.sleep(0.01))
        await asyncio.sleep(0)
        precise._wake_due()
        assert not sleeper.done()
        await sleeper

    with_clock(story)
