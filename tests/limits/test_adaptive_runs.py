"""What the adaptive limit reaches on whole runs, against a client that knows the capacity. Virtual time, fixed seeds.

The figures are in docs/design/adaptive-limit.md; the assertions leave a margin. Service times are lognormal, median 2 s
and sigma 0.6, so the last requests of a batch end long after the rest: even a client that knows the capacity needs
about 1.15 times work / capacity for 1024 samples. Efficiency here is its time over ours.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

import pytest
from tests.limits.simulated import (
    Job,
    Provider,
    Queueing,
    Quota,
    RateLimited,
    Refusing,
    Reply,
    Result,
    Sharing,
    World,
    always,
    lognormal_jobs,
    run,
    token_jobs,
)

from referee.limits import AdaptiveLimit, Breaker, FixedLimit, Outcome

SEEDS = [1, 2]


def compare(make: Callable[[], Provider], capacity: int, jobs: list[Job]) -> tuple[Result, float, float]:
    """Our run, and how the whole of it and its middle part compare with a client that knows the capacity."""
    known = run(FixedLimit(capacity), make(), jobs)
    ours = run(AdaptiveLimit(512), make(), jobs)
    steady = ours.throughput(*ours.steady()) / known.throughput(*known.steady())
    return ours, known.makespan / ours.makespan, steady


@pytest.mark.parametrize("seed", SEEDS)
def test_one_batch_on_a_server_that_refuses(seed: int) -> None:
    """1024 samples, unknown capacity of 60: at least 0.97 of the ideal, start included; hardly anything refused."""
    ours, efficiency, _ = compare(lambda: Refusing(always(60)), 60, lognormal_jobs(1024, seed))
    assert efficiency > 0.97
    assert ours.refused < 0.015 * ours.sent


@pytest.mark.parametrize("seed", SEEDS)
def test_one_batch_on_a_server_that_queues(seed: int) -> None:
    """The same without refusals."""
    _, efficiency, _ = compare(lambda: Queueing(always(60)), 60, lognormal_jobs(1024, seed))
    assert efficiency > 0.98


@pytest.mark.parametrize("seed", SEEDS)
def test_steady_state_on_a_server_that_refuses(seed: int) -> None:
    """Over a long run: 0.95 of work / capacity even with ramp and tail, and far fewer than 2 % refused."""
    jobs = lognormal_jobs(6000, seed)
    ours, efficiency, steady = compare(lambda: Refusing(always(60)), 60, jobs)
    assert steady > 0.97
    assert efficiency > 0.97
    assert sum(job.seconds for job in jobs) / 60 / ours.makespan > 0.94
    assert ours.refused < 0.01 * ours.sent


@pytest.mark.parametrize("jobs", [lognormal_jobs(6000, 1), token_jobs(6000, 2)], ids=["unrelated", "by tokens"])
def test_steady_state_on_a_server_that_queues(jobs: list[Job]) -> None:
    """Over a long run the server never idles, and its queue is bounded."""
    ours, efficiency, steady = compare(lambda: Queueing(always(60)), 60, jobs)
    assert steady > 0.97
    assert efficiency > 0.97
    assert ours.mean_in_flight(*ours.steady()) < 2.3 * 60
    assert ours.peak_in_flight(ours.steady()[0]) < 3.5 * 60


def test_heavy_tails_leave_the_server_busy() -> None:
    """With latencies spread over a factor of a hundred."""
    ours, efficiency, _ = compare(lambda: Queueing(always(60)), 60, lognormal_jobs(3000, 3, sigma=1.0))
    assert efficiency > 0.93
    assert ours.mean_in_flight(*ours.steady()) < 2 * 60


@pytest.mark.parametrize("seed", [2, 4])
@pytest.mark.parametrize(("capacity", "least"), [(60, 0.95), (200, 0.93), (10**9, 0.94)])
def test_a_heavy_tail_is_not_taken_for_a_queue(capacity: int, least: float, seed: int) -> None:
    """Sigma 1.3: one reply takes a thousand times as long as another. Small and large servers that queue are used as by
    a client that knows them, in one batch."""
    jobs = lognormal_jobs(1024, seed, sigma=1.3)
    _, efficiency, _ = compare(lambda: Queueing(always(capacity)), min(capacity, 512), jobs)
    assert efficiency > least


@pytest.mark.parametrize("seed", SEEDS)
def test_a_heavy_tail_does_not_end_the_ramp(seed: int) -> None:
    """Slots fill with slow replies after a start, so throughput falls; new requests are served as before. Without a
    capacity, the ceiling is reached in a few rounds and held."""
    ours = run(AdaptiveLimit(512), Queueing(always(10**9)), lognormal_jobs(6000, seed, sigma=1.3))
    assert next(t for t, limit, _ in ours.levels if limit >= 512) < 5 * 4.7
    assert ours.mean_in_flight(*ours.steady()) > 0.95 * 512


def test_a_long_run_on_a_degrading_server_never_breaks() -> None:
    """Probing a level again long after the ramp measured it: no division by zero."""
    ours = run(AdaptiveLimit(512), Sharing(lambda n: max(1.0, n / 90) ** 2), lognormal_jobs(4000, 7))
    assert ours.done == 4000


@pytest.mark.parametrize(("power", "least"), [(1.0, 0.96), (1.5, 0.93), (2.0, 0.89)])
def test_server_that_slows_down_under_load(power: float, least: float) -> None:
    """Beyond 60 everything gets slower, with no gain (1) or a loss (1.5, 2) in all: it stays near 60."""
    ours, efficiency, _ = compare(lambda: Sharing(lambda n: max(1.0, n / 60) ** power), 60, lognormal_jobs(4000, 1))
    assert efficiency > least
    assert ours.mean_in_flight(*ours.steady()) < 2 * 60


def test_a_batching_server_is_loaded_as_long_as_it_gains() -> None:
    """Each request slows the others a little, and total throughput still rises."""
    jobs = lognormal_jobs(5000, 1)
    ours = run(AdaptiveLimit(512), Sharing(lambda n: 1 + n / 60), jobs)
    timid = run(FixedLimit(60), Sharing(lambda n: 1 + n / 60), jobs)
    assert timid.makespan / ours.makespan > 1.2
    assert ours.mean_in_flight(*ours.steady()) < 350


def changing(now: float) -> int:
    return 60 if now < 80 else 20 if now < 160 else 120


def test_capacity_changes_on_a_server_that_refuses() -> None:
    """60, then 20, then 120 at once: found again each time, with few refusals."""
    ours = run(AdaptiveLimit(512), Refusing(changing), lognormal_jobs(5500, 1))
    assert ours.throughput(120, 160) > 0.9 * 20 / 2.4
    assert ours.throughput(190, 210) > 0.8 * 120 / 2.4
    assert ours.refused < 0.02 * ours.sent


def test_capacity_changes_on_a_server_that_queues() -> None:
    """Without refusals: followed down without idling, and up within a minute."""
    jobs = lognormal_jobs(6000, 2)
    ours = run(AdaptiveLimit(512), Queueing(changing), jobs)
    assert ours.throughput(120, 160) > 0.9 * 20 / 2.4
    assert ours.makespan < 1.15 * (160 + (sum(job.seconds for job in jobs) - 80 * 80) / 120)


def test_a_server_that_grows_twentyfold_is_not_climbed_step_by_step() -> None:
    """Capacity 20, then 400, without refusals: found within a minute, most of which is the time to the next probe. The
    mean of six seeds, since single comparisons of small levels are noisy."""
    ratios = []
    for seed in range(1, 7):
        jobs = lognormal_jobs(12_000, seed)
        ours = run(AdaptiveLimit(512), Queueing(lambda now: 20 if now < 100 else 400), jobs)
        ratios.append(ours.makespan / (100 + (sum(job.seconds for job in jobs) - 100 * 20) / 400))
    assert sum(ratios) / len(ratios) < 1.23


def test_server_that_refuses_first_and_queues_later() -> None:
    """When refusals end because the server now queues, the queue does not grow without end."""

    @dataclass
    class Both:
        refusing: Refusing
        queueing: Queueing

        def send(self, world: World, job: Job, reply: Reply) -> None:
            (self.refusing if world.now < 60 else self.queueing).send(world, job, reply)

    ours = run(AdaptiveLimit(512), Both(Refusing(always(60)), Queueing(always(60))), lognormal_jobs(6000, 1))
    assert ours.mean_in_flight(150, ours.finished_at[5400]) < 2 * 60


@pytest.mark.parametrize(("capacity", "count", "most_refused"), [(1, 200, 90), (4, 600, 90)])
def test_small_servers_that_refuse(capacity: int, count: int, most_refused: int) -> None:
    """Capacity 1 or 4: full use from the start; the first burst and the probes are refused."""
    ours, efficiency, _ = compare(lambda: Refusing(always(capacity)), capacity, lognormal_jobs(count, 1))
    assert efficiency > 0.97
    assert ours.refused < most_refused


def test_large_server() -> None:
    """A capacity of 500 is found within seconds."""
    ours, efficiency, steady = compare(lambda: Refusing(always(500)), 500, lognormal_jobs(8000, 1))
    assert steady > 0.95
    assert efficiency > 0.85
    assert ours.refused < 0.01 * ours.sent


def test_no_limit_at_all() -> None:
    """It doubles every round trip up to the ceiling and stays there."""
    ours = run(AdaptiveLimit(512), Queueing(always(10**9)), lognormal_jobs(6000, 1))
    assert next(t for t, limit, _ in ours.levels if limit >= 512) < 6 * 2.4
    assert ours.mean_in_flight(*ours.steady()) > 0.95 * 512


def test_server_that_sheds_load_with_503() -> None:
    """503 works as well as 429."""
    _, efficiency, steady = compare(lambda: Refusing(always(60), "overloaded"), 60, lognormal_jobs(5000, 1))
    assert efficiency > 0.93
    assert steady > 0.93


def test_limit_on_rate_instead_of_concurrency() -> None:
    """25 requests per second without headers: close to it, with few refusals."""
    ours, efficiency, _ = compare(lambda: RateLimited(25), 60, lognormal_jobs(5000, 1))
    assert efficiency > 0.72
    assert ours.refused < 0.03 * ours.sent


@pytest.mark.parametrize("outcome", ["throttled", "overloaded"])
@pytest.mark.parametrize("share", [0.01, 0.05])
def test_refusals_by_chance_cost_little(outcome: Outcome, share: float) -> None:
    """A provider that refuses one in a hundred or one in twenty at random is still used to the full."""

    @dataclass
    class Random:
        inner: Provider
        rng: random.Random

        def send(self, world: World, job: Job, reply: Reply) -> None:
            if self.rng.random() < share:
                world.at(world.now + 0.05, lambda: reply(outcome))
            else:
                self.inner.send(world, job, reply)

    _, efficiency, _ = compare(lambda: Random(Refusing(always(60)), random.Random(3)), 60, lognormal_jobs(5000, 1))
    assert efficiency > 0.9


@pytest.mark.parametrize("seconds", [0.5, 2.0])
def test_server_that_refuses_slowly(seconds: float) -> None:
    """Late refusals say less about what was accepted; it still finds the edge."""

    class Slow(Refusing):
        def send(self, world: World, job: Job, reply: Reply) -> None:
            if self.busy >= self.capacity(world.now):
                world.at(world.now + seconds, lambda: reply("throttled"))
            else:
                super().send(world, job, reply)

    ours, efficiency, _ = compare(lambda: Slow(always(60)), 60, lognormal_jobs(5000, 1))
    assert efficiency > 0.95
    assert ours.refused < 0.025 * ours.sent


def test_quota_per_minute_without_headers() -> None:
    """Few probes while it is exhausted; the next minutes are used in full, and not passed."""
    ours = run(AdaptiveLimit(512), Quota(600), lognormal_jobs(3000, 1), Breaker())
    assert ours.refused < 0.015 * ours.sent
    assert ours.makespan < 1.1 * (4 * 60 + 8)


def test_a_server_that_loses_capacity_is_not_stormed() -> None:
    """60, then 20: more is in flight than the new capacity, and the breaker allows single probes."""
    ours = run(AdaptiveLimit(512), Refusing(lambda now: 60 if now < 40 else 20), lognormal_jobs(1500, 1), Breaker())
    assert ours.refused < 0.04 * ours.sent
    assert ours.throughput(60, 80) > 0.85 * 20 / 2.4


@pytest.mark.parametrize(("capacity", "median", "count"), [(1, 2.0, 150), (4, 2.0, 400), (8, 8.0, 300)])
def test_small_servers_that_queue_with_timeouts(capacity: int, median: float, count: int) -> None:
    """A start far above the capacity leads to timeouts; it comes down before they waste the work."""
    jobs = [Job(min(job.seconds, 36.0)) for job in lognormal_jobs(count, 1, median=median)]
    ours = run(AdaptiveLimit(512), Queueing(always(capacity)), jobs, timeout=60.0)
    assert sum(job.seconds for job in jobs) / capacity / ours.makespan > 0.8
    assert ours.sent < 1.4 * ours.done


def test_runs_repeat_exactly() -> None:
    """The same seed gives the same run: nothing reads a clock or draws its own random numbers."""
    runs = [run(AdaptiveLimit(512), Refusing(always(60)), lognormal_jobs(500, 5)) for _ in range(2)]
    assert runs[0].finished_at == runs[1].finished_at
    assert runs[0].levels == runs[1].levels
