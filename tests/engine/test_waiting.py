"""Who waits for what, and what happens when somebody stops: nothing leaks, nothing storms, nothing is forgotten."""

from __future__ import annotations

import asyncio
import gc
import random
from typing import Any

import pytest
from tests.engine.harness import config_for, run, samples

from referee.config import Config
from referee.engine import Flight
from referee.records import Reason, Reward, Sample, Unscored
from referee.scoring.batch import Batch
from referee.scoring.build import build_scorer
from referee.scoring.local import Scorer
from referee.sim import Provider, ProviderSpec, SimTransport, run_virtual

STOP = Unscored(reason=Reason.CANCELLED, detail="enough")


class Desk:
    """Several batches on one scorer, in virtual time."""

    def __init__(self, spec: ProviderSpec, **sections: Any) -> None:
        self.config: Config = config_for(["a.test"], **sections)
        self.provider = Provider(spec, 1)
        self.scorer: Scorer = build_scorer(self.config, SimTransport(self.provider), random.Random(1), b"secret")

    def batch(self, given: list[Sample], seconds: float = 300.0) -> tuple[Batch, list[Reward]]:
        landed: list[Reward] = []
        return Batch("b", given, self.config, seconds, lambda rewards, error, done: landed.extend(rewards)), landed

    def start(self, batch: Batch) -> asyncio.Task[None]:
        return asyncio.create_task(self.scorer.run(batch))


def reasons(landed: list[Reward]) -> set[str]:
    return {"scored" if r.scored else str(r.verdict.reason) for r in landed}


@pytest.mark.parametrize("after", [0.0, 0.5])
def test_a_stopped_batch_leaves_no_flight_behind(after: float) -> None:
    """Stopped before or after its requests went out, the same samples can be judged again at once."""

    async def main() -> None:
        desk = Desk(ProviderSpec(latency_median=1.0))
        first, _ = desk.batch(samples(5))
        task = desk.start(first)
        await asyncio.sleep(after)
        desk.scorer.cancel(first, STOP)
        await task
        assert desk.scorer.engine.flying == 0
        again, landed = desk.batch(samples(5))
        await desk.scorer.run(again)
        assert reasons(landed) == {"scored"}
        await desk.scorer.aclose()

    run_virtual(main())


def test_a_batch_that_joins_as_another_leaves_is_judged() -> None:
    """Cancelling one batch takes nothing from another that asks for the same."""

    async def main() -> None:
        desk = Desk(ProviderSpec(latency_median=1.0))
        one, _ = desk.batch(samples(5))
        task = desk.start(one)
        await asyncio.sleep(0.3)
        two, landed = desk.batch(samples(5))
        desk.scorer.cancel(one, STOP)
        await asyncio.gather(task, desk.start(two))
        assert reasons(landed) == {"scored"}
        await desk.scorer.aclose()

    run_virtual(main())


def test_when_the_payer_leaves_the_next_pays() -> None:
    """Money spent is in the record whoever stops waiting."""

    async def main() -> None:
        desk = Desk(ProviderSpec(latency_median=1.0), endpoints=[{"price_in": 10.0, "price_out": 10.0}])
        one, _ = desk.batch(samples(5))
        two, landed = desk.batch(samples(5))
        tasks = [desk.start(one), desk.start(two)]
        await asyncio.sleep(0.5)
        desk.scorer.cancel(one, STOP)
        await asyncio.gather(*tasks)
        assert {r.settled.origin for r in landed} == {"call"}
        assert desk.scorer.metrics()["cost_usd"] == pytest.approx(desk.scorer.metrics()["budget_spent_usd"])
        await desk.scorer.aclose()

    run_virtual(main())


def test_a_long_queue_cancelled_makes_room_for_the_next_batch() -> None:
    """A batch held back by a full window goes on when the other is cancelled."""

    async def main() -> None:
        desk = Desk(ProviderSpec(latency_median=1.0, capacity=20))
        long, _ = desk.batch(samples(2500))
        short, landed = desk.batch(samples(50, name="short"))
        tasks = [desk.start(long), desk.start(short)]
        await asyncio.sleep(1.5)
        desk.scorer.cancel(long, STOP)
        await asyncio.gather(*tasks)
        assert reasons(landed) == {"scored"}
        assert asyncio.get_running_loop().time() < 60
        await desk.scorer.aclose()

    run_virtual(main())


def test_the_batch_that_is_due_first_is_judged_first() -> None:
    """Of two batches larger than the window the earlier is done while the later has hardly begun; of a late one with a
    shorter deadline it is the other way round."""

    async def main(seconds: float) -> tuple[int, int]:
        desk = Desk(ProviderSpec(latency_median=1.0, capacity=20), limits={"concurrency": 20})
        first, landed = desk.batch(samples(600))
        second, later = desk.batch(samples(600, name="second"), seconds)
        tasks = [desk.start(first), desk.start(second)]
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        found = len(landed), len(later)
        desk.scorer.cancel(first, STOP)
        desk.scorer.cancel(second, STOP)
        await asyncio.gather(*tasks)
        await desk.scorer.aclose()
        return found

    done, begun = run_virtual(main(300.0))
    assert done == 600
    assert begun < 300
    begun, done = run_virtual(main(100.0))
    assert done == 600
    assert begun < 300


