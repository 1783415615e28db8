"""Waiting with an end."""

from __future__ import annotations

import asyncio

import pytest

from referee import clock


def test_a_cancellation_is_not_lost_to_a_result_of_the_same_turn() -> None:
    """A task that is told to end ends, though what it waited for has just come."""

    async def main() -> None:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        async def wait_twice() -> None:
            await clock.within(future, 60.0)
            await asyncio.get_running_loop().create_future()

        task = asyncio.ensure_future(wait_twice())
        await clock.breathe()
        future.set_result(None)
        task.cancel()
        await asyncio.wait([task], timeout=1.0)
        assert task.cancelled()

    asyncio.run(main())


def test_what_does_not_come_is_a_timeout() -> None:
    """And is cancelled itself."""

    async def main() -> None:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        with pytest.raises(TimeoutError):
            await clock.within(future, 0.0)
        assert future.cancelled()

    asyncio.run(main())
