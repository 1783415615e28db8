"""The virtual loop: order, speed, wake-ups from threads, deadlocks."""

from __future__ import annotations

import asyncio
import threading

import pytest

from referee import clock
from referee.sim.virtual import Deadlock, run_virtual


def test_timers_fire_in_order_of_time() -> None:
    """Sleepers wake by their time, not by the order they were started in."""
    woken: list[tuple[float, str]] = []

    async def sleeper(name: str, seconds: float) -> None:
        await clock.sleep(seconds)
        woken.append((clock.now(), name))

    async def main() -> None:
        await asyncio.gather(sleeper("late", 90.5), sleeper("first", 0.25), sleeper("middle", 3.0))

    run_virtual(main())
    assert woken == [(0.25, "first"), (3.0, "middle"), (90.5, "late")]


def test_a_year_of_sleeping_ends() -> None:
    """Hours and days pass without being waited for; real waiting would meet the suite's timeout."""

    async def main() -> float:
        for _ in range(366):
            await clock.sleep(86_400.0)
        await clock.sleep(0.5)
        return clock.now()

    assert run_virtual(main()) == 366 * 86_400 + 0.5


def test_no_task_wakes_early() -> None:
    """A loop that sleeps until its moment has come ends, however the sums round."""

    async def main() -> None:
        for step in range(1, 2000):
            until = clock.now() + 0.1 / step + 1e-9
            while clock.now() < until:
                await clock.sleep(until - clock.now())

    run_virtual(main())


def test_timeouts_use_virtual_time() -> None:
    """A timeout of an hour runs out at second 3600."""

    async def main() -> float:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(3600):
                await asyncio.get_running_loop().create_future()
        return clock.now()

    assert run_virtual(main()) == 3600


def test_deadlock_is_an_error_that_names_the_waiting_task() -> None:
    """With no timer and nothing ready the loop says so instead of hanging."""

    async def stuck() -> None:
        await asyncio.get_running_loop().create_future()

    with pytest.raises(Deadlock, match="stuck"):
        run_virtual(stuck(), thread_timeout=0.01)


def test_deadlock_cancels_what_was_waiting() -> None:
    """Tasks get their cancellation, so their cleanup runs."""
    cleaned: list[str] = []

    async def stuck() -> None:
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            cleaned.append("yes")

    with pytest.raises(Deadlock):
        run_virtual(stuck(), thread_timeout=0.01)
    assert cleaned == ["yes"]


def test_threads_can_wake_the_loop() -> None:
    """call_soon_threadsafe reaches a loop that has nothing else to do."""

    async def main() -> str:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[str] = loop.create_future()
        thread = threading.Thread(target=lambda: loop.call_soon_threadsafe(future.set_result, "woken"))
        thread.start()
        try:
            return await future
        finally:
            thread.join()

    assert run_virtual(main()) == "woken"


def test_the_clock_stands_still_while_an_executor_works() -> None:
    """A timer does not overtake a job that takes real time."""
    release = threading.Event()

    async def main() -> tuple[str, float]:
        loop = asyncio.get_running_loop()
        job = loop.run_in_executor(None, release.wait, 30)
        for _ in range(50):
            await asyncio.sleep(0)
        late = loop.call_later(1.0, release.clear)
        release.set()
        async with asyncio.timeout(0.5):
            await job
        late.cancel()
        return "done", clock.now()

    assert run_virtual(main()) == ("done", 0.0)


def test_leftover_tasks_are_cancelled() -> None:
    """Nothing of a run outlives it."""
    ended: list[BaseException] = []

    async def background() -> None:
        try:
            await clock.sleep(1e6)
        except asyncio.CancelledError as error:
            ended.append(error)
            raise

    async def main() -> str:
        task = asyncio.create_task(background())
        await clock.sleep(1)
        return "pending" if not task.done() else "done"

    assert run_virtual(main()) == "pending"
    assert len(ended) == 1


def test_errors_come_out() -> None:
    """An exception of the coroutine is the caller's."""

    async def main() -> None:
        await clock.sleep(5)
        raise KeyError("x")

    with pytest.raises(KeyError):
        run_virtual(main())
