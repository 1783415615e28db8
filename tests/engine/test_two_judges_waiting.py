"""Batches for different judges of one configuration: an endpoint that is down holds back its own judge only."""

from __future__ import annotations

import asyncio
from typing import Any

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
    "judge": [{"name": "one", "endpoint": "down"}, {"name": "other", "endpoint": "up"}],
    "cache": {"path": ""},
    "limits": {"concurrency": 10, "deadline": 100.0},
    "missing": {"abort_above": 1.0},
}


def test_a_batch_does_not_wait_behind_one_whose_judge_is_down() -> None:
    """It would lose its time to a server it never asks."""

    async def main() -> None:
        config = load(CONFIG)
        providers = {
            "down.test": Provider(ProviderSpec(latency_median=1000.0), 1),
            "up.test": Provider(ProviderSpec(latency_median=1.0), 2),
        }
        scorer = build_scorer(config, SimTransport(providers))
        loop = asyncio.get_running_loop()
        ends: dict[str, float] = {}

        def start(name: str, number: int, count: int) -> asyncio.Task[None]:
            def deliver(rewards: list[Reward], error: Exception | None, done: bool) -> None:
                if done:
                    ends[name] = loop.time()

            judged = replace(config, judge=(config.judge[number],))
            batch = Batch(name, samples(count, name), judged, 100.0, deliver)
            batch.asked = (number,)
            return asyncio.create_task(scorer.run(batch))

        tasks = [start("one", 0, 500)]
        await asyncio.sleep(0.1)
        tasks.append(start("other", 1, 200))
        await asyncio.gather(*tasks)
        assert ends["other"] < 40.0
        assert ends["one"] > 90.0
        await scorer.aclose()

    run_virtual(main())
