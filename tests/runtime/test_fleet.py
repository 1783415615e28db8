"""Near side, far sides and broker together, in virtual time: nothing lost, nothing twice, one limit for all."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.engine.harness import expected, run, samples
from tests.runtime.fleet import Fleet, Job, sail

from referee import clock
from referee.errors import EndpointClosed, TooManyUnscored
from referee.records import Reason, Sample, Settled, Unscored, Verdict
from referee.runtime import routing
from referee.runtime.routing import route_key
from referee.scoring.messages import Result, Results, Update
from referee.sim import ProviderSpec

SLOW = ProviderSpec(latency_median=0.5, latency_sigma=0.3)


def test_every_sample_comes_back_in_its_place() -> None:
    """A thousand samples over four far sides."""
    given = samples(1000)

    async def story(fleet: Fleet) -> None:
        rewards = await fleet.submit(given).result()
        assert [r.verdict.score for r in rewards] == expected(given)  # type: ignore[union-attr]

    fleet = sail(story, SLOW)
    assert fleet.remote.outstanding == 0
    assert fleet.remote.metrics()["scored"] == 1000
    assert fleet.remote.metrics()["in_flight"] == 0


def test_identical_samples_meet() -> None:
    """Equal requests are paid once, whoever sends them, whether they are in the air or in the cache."""

    async def story(fleet: Fleet) -> None:
        jobs = [fleet.submit(samples(200, distinct=10), name=str(n)) for n in range(3)]
        for job in jobs:
            await job.result()
            assert job.reasons() == {"scored": 200}

    assert sail(story, SLOW).providers["a.test"].stats().received == 10


@pytest.mark.parametrize(("limit", "hosts"), [(10, 4), (1, 4), (3, 8), (64, 2)])
def test_the_limit_holds_for_all_together(limit: int, hosts: int) -> None:
    """The provider never sees more at once than `concurrency`, and everybody gets his turn."""

    async def story(fleet: Fleet) -> None:
        for part in range(3):
            await fleet.submit(samples(80, str(part)), seconds=3000.0).result()
            await clock.sleep(part)

    fleet = sail(story, SLOW, hosts=hosts, limits={"concurrency": limit})
    stats = fleet.providers["a.test"].stats()
    assert stats.max_open <= limit
    assert stats.answered == 240
    assert fleet.remote.metrics()["scored"] == 240


def test_a_limit_is_used_well_even_if_the_work_is_uneven() -> None:
    """When all work is at one far side, the whole limit goes there."""
    given = samples(4000)

    async def story(fleet: Fleet) -> None:
        await fleet.submit([s for s in given if route_key(s, str) % 4 == 2][:400], seconds=3000.0).result()

    fleet = sail(story, ProviderSpec(latency_median=1.0), limits={"concurrency": 20})
    stats = fleet.providers["a.test"].stats()
    assert stats.max_open == 20
    assert stats.seconds < 1.3 * 400 / 20


def test_an_adaptive_limit_is_found_as_by_one_engine() -> None:
    """Four engines that share what they learn find the provider's limit about as fast as one, and hurt it no more."""
    spec = ProviderSpec(latency_median=0.5, latency_sigma=0.2, capacity=60, retry_after="none")
    alone = run(samples(2000), spec, seconds=3000.0)

    async def story(fleet: Fleet) -> None:
        assert (await fleet.submit(samples(2000), seconds=3000.0).result())[0].scored

    stats = sail(story, spec).providers["a.test"].stats()
    assert stats.answered == 2000
    assert stats.seconds < 1.4 * alone.seen.seconds
    assert stats.refused < 3 * alone.seen.refused + 60


def test_a_pace_holds_for_all_together() -> None:
    """With `rpm` set, four engines keep to it as one would: the provider refuses nothing."""

    async def story(fleet: Fleet) -> None:
        job = fleet.submit(samples(900), seconds=3000.0)
        await job.result()
        assert job.reasons() == {"scored": 900}

    stats = sail(story, ProviderSpec(latency_median=0.3, rpm=300), limits={"rpm": 300}).providers["a.test"].stats()
    assert stats.refused == 0
    assert stats.seconds < 1.15 * 900 / 300 * 60


def test_a_pace_of_tokens_holds_for_all_together() -> None:
    """With `tpm` set, the provider refuses nothing, and the pace is used."""

    async def story(fleet: Fleet) -> None:
        await fleet.submit(samples(300), seconds=3000.0).result()

    spec = ProviderSpec(latency_median=0.3, tpm=60_000)
    stats = sail(story, spec, limits={"tpm": 60_000}, judge={"max_tokens": 64}).providers["a.test"].stats()
    assert stats.refused == 0
    assert stats.answered == 300


