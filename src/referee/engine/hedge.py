"""Two attempts at one answer: the first good one counts, the other is cancelled. When to hedge is not decided here."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


async def hedged(
    first: Coroutine[Any, Any, T],
    look_after: Callable[[], float],
    second: Callable[[], Coroutine[Any, Any, T] | None],
    good: Callable[[T], bool],
) -> T:
    """The result of `first`, or of the better of it and `second()`, which is called while the first is under way.

    `look_after` says in how many seconds to call `second` (again); it may decline with None. A good result ends the
    wait; if neither is good, the first counts. Cancelling this cancels both; nothing runs on when it returns.
    """
    tasks = [asyncio.ensure_future(first)]
    try:
        while len(tasks) == 1:
            done, _ = await asyncio.wait(tasks, timeout=look_after())
            if done:
                return tasks[0].result()
            other = second()
            if other is not None:
                tasks.append(asyncio.ensure_future(other))
        waiting = set(tasks)
        while waiting:
            done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            for task in tasks:
                if task in done and good(task.result()):
                    return task.result()
        return tasks[0].result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