@pytest.mark.parametrize("size", [1, 500])
def test_another_callers_small_batch_does_not_wait_for_a_large_one(size: int) -> None:
    """5,000 samples of one caller, by themselves or in batches, stand before it; it has its share all the same."""

    async def main(callers: tuple[str, str]) -> int:
        desk = Desk(ProviderSpec(latency_median=1.0, capacity=20), limits={"concurrency": 20})
        given = samples(5000)
        large = [desk.batch(given[start : start + size]) for start in range(0, len(given), size)]
        small, landed = desk.batch(samples(64, name="small"))
        small.caller = callers[1]
        tasks = []
        for batch, _ in large:
            batch.caller = callers[0]
            tasks.append(desk.start(batch))
        await asyncio.sleep(1.0)
        await desk.start(small)
        assert reasons(landed) == {"scored"}
        before = sum(len(rewards) for _, rewards in large)
        for batch, _ in large:
            desk.scorer.cancel(batch, STOP)
        await asyncio.gather(*tasks)
        await desk.scorer.aclose()
        return before

    assert run_virtual(main(("", ""))) > 4000
    assert run_virtual(main(("a", "b"))) < 500


def test_a_failing_listener_does_not_starve_the_others() -> None:
    """An error in one batch's landing is logged; a batch on the same flight gets its rewards."""

    async def main() -> None:
        desk = Desk(ProviderSpec(latency_median=1.0))

        def broken(rewards: list[Reward], error: object, done: bool) -> None:
            raise RuntimeError("broken consumer")

        bad = Batch("x", samples(2), desk.config, 5.0, broken)
        good, landed = desk.batch(samples(2))
        task = desk.start(bad)
        await asyncio.sleep(0.1)
        await desk.scorer.run(good)
        assert reasons(landed) == {"scored"}
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await desk.scorer.aclose()

    run_virtual(main())


@pytest.mark.parametrize("fault", ["reset", "html", "cut", "http_503"])
def test_a_broken_provider_is_not_stormed(fault: str) -> None:
    """Thirty seconds of nothing but faults cost a few requests per second at most."""
    done = run(samples(20), ProviderSpec(faults={fault: 1.0}), seconds=30.0)  # type: ignore[dict-item]
    assert "scored" not in done.reasons()
    assert done.seen.received < 150


def test_retry_after_on_an_overload_is_obeyed() -> None:
    """503 with Retry-After pauses the endpoint like a 429 does."""
    spec = ProviderSpec(latency_median=0.5, outages=((0.0, 25.0),), retry_after="seconds", retry_after_s=30.0)
    done = run(samples(20), spec)
    assert done.reasons() == {"scored": 20}
    assert done.seen.received <= 100


def test_throttling_does_not_use_up_a_requests_patience_with_faults() -> None:
    """Many 429s and a few 5xx: every request is scored in the end."""
    spec = ProviderSpec(latency_median=0.5, faults={"throttle_none": 0.5, "http_500": 0.1})
    assert run(samples(100), spec, seconds=3000.0).reasons() == {"scored": 100}


@pytest.mark.parametrize("order", [("a.test", "b.test"), ("b.test", "a.test")])
def test_faults_at_the_primary_do_not_wake_or_block_on_the_backup(order: tuple[str, str]) -> None:
    """A retry waits for its healthy primary, whichever endpoint is written first."""
    specs = {host: ProviderSpec(latency_median=0.5, faults={"http_500": 0.05}) for host in order}
    endpoints = [{"backup": host == "b.test"} for host in order]
    done = run(samples(200), specs, endpoints=endpoints, limits={"concurrency": 32})
    assert done.reasons() == {"scored": 200}
    assert done.stats["b.test"].received == 0
    assert done.seconds < 30


def test_a_refused_sample_waits_for_the_other_judge() -> None:
    """However busy the other endpoint is, the one that declined is not asked again."""
    specs = {"a.test": ProviderSpec(faults={"refusal": 1.0}), "b.test": ProviderSpec(latency_median=5.0, capacity=2)}
    done = run(samples(20), specs, limits={"concurrency": 2})
    assert done.reasons() == {"scored": 20}
    assert done.stats["a.test"].received <= 20


def test_equal_samples_get_equal_ends_when_the_schema_form_fails() -> None:
    """Followers of a shared flight fall back to text as its leader does."""
    spec = ProviderSpec(latency_median=0.5, unsupported=("response_format",))
    assert run(samples(8, distinct=2), spec).reasons() == {"scored": 8}


def test_a_long_deadline_outlasts_a_long_outage() -> None:
    """A batch given an hour waits out an outage longer than limits.deadline."""
    spec = ProviderSpec(latency_median=1.0, outages=((0.0, 400.0),))
    assert run(samples(30), spec, seconds=3600.0).reasons() == {"scored": 30}