def test_a_request_larger_than_a_seconds_pace_still_passes() -> None:
    """A pace smaller than one request slows it down, and does not starve it."""

    async def story(fleet: Fleet) -> None:
        job = fleet.submit(samples(4), seconds=3000.0)
        await job.result()
        assert job.reasons() == {"scored": 4}

    sail(story, limits={"tpm": 600}, judge={"max_tokens": 64})


def test_a_budget_holds_for_all_together() -> None:
    """Money runs out for everybody at once; what was spent is within the budget; nothing hangs."""
    jobs: list[Job] = []

    async def story(fleet: Fleet) -> None:
        jobs.append(fleet.submit(samples(600), seconds=3000.0))
        await jobs[0].result()

    fleet = sail(
        story,
        SLOW,
        endpoint={"price_in": 10.0, "price_out": 10.0},
        limits={"budget_usd": 1.0, "concurrency": 20},
        judge={"max_tokens": 64},
        missing={"abort_above": 1.0},
    )
    reasons = jobs[0].reasons()
    stats = fleet.providers["a.test"].stats()
    spent = (stats.tokens_in + stats.tokens_out) * 10.0 / 1e6
    assert set(reasons) == {"scored", "budget"}
    assert 0.85 < spent <= 1.0
    assert fleet.remote.metrics()["budget_spent_usd"] == pytest.approx(spent)


def test_a_pause_the_server_asked_of_one_is_kept_by_all() -> None:
    """One Retry-After, and nobody knocks until it is over."""
    spec = ProviderSpec(latency_median=0.2, capacity=5, retry_after="seconds", retry_after_s=20.0)

    async def story(fleet: Fleet) -> None:
        job = fleet.submit(samples(200), seconds=3000.0)
        await job.result()
        assert job.reasons() == {"scored": 200}

    stats = sail(story, spec, limits={"concurrency": 8}).providers["a.test"].stats()
    assert stats.refused <= 8 * (1 + stats.seconds / 20.0)


@pytest.mark.parametrize("again", [0.1, 3.0])
def test_a_far_side_that_dies_loses_nothing(again: float, tmp_path: Path) -> None:
    """Its samples are judged by the next one; each stands in the ledger once."""
    given = samples(400)

    async def story(fleet: Fleet) -> None:
        job = fleet.submit(given, seconds=3000.0)
        for number in (1, 2, 1):
            await clock.sleep(2.0)
            await fleet.kill(number)
            await clock.sleep(again)
            fleet.revive(number)
        rewards = await job.result()
        assert [r.verdict.score for r in rewards] == expected(given)  # type: ignore[union-attr]

    fleet = sail(story, SLOW, limits={"concurrency": 10}, ledger={"dir": str(tmp_path)})
    lines = [json.loads(line) for path in tmp_path.iterdir() for line in path.read_text().splitlines()]
    verdicts = [line for line in lines if line["type"] == "verdict"]
    assert sorted(line.get("index", 0) for line in verdicts) == list(range(400))
    assert sorted(line["seq"] for line in verdicts) == list(range(1, 401))
    assert all(line["asked"] and line["system"] for line in verdicts)
    assert sum(line["type"] == "reward" for line in lines) == 400
    texts = [line["digest"] for line in lines if line["type"] == "text"]
    assert sorted(texts) == sorted({line["system"] for line in verdicts})
    assert [line["type"] for line in lines].count("limits") > 0
    assert fleet.providers["a.test"].stats().max_open <= 10


def test_a_sample_that_kills_its_far_side_is_given_up() -> None:
    """After three deaths with the same sample, the sample is unscored, and says so; the others are judged."""

    async def story(fleet: Fleet) -> None:
        job = fleet.submit(samples(40), seconds=3000.0)
        for _ in range(3):
            await clock.sleep(1.0)
            await fleet.kill(1)
            fleet.revive(1)
        await job.result()
        reasons = job.reasons()
        assert reasons["config"] > 0
        assert reasons["scored"] + reasons["config"] == 40

    sail(story, ProviderSpec(latency_median=4.0))


def test_the_deadline_holds_without_any_far_side() -> None:
    """Nobody is there: the batch still ends, unscored, and says why."""

    async def story(fleet: Fleet) -> None:
        for number in range(4):
            await fleet.kill(number)
        job = fleet.submit(samples(10), seconds=30.0)
        await job.result()
        assert job.reasons() == {"deadline": 10}
        assert clock.now() < 35.0

    sail(story)


def test_an_end_that_comes_twice_counts_once() -> None:
    """What was landed by the near side stays as it is."""

    async def story(fleet: Fleet) -> None:
        job = fleet.submit(samples(5))
        rewards = await job.result()
        other = Settled(verdict=Unscored(reason=Reason.TIMEOUT))
        fleet.remote.updated(0, Update((Results(1, tuple(Result(n, (other,)) for n in range(5))),)))
        assert all(r.scored for r in rewards)
        assert fleet.remote.metrics()["samples"] == 5

    sail(story)


