"""Requests that only fail while their endpoint answers others, and what is not to be taken for them."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping

import pytest
from tests.engine.harness import HOST, config_for, run, samples

from referee.engine.port import Response, TransportFault
from referee.records import Reward, Sample, Unscored
from referee.scoring.batch import Batch
from referee.scoring.build import build_scorer
from referee.sim import Provider, ProviderSpec, SimTransport, run_virtual

POISON = "poison"


class Poisoned(SimTransport):
    """A server that never manages requests with a certain word in them, and answers all others."""

    def __init__(self, provider: Provider, fault: str) -> None:
        super().__init__({HOST: provider})
        self._fault = fault

    async def post(self, url: str, headers: Mapping[str, str], body: bytes, timeout: float) -> Response:
        if POISON.encode() not in body:
            return await super().post(url, headers, body, timeout)
        if self._fault == "hang":
            await asyncio.sleep(timeout)
            raise TransportFault("timeout", f"no whole answer within {timeout:g} s")
        await asyncio.sleep(0.05)
        if self._fault == "reset":
            raise TransportFault("reset", "connection reset by peer")
        return Response(500, {}, b'{"error": {"message": "internal error"}}')


def judged(given: list[Sample], fault: str, concurrency: int) -> tuple[list[Reward], float]:
    """The rewards of a batch at a server like that, and how long it took in virtual seconds."""
    config = config_for([HOST], limits={"concurrency": concurrency, "attempt_timeout": 20.0})

    async def main() -> tuple[list[Reward], float]:
        provider = Provider(ProviderSpec(latency_median=1.0), 1)
        scorer = build_scorer(config, Poisoned(provider, fault), random.Random(1), b"secret")
        rewards: list[Reward] = []
        await scorer.run(Batch("b", given, config, 300.0, lambda landed, error, done: rewards.extend(landed)))
        took = asyncio.get_running_loop().time()
        await scorer.aclose()
        return sorted(rewards, key=lambda reward: reward.index), took

    return run_virtual(main())


def batch_with(bad: set[int], count: int = 96) -> list[Sample]:
    return [
        Sample(prompt="p", response=f"[[quality=5]] {POISON if n in bad else 'fine'} {n}", id=str(n))
        for n in range(count)
    ]


@pytest.mark.parametrize("fault", ["http_500", "reset", "hang"])
@pytest.mark.parametrize("concurrency", [8, 96])
@pytest.mark.parametrize("bad", [set(range(0, 96, 8)) | {95}, set(range(83, 96)), {95}], ids=["spread", "last", "one"])
def test_requests_that_always_fail_do_not_hold_the_batch(fault: str, concurrency: int, bad: set[int]) -> None:
    """They are unscored with their own failure after limits.give_up_after, whatever the rest of the batch did."""
    rewards, took = judged(batch_with(bad), fault, concurrency)
    assert {reward.index for reward in rewards if not reward.scored} == bad
    assert took < 200.0, "well before the deadline, with fewer places than such requests too"
    for index in bad:
        verdict = rewards[index].verdict
        assert isinstance(verdict, Unscored)
        assert verdict.reason != "deadline"


@pytest.mark.parametrize("outage", ["http_503", "reset"])
@pytest.mark.parametrize("concurrency", [8, 96])
def test_an_outage_of_the_whole_endpoint_is_waited_out(outage: str, concurrency: int) -> None:
    """Requests that failed for longer than limits.give_up_after are judged once the server is back."""
    spec = ProviderSpec(latency_median=1.0, latency_sigma=0.5, outages=((1.2, 150.0),), outage=outage)  # type: ignore[arg-type]
    done = run(samples(96), spec, limits={"concurrency": concurrency})
    assert done.reasons() == {"scored": 96}


def test_a_long_back_off_leaves_time_for_a_last_attempt() -> None:
    """A request is not given up because its next random wait would end after the deadline."""
    for seed in range(20):
        spec = ProviderSpec(latency_median=0.5, outages=((0.0, 24.0),))
        done = run(samples(1), spec, seed=seed, seconds=30.0)
        assert done.reasons() == {"scored": 1}, f"seed {seed}"
