"""A minute without a provider, at four fifths of its capacity: nothing is lost, little is sent, and it comes back."""

from __future__ import annotations

import asyncio
import random

import pytest
from tests.faults.served import Served

from referee import Referee, clock
from referee.config import load
from referee.errors import RefereeError
from referee.records import Reward, Sample
from referee.scoring.batch import Batch
from referee.scoring.build import build_scorer
from referee.sim import Provider, ProviderSpec, SimTransport, run_virtual

pytestmark = pytest.mark.slow

CAPACITY, MEDIAN = 60, 2.0
RATE = 22
"""Samples a second: four fifths of what 60 places serve at a mean of about 2.2 s."""
OUTAGE, SECONDS = (60.0, 120.0), 240


def arrive(seed: int, kind: str) -> tuple[list[float], int, int]:
    """Times at which samples were scored, how many were not, and how many requests were sent."""
    spec = ProviderSpec(
        latency_median=MEDIAN,
        latency_sigma=0.5,
        capacity=CAPACITY,
        outages=(OUTAGE,),
        outage=kind,  # type: ignore[arg-type]
    )
    config = load(
        {
            "endpoint": {"url": "http://a.test/v1", "model": "m", "key_env": ""},
            "cache": {"path": ""},
            "limits": {"attempt_timeout": 20.0, "deadline": 300.0},
            "missing": {"abort_above": 1.0},
        },
        {},
    )
    provider = Provider(spec, seed)
    scored: list[float] = []
    lost = 0

    def deliver(landed: list[Reward], error: RefereeError | None, done: bool) -> None:
        nonlocal lost
        for reward in landed:
            if reward.scored:
                scored.append(clock.now())
            else:
                lost += 1

    async def main() -> None:
        scorer = build_scorer(config, SimTransport(provider), random.Random(seed), b"secret")
        running = []
        for second in range(SECONDS):
            given = [Sample(prompt="p", response=f"{second} {n}") for n in range(RATE)]
            running.append(asyncio.ensure_future(scorer.run(Batch(str(second), given, config, 300.0, deliver))))
            await clock.sleep(1.0)
        await asyncio.gather(*running)
        await scorer.aclose()

    run_virtual(main())
    return scored, lost, provider.stats().received


@pytest.mark.parametrize("kind", ["http_503", "http_529", "reset"])
def test_an_outage_costs_time_only(kind: str) -> None:
    """0 lost, at most 1.2 requests per sample, 90 % of the earlier pace within 5 s of the end: in virtual time."""
    for seed in (1, 2, 3):
        scored, lost, sent = arrive(seed, kind)
        before = sum(30.0 <= at < 60.0 for at in scored) / 30.0
        after = sum(OUTAGE[1] + 5.0 <= at < OUTAGE[1] + 15.0 for at in scored) / 10.0
        assert lost == 0
        assert len(scored) == RATE * SECONDS
        assert sent <= 1.2 * len(scored), f"{sent} requests for {len(scored)} samples"
        assert after >= 0.9 * before, f"{after:.1f} a second after, {before:.1f} before"


def test_an_outage_over_real_sockets() -> None:
    """The same scaled down: 3 s of a real server that answers nothing but errors; nothing is lost."""
    spec = ProviderSpec(latency_median=2.0, latency_sigma=0.5, capacity=60, outages=((20.0, 80.0),), time_scale=20.0)
    given = [Sample(prompt="p", response=f"[[quality=7]] {n}") for n in range(1500)]
    with Served(spec) as server:
        with Referee.from_config(
            {
                "endpoint": {"url": server.url, "model": "m", "key_env": ""},
                "cache": {"path": ""},
                "missing": {"abort_above": 1.0},
            }
        ) as referee:
            rewards = referee.score(given, timeout=50.0)
        sent = server.provider.stats().received
    assert [reward.scored for reward in rewards] == [True] * len(given)
    assert sent <= 1.2 * len(given)