def test_work_that_is_sent_twice_to_one_place_is_done_once() -> None:
    """A far side does not begin again what it is doing."""

    async def story(fleet: Fleet) -> None:
        job = fleet.submit(samples(20), seconds=300.0)
        await clock.sleep(0.1)
        fleet.remote.lost(0)
        fleet.remote.ready(0)
        await job.result()
        assert job.reasons() == {"scored": 20}

    assert sail(story, SLOW, hosts=1).providers["a.test"].stats().received == 20


def test_cancel_ends_everything_wherever_it_is() -> None:
    """What is out, what waits here, what is in the air: all of it ends as cancelled, soon."""

    async def story(fleet: Fleet) -> None:
        job = fleet.submit(samples(500), seconds=3000.0)
        await clock.sleep(1.0)
        fleet.remote.cancel(job.batch, Unscored(reason=Reason.CANCELLED, detail="enough"))
        await job.result()
        assert set(job.reasons()) == {"scored", "cancelled"}
        assert clock.now() < 5.0
        await clock.sleep(5.0)
        assert all(not host.pending for host in fleet.hosts.values())

    sail(story, SLOW, limits={"concurrency": 10})


def test_cancel_does_not_wait_for_the_dead() -> None:
    """A far side that is gone cannot say what it did; the batch ends without it."""

    async def story(fleet: Fleet) -> None:
        job = fleet.submit(samples(50), seconds=3000.0)
        await clock.sleep(0.1)
        fleet.remote.cancel(job.batch, Unscored(reason=Reason.CANCELLED))
        fleet.remote.lost(1)
        await job.result()
        assert job.reasons() == {"cancelled": 50}

    sail(story, ProviderSpec(latency_median=100.0))


def test_too_much_unscored_stops_the_batch() -> None:
    """The watch over missing scores sees all far sides' ends."""

    async def story(fleet: Fleet) -> None:
        job = fleet.submit(samples(600), seconds=3000.0)
        await job.result()
        assert isinstance(job.error, TooManyUnscored)
        assert job.reasons()["refused"] < 600

    sail(story, ProviderSpec(latency_median=0.2, faults={"refusal": 1.0}), limits={"concurrency": 10})


def test_a_closed_endpoint_is_told_once_and_clearly() -> None:
    """A wrong key found by any far side is the batch's error."""

    async def story(fleet: Fleet) -> None:
        job = fleet.submit(samples(100))
        await job.result()
        assert isinstance(job.error, EndpointClosed)
        assert job.error.reason == "auth"

    sail(story, ProviderSpec(key="right"))


def test_more_than_fits_waits_its_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """No far side holds more than its room, however much is submitted."""
    monkeypatch.setattr(routing, "SHARED_ROOM", 64)
    most = 0

    async def story(fleet: Fleet) -> None:
        nonlocal most
        job = fleet.submit(samples(1000), seconds=3000.0)
        while not job.done.is_set():
            most = max(most, *(host.pending for host in fleet.hosts.values()))
            await clock.sleep(0.1)
        assert job.reasons() == {"scored": 1000}

    sail(story, SLOW)
    assert most == 64


def test_ends_are_gathered() -> None:
    """Far fewer messages than samples."""

    async def story(fleet: Fleet) -> None:
        await fleet.submit(samples(2000), seconds=3000.0).result()

    fleet = sail(story, SLOW, hosts=2, limits={"concurrency": 100})
    assert fleet.messages < 2000 * 0.5 / 100 * 22 * 2 + 40


def test_groups_are_whole_though_their_members_are_not_together() -> None:
    """Shaping sees the group, wherever its samples were judged."""

    async def story(fleet: Fleet) -> None:
        given = [Sample(prompt="p", response=f"[[quality=5]] {n}", group=str(n % 5), length=n) for n in range(50)]
        rewards = await fleet.submit(given).result()
        assert {r.group: r.median_length for r in rewards} == {str(n): n + 22.5 for n in range(5)}

    sail(story, SLOW, shaping={"length": {"enable": True}})


def test_without_a_broker_each_keeps_its_part() -> None:
    """The broker goes away in the middle: the work goes on, within the limit once shares have come down."""

    async def story(fleet: Fleet) -> None:
        job = fleet.submit(samples(300), seconds=3000.0)
        await clock.sleep(3.0)
        fleet.answering = False
        await clock.sleep(20.0)
        fleet.answering = True
        await job.result()
        assert job.reasons() == {"scored": 300}

    stats = sail(story, SLOW, limits={"concurrency": 12}).providers["a.test"].stats()
    assert stats.max_open <= 12


def test_halves_of_characters_do_not_stop_a_batch() -> None:
    """A lone surrogate in a rollout travels as a question mark."""

    async def story(fleet: Fleet) -> None:
        rewards = await fleet.submit([Sample(prompt="p", response="[[quality=7]] \ud800")]).result()
        assert isinstance(rewards[0].verdict, Verdict)

    sail(story)
