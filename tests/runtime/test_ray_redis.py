"""Ray engines of two jobs on one cluster, which know nothing of each other but one Redis: cache, limits, and its loss.

Needs Ray, so it runs where the trainers are installed:

    .venv-trainers/bin/python -m pytest tests/runtime/test_ray_redis.py
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.redis.server import BINARY, RedisServer
from tests.trainers.ray_tools import PATIENCE, local_ray, wait_for

from referee import clock
from referee.config import load
from referee.limits.bucket import BURST_S
from referee.limits.quota_broker import LEASE_S
from referee.records import Reward, Sample
from referee.referee import Referee
from referee.runtime.ray import shutdown
from referee.runtime.ray_settings import engine_names
from referee.sim import ProviderSpec, ServerProcess, start_server_process

pytest.importorskip("ray")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(300),
    pytest.mark.filterwarnings("default"),
    pytest.mark.skipif(BINARY is None, reason="redis-server is not installed"),
]

Start = Callable[..., Referee]


@pytest.fixture(scope="module")
def ray() -> Iterator[Any]:
    """One cluster for the module."""
    yield from local_ray()


@pytest.fixture
def redis(tmp_path: Path) -> Iterator[RedisServer]:
    """A real server, empty."""
    server = RedisServer(tmp_path)
    yield server
    server.kill()


@pytest.fixture
def provider() -> Iterator[ServerProcess]:
    """Answers after a moment, without limit."""
    with start_server_process(ProviderSpec(latency_median=0.03)) as process:
        yield process


@pytest.fixture
def start(ray: Any, redis: RedisServer, provider: ServerProcess) -> Iterator[Start]:
    """Starts jobs with two engines each, named apart by a setting that changes no verdict and no key."""
    made: list[Referee] = []

    def start(*, patient: bool = True, **limits: Any) -> Referee:
        config = {
            "endpoint": {"url": provider.url, "model": "m", "key_env": ""},
            "cache": {"path": ""},
            "redis": {"url": redis.url, **({"timeout": 60.0} if patient else {})},
            "limits": {"deadline": PATIENCE, "attempt_timeout": PATIENCE + len(made), **limits},
            "runtime": "ray",
            "shards": 2,
        }
        made.append(Referee(load(config)))
        return made[-1]

    yield start
    for job in made:
        job.close()
        shutdown(job.config)


def samples(count: int, name: str = "n") -> list[Sample]:
    """Samples whose right score the simulated judge reads in the response."""
    return [Sample(prompt="p", response=f"[[quality={n % 10 + 1}]] {name} {n}") for n in range(count)]


def right(rewards: list[Reward]) -> bool:
    """Every sample is scored, with its own score, in the order of submission."""
    return [getattr(reward.verdict, "score", None) for reward in rewards] == [n % 10 + 1 for n in range(len(rewards))]


def test_a_later_job_pays_nothing_for_what_an_earlier_one_judged(
    start: Start, provider: ServerProcess, redis: RedisServer
) -> None:
    """The engines of the first are gone with their memory; those of the second find its verdicts in Redis."""
    first = start()
    assert right(first.score(samples(60)))
    first.close()
    with redis.client() as look:
        wait_for(lambda: len(look.keys("referee:v1:*")) == 60, "all verdicts in Redis")
    assert shutdown(first.config) > 0
    second = start()
    assert right(second.score(samples(80)))
    assert second.metrics()["cache_hits"] == 60
    assert provider.stats().received == 80


def test_two_jobs_at_once_are_both_right(start: Start, provider: ServerProcess) -> None:
    """Four engines of two jobs on the same samples: all rewards are there, and at worst each job pays for itself."""
    jobs = [start(concurrency=4), start(concurrency=4)]
    tickets = [job.submit(samples(150)) for job in jobs]
    for ticket in tickets:
        assert right(ticket.result(PATIENCE))
    assert 150 <= provider.stats().received <= 300
    assert not {*engine_names(jobs[0].config)} & {*engine_names(jobs[1].config)}


def test_requests_per_minute_are_one_limit_for_the_engines_of_both(start: Start, provider: ServerProcess) -> None:
    """The provider never sees more than the common pace, a full bucket and the leases that were out; alone, each job
    would send as much."""
    jobs = [start(rpm=1200), start(rpm=1200)]
    for number, job in enumerate(jobs):  # all engines are up before time counts
        assert right(job.score(samples(2, f"first {number}")))
    before, began = provider.stats().received, clock.monotonic()
    tickets = [job.submit(samples(80, f"job {number}")) for number, job in enumerate(jobs)]

    def seen() -> bool:
        received = provider.stats().received - before
        assert received <= 20 * (clock.monotonic() - began + BURST_S + LEASE_S) + 1
        return received == 160

    wait_for(seen, "the end of both")
    for ticket in tickets:
        assert right(ticket.result(PATIENCE))


def test_redis_killed_in_mid_run_costs_no_reward(start: Start, provider: ServerProcess, redis: RedisServer) -> None:
    """Each job goes on with its own engines' memory and its part of the limit."""
    jobs = [start(patient=False, concurrency=4, rpm=60_000), start(patient=False, concurrency=4, rpm=60_000)]
    tickets = [job.submit(samples(200)) for job in jobs]
    wait_for(lambda: provider.stats().answered >= 20, "some work")
    redis.kill()
    for ticket in tickets:
        assert right(ticket.result(PATIENCE))
    assert 200 <= provider.stats().received <= 400