def test_an_open_ended_batch_gives_up_on_a_dead_provider() -> None:
    """Without a deadline, an outage of limits.deadline seconds ends everything that waits."""
    spec = ProviderSpec(outages=((0.0, 1e9),))
    done = run(samples(1500), spec, seconds=float("inf"), limits={"deadline": 100.0}, missing={"abort_above": 1.0})
    assert "scored" not in done.reasons()
    assert done.seconds < 210


@pytest.mark.parametrize("fault", ["cut", "html"])
def test_work_that_was_perhaps_billed_counts_against_the_budget(fault: str) -> None:
    """A reply lost on its way back may have cost its full price."""
    done = run(
        samples(300),
        ProviderSpec(latency_median=0.5, faults={fault: 0.9}),  # type: ignore[dict-item]
        endpoints=[{"price_in": 10.0, "price_out": 10.0}],
        limits={"budget_usd": 0.5},
        missing={"abort_above": 1.0},
    )
    assert done.metrics["budget_spent_usd"] <= 0.5
    assert done.seen.received < 60
    assert done.reasons()["budget"] > 200


def test_what_a_stopped_batch_has_spent_is_recorded() -> None:
    """Attempts and money of unfinished samples are in the metrics."""
    done = run(
        samples(20),
        ProviderSpec(latency_median=0.2, faults={"no_verdict": 0.9}),
        seconds=1.0,
        judge={"reply": "text", "ask_again": 1000},
        endpoints=[{"price_in": 10.0, "price_out": 10.0}],
    )
    assert done.metrics["cost_usd"] > 0
    assert done.metrics["attempts"] == done.seen.received


def test_time_between_steps_is_no_line_in_front_of_the_server() -> None:
    """A trainer judges a batch and goes on training for a while: the limit is the same when it comes back."""

    async def main() -> list[int]:
        desk = Desk(ProviderSpec(latency_median=0.6, latency_sigma=0.25, capacity=90))
        limits = []
        for step in range(4):
            batch, landed = desk.batch(samples(100, name=f"step {step}"))
            await desk.scorer.run(batch)
            assert reasons(landed) == {"scored"}
            limits.append(desk.scorer.engine.endpoints[0].limiter.limit)
            await asyncio.sleep(10.0)
        await desk.scorer.aclose()
        return limits

    assert min(run_virtual(main())) >= 60


def test_what_is_done_is_freed_without_the_collector() -> None:
    """Nothing of a judged, refused or stopped request leads back to itself: a trainer may well have switched the
    collector off, and where it runs it has little to do."""

    def flights() -> int:
        return sum(isinstance(thing, Flight) for thing in gc.get_objects())

    async def main() -> None:
        desk = Desk(ProviderSpec(latency_median=1.0, faults={"http_503": 0.2}), limits={"concurrency": 8})
        before = flights()
        judged, landed = desk.batch(samples(40))
        await desk.scorer.run(judged)
        assert reasons(landed) == {"scored"}
        stopped, _ = desk.batch(samples(40, name="other"))
        task = desk.start(stopped)
        await asyncio.sleep(0.5)
        assert flights() > before
        desk.scorer.cancel(stopped, STOP)
        await task
        await asyncio.sleep(5.0)
        assert flights() == before
        await desk.scorer.aclose()

    gc.collect()
    gc.disable()
    try:
        run_virtual(main())
    finally:
        gc.enable()


def test_small_batches_that_keep_coming_do_not_walk_past_one_that_waits() -> None:
    """A hundred clients of one sample each take every place as it comes free; who stands in line has his share."""

    async def main() -> None:
        desk = Desk(ProviderSpec(latency_median=1.0, capacity=16), limits={"concurrency": 16})
        big, landed = desk.batch(samples(200))
        big.caller = "big"
        over = asyncio.Event()
        most = 0

        async def client(number: int) -> None:
            nonlocal most
            turn = 0
            while not over.is_set():
                small, _ = desk.batch(samples(1, name=f"{number}-{turn}"), seconds=5.0)
                small.caller = "small"
                await desk.scorer.run(small)
                most = max(
                    most,
                    sum(
                        len(waiting)
                        for room in desk.scorer._worker._rooms.values()
                        for waiting in room._jobs._waiting.values()
                    ),
                )
                turn += 1

        clients = [asyncio.create_task(client(number)) for number in range(100)]
        await asyncio.sleep(2.0)
        await desk.scorer.run(big)
        over.set()
        await asyncio.gather(*clients)
        await desk.scorer.aclose()
        assert reasons(landed) == {"scored"}
        assert most < 200, "a batch that is over does not stay in line for long"

    run_virtual(main())


@pytest.mark.parametrize(("later", "more"), [(0.0, False), (0.019, False), (0.5, True)])
def test_batches_due_together_end_together(later: float, more: bool) -> None:
    """One that ends leaves room: another that is due at the same time does not ask in it what it gives up at once."""
    spec = ProviderSpec(latency_median=30.0, latency_sigma=0.0)

    async def beside(scorer: Scorer, first: Batch) -> None:
        batch = Batch("other", samples(500, "other"), scorer._config, first.seconds + later, lambda *_: None)
        await scorer.run(batch)
        assert batch.done

    found = run(samples(500), spec, seconds=10.0, during=beside, limits={"concurrency": 50})
    assert (found.seen.received > 50) == more
