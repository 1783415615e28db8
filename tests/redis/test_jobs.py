"""Two jobs, each a process of its own, on one provider and one Redis: what is shared, and what a fault costs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.redis.server import PATIENCE, RedisServer, eventually
from tests.redis.worker import LONG, Job

from referee import clock
from referee.sim import ProviderSpec, ServerProcess, start_server_process

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

Start = Callable[..., Job]


@pytest.fixture
def provider() -> Iterator[ServerProcess]:
    """Answers after 50 ms, without limit."""
    with start_server_process(ProviderSpec(latency_median=0.05), seed=1) as process:
        yield process


@pytest.fixture
def start(server: RedisServer, provider: ServerProcess) -> Iterator[Start]:
    """Starts jobs that share the server and the provider, and nothing else."""
    made: list[Job] = []

    def begin(*, redis: dict[str, Any] | None = None, lease: float = LONG, **sections: Any) -> Job:
        redis = {"timeout": PATIENCE} if redis is None else redis
        config = {
            "endpoint": {"url": provider.url, "model": "m", "key_env": ""},
            "cache": {"path": ""},
            "redis": {"url": server.url, **redis},
            **sections,
        }
        made.append(Job(config, lease))
        return made[-1]

    yield begin
    for job in made:
        job.kill()


@pytest.mark.parametrize(("runtime", "count"), [("thread", 200), ("processes", 100), ("inline", 20)])
def test_two_jobs_pay_once_for_what_both_ask(provider: ServerProcess, start: Start, runtime: str, count: int) -> None:
    """Started together on the same samples, they send each of them once, between them, wherever judging runs."""
    jobs = [start(runtime=runtime, limits={"rpm": 60_000}) for _ in range(2)]
    for job in jobs:
        job.go(count)
    for job in jobs:
        job.check()
        assert job.end()["warnings"] == []
    assert provider.stats().received == count


def test_a_later_job_pays_nothing(provider: ServerProcess, start: Start) -> None:
    """What the first has judged, the second finds; what is new, it pays for."""
    first = start()
    first.go(50)
    first.check()
    first.end()
    second = start()
    second.go(80)
    second.check()
    assert second.end()["metrics"]["cache_hits"] == 50
    assert provider.stats().received == 80


@pytest.mark.parametrize("how", ["hung", "killed", "emptied"])
def test_a_fault_in_mid_run_costs_no_reward(
    provider: ServerProcess, server: RedisServer, start: Start, how: str
) -> None:
    """Redis stopped, killed, or started again empty: every reward is there and right, with one warning at most."""
    limits = {"concurrency": 8, "rpm": 60_000}
    jobs = [start(redis={}, limits=limits), start(redis={}, limits=limits)]
    for job in jobs:
        job.go(400)
    eventually(lambda: provider.stats().answered >= 40, "the jobs are at work")
    if how == "hung":
        server.freeze()
    else:
        server.kill()
    if how == "emptied":
        server.start()
    for job in jobs:
        job.check()
    for job in jobs:
        job.go(50, "other")
    for job in jobs:
        job.check()
        warnings = job.end()["warnings"]
        assert len(warnings) <= 1
        if how != "emptied":
            assert "Scoring goes on" in warnings[0]
    if how == "hung":
        server.thaw()
    assert 450 <= provider.stats().received <= 900, "at worst each pays for itself"


def test_a_job_killed_in_mid_run_is_outlived(provider: ServerProcess, start: Start) -> None:
    """Its locks run out, and the other job judges what it left."""
    victim, other = start(lease=1.0, limits={"concurrency": 2}), start(lease=1.0)
    victim.go(100)
    eventually(lambda: provider.stats().answered >= 4, "the first is at work")
    other.go(100)
    victim.kill()
    other.check()
    other.end()
    assert provider.stats().received <= 200


def test_calls_in_flight_are_limited_for_both_together(provider: ServerProcess, start: Start) -> None:
    """A fixed concurrency is one for all jobs with the same key, by the provider's own count."""
    limits = {"concurrency": 6}
    jobs = [start(limits=limits), start(limits=limits)]
    for number, job in enumerate(jobs):
        job.go(100, f"job{number}")
    for job in jobs:
        job.check()
        job.end()
    stats = provider.stats()
    assert stats.received == 200
    assert stats.max_open <= 6


@pytest.mark.parametrize("runtime", ["thread", "processes"])
def test_requests_per_minute_are_limited_for_both_together(provider: ServerProcess, start: Start, runtime: str) -> None:
    """The provider never sees more than a second's worth beyond the common limit; alone, each would send as many."""
    limits = {"rpm": 1200}
    jobs = [start(limits=limits, runtime=runtime) for _ in range(2)]
    began = clock.monotonic()
    for number, job in enumerate(jobs):
        job.go(80, f"job{number}")

    def seen() -> int:
        received = provider.stats().received
        assert received <= 20 * (clock.monotonic() - began + 2) + 1
        return received

    eventually(lambda: seen() == 160, "both are through")
    for job in jobs:
        job.check()
        job.end()


def test_tokens_per_minute_are_limited_for_both_together(provider: ServerProcess, start: Start) -> None:
    """Estimates are replaced by what was used, so the limit is used, and not passed."""
    limits = {"tpm": 120_000}
    jobs = [start(limits=limits, judge={"max_tokens": 50}), start(limits=limits, judge={"max_tokens": 50})]
    began = clock.monotonic()
    for number, job in enumerate(jobs):
        job.go(20, f"job{number}")

    def seen() -> int:
        stats = provider.stats()
        used = stats.tokens_in + stats.tokens_out
        assert used <= 2000 * (clock.monotonic() - began + 2) + 1000
        return stats.answered

    eventually(lambda: seen() == 40, "both are through")
    for job in jobs:
        job.check()
        job.end()
