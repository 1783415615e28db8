"""Batches for different judges of one configuration: each waits, in turn, for its own judges' endpoints."""

from __future__ import annotations

import asyncio
from typing import Any, NamedTuple

from msgspec.structs import replace
from tests.engine.harness import samples

from referee.config import load
from referee.records import Reward
from referee.scoring.batch import Batch
from referee.scoring.build import build_scorer
from referee.sim import Provider, ProviderSpec, SimTransport, run_virtual

CONFIG: dict[str, Any] = {
    "endpoint": [
        {"name": "down", "url": "http://down.test/v1", "model": "m", "key_env": ""},
        {"name": "up", "url": "http://up.test/v1", "model": "n", "key_env": ""},
    ],
    "judge": [
        {"name": "one", "endpoint": "down"},
        {"name": "other", "endpoint": "up"},
        {"name": "third", "endpoint": "up"},
    ],
    "cache": {"path": ""},
    "limits": {"concurrency": 10, "deadline": 100.0},
    "missing": {"abort_above": 1.0},
}


class Given(NamedTuple):
    """A batch: the judge it asks, how many samples it has, when it is due, and of which caller it is."""

    judge: int
    count: int
    due: float
    caller: str = ""


def judge_all(batches: dict[str, Given]) -> dict[str, tuple[float, int]]:
    """Submit these one after the other. When each ended, and how many of its samples were scored."""
    ended: dict[str, tuple[float, int]] = {}

    async def main() -> None:
        config = load(CONFIG)
        providers = {
            "down.test": Provider(ProviderSpec(latency_median=1000.0), 1),
            "up.test": Provider(ProviderSpec(latency_median=1.0, latency_sigma=0.0, tail_share=0.0), 2),
        }
        scorer = build_scorer(config, SimTransport(providers))
        loop = asyncio.get_running_loop()

        def start(name: str, given: Given) -> asyncio.Task[None]:
            scored = 0

            def deliver(rewards: list[Reward], error: Exception | None, done: bool) -> None:
                nonlocal scored
                scored += sum(reward.scored for reward in rewards)
                if done:
                    ended[name] = loop.time(), scored

            judged = replace(config, judge=(config.judge[given.judge],))
            batch = Batch(name, samples(given.count, name), judged, given.due, deliver)
            batch.asked, batch.caller = (given.judge,), given.caller
            return asyncio.create_task(scorer.run(batch))

        tasks = []
        for name, given in batches.items():
            tasks.append(start(name, given))
            await asyncio.sleep(0.1)
        await asyncio.gather(*tasks)
        await scorer.aclose()

    run_virtual(main())
    return ended


def test_a_batch_does_not_wait_behind_one_whose_judge_is_down() -> None:
    """It would lose its time to a server it never asks."""
    ended = judge_all({"down": Given(0, 500, 100.0), "up": Given(1, 200, 100.0)})
    assert ended["up"][0] < 40.0
    assert ended["down"][0] > 90.0


def test_judges_of_one_endpoint_keep_the_order_of_deadlines() -> None:
    """Of one caller the batch that is due first goes first, whichever judge it asks."""
    ended = judge_all({"later": Given(1, 2000, 1900.0), "first": Given(2, 500, 120.0)})
    assert ended["first"][1] == 500
    assert ended["later"][1] == 2000


def test_callers_with_different_judges_of_one_endpoint_take_turns() -> None:
    """Three callers, one with four times as much: the small ones end together, long before it."""
    callers = {"big": Given(1, 1200, 1900.0, "x"), "b": Given(2, 300, 1900.0, "y"), "c": Given(1, 300, 1900.0, "z")}
    ended = judge_all(callers)
    assert max(ended["b"][0], ended["c"][0]) < 120.0 < 170.0 < ended["big"][0]
