"""Far sides that work for nobody else help each other out: nothing lost, nothing twice."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.engine.harness import expected, samples
from tests.runtime.fleet import Fleet, sail

from referee import clock
from referee.errors import TooManyUnscored
from referee.records import Reason, Unscored
from referee.runtime import routing
from referee.runtime.routing import route_key
from referee.sim import ProviderSpec

pytestmark = pytest.mark.slow

SLOW = ProviderSpec(latency_median=0.5, latency_sigma=0.3)
NOTHING_KEPT = {"enabled": False}


def test_work_for_one_is_done_by_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every sample belongs to one of four; the others have their share of it in the end."""
    monkeypatch.setattr(routing, "OWN_ROOM", 64)
    given = [sample for sample in samples(8000) if route_key(sample, str) % 4 == 2]

    async def story(fleet: Fleet) -> None:
        rewards = await fleet.submit(given, seconds=3000.0).result()
        assert [r.verdict.score for r in rewards] == expected(given)  # type: ignore[union-attr]
        asked = [host.worker.engine.endpoints[0].sent for host in fleet.hosts.values()]
        assert min(asked) > len(given) / 8

    fleet = sail(story, SLOW, alone=True, cache=NOTHING_KEPT, limits={"concurrency": 40})
    stats = fleet.providers["a.test"].stats()
    assert stats.received == len(given)
    assert stats.max_open <= 40


def test_where_nobody_else_would_find_it_everything_stays_in_its_place() -> None:
    """Verdicts in memory only: the next equal sample goes to the same far side, and must find it there."""
    given = [sample for sample in samples(8000) if route_key(sample, str) % 4 == 2]

    async def story(fleet: Fleet) -> None:
        await fleet.submit(given, seconds=3000.0).result()
        await fleet.submit(given, seconds=3000.0, name="again").result()
        assert [host.worker.engine.endpoints[0].sent for host in fleet.hosts.values()] == [0, 0, len(given), 0]

    sail(story, SLOW, alone=True, limits={"concurrency": 100})


@pytest.mark.parametrize("again", [0.01, 1.0])
def test_one_that_dies_loses_nothing(again: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two of three die at different times, while work moves between them: each sample lands and is recorded once."""
    monkeypatch.setattr(routing, "OWN_ROOM", 64)
    given = [sample for sample in samples(4000) if route_key(sample, str) % 3 != 0]

    async def story(fleet: Fleet) -> None:
        job = fleet.submit(given, seconds=3000.0)
        for number, moment in ((1, 3.0), (2, 4.0), (1, 9.0)):
            await clock.sleep(moment)
            await fleet.kill(number)
            await clock.sleep(again)
            fleet.revive(number)
        rewards = await job.result()
        assert [r.verdict.score for r in rewards] == expected(given)  # type: ignore[union-attr]

    sail(
        story, SLOW, hosts=3, alone=True, cache=NOTHING_KEPT, limits={"concurrency": 40}, ledger={"dir": str(tmp_path)}
    )
    lines = [json.loads(line) for path in tmp_path.glob("*.jsonl") for line in path.read_text().splitlines()]
    verdicts = [line.get("index", 0) for line in lines if line["type"] == "verdict"]
    assert sorted(verdicts) == list(range(len(given)))


def test_a_small_batch_does_not_wait_behind_a_large_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """What one caller has sent ahead is little; then the other has its turn."""
    monkeypatch.setattr(routing, "OWN_ROOM", 64)
    took: dict[str, float] = {}

    async def story(fleet: Fleet) -> None:
        large = fleet.submit(samples(6000, "large"), seconds=3000.0, caller="large")
        await clock.sleep(2.0)
        began = clock.now()
        await fleet.submit(samples(40, "small"), seconds=3000.0, name="s", caller="small").result()
        took["small"] = clock.now() - began
        await large.result()
        took["large"] = clock.now() - began

    sail(story, SLOW, hosts=2, alone=True, limits={"concurrency": 20})
    assert took["small"] < took["large"] / 10


@pytest.mark.parametrize("alone", [True, False])
def test_at_its_deadline_a_batch_sends_nothing_more(alone: bool) -> None:
    """What never left ends here; no far side gets it for a moment and asks in vain. The limit that one of them gives
    back when it ends is used by the other for that moment."""
    given = samples(30_000)
    jobs = []

    async def story(fleet: Fleet) -> None:
        job = fleet.submit(given, seconds=5.0)
        jobs.append(job)
        began = clock.now()
        await job.result()
        assert 4.8 < clock.now() - began < 5.1

    limits = {"concurrency": 400}
    fleet = sail(story, SLOW, hosts=2, alone=alone, cache=NOTHING_KEPT, limits=limits, missing={"abort_above": 1.0})
    stats = fleet.providers["a.test"].stats()
    assert stats.received - stats.answered <= 2 * 400
    assert set(jobs[0].reasons()) == {"scored", "deadline"}
    details = [r.verdict.detail for r in jobs[0].rewards if not r.scored]  # type: ignore[union-attr]
    assert sum(detail == "not judged within 5 s: still waiting for its turn" for detail in details) > 15_000


def test_what_is_over_does_not_stand_in_the_way() -> None:
    """A cancelled batch fills the queue of a far side that is idle; another batch's samples behind it are sent."""
    large = [sample for sample in samples(30_000, "large") if route_key(sample, str) % 2 == 1]
    small = [sample for sample in samples(500, "small") if route_key(sample, str) % 2 == 1]

    async def story(fleet: Fleet) -> None:
        job = fleet.submit(large, seconds=3000.0, caller="large")
        await clock.sleep(1.0)
        await fleet.kill(0)
        other = fleet.submit(small, seconds=60.0, name="s", caller="small")
        await clock.sleep(0.0001)
        fleet.remote.cancel(job.batch, Unscored(reason=Reason.CANCELLED))
        await other.result()
        assert other.reasons() == {"scored": len(small)}

    sail(story, ProviderSpec(latency_median=0.5), hosts=2, limits={"concurrency": 50}, missing={"abort_above": 1.0})


def test_after_a_cancel_nothing_is_said_to_be_in_flight() -> None:
    """Metrics are right although no further batch comes."""

    async def story(fleet: Fleet) -> None:
        job = fleet.submit(samples(6000), seconds=3000.0)
        await clock.sleep(1.0)
        assert fleet.remote.metrics()["in_flight"] > 0
        assert fleet.remote.metrics()["queued"] > 1000
        fleet.remote.cancel(job.batch, Unscored(reason=Reason.CANCELLED))
        await job.result()
        await clock.sleep(3.0)
        found = fleet.remote.metrics()
        assert (found["in_flight"], found["queued"]) == (0, 0)

    sail(
        story, SLOW, hosts=2, alone=True, cache=NOTHING_KEPT, limits={"concurrency": 200}, missing={"abort_above": 1.0}
    )


def test_turns_are_kept_while_one_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    """What belongs to it does not pile up in front of who comes later."""
    monkeypatch.setattr(routing, "OWN_ROOM", 64)
    monkeypatch.setattr(routing, "BACKLOG", 32)
    took: dict[str, float] = {}

    async def story(fleet: Fleet) -> None:
        large = fleet.submit(samples(6000, "large"), seconds=3000.0, caller="large")
        await clock.sleep(1.0)
        await fleet.kill(0)
        await clock.sleep(15.0)
        fleet.revive(0)
        began = clock.now()
        await fleet.submit(samples(40, "small"), seconds=3000.0, name="s", caller="small").result()
        took["small"] = clock.now() - began
        await large.result()
        took["large"] = clock.now() - began

    sail(story, SLOW, hosts=2, alone=True, cache=NOTHING_KEPT, limits={"concurrency": 20})
    assert took["small"] < took["large"] / 5


def test_what_the_dead_still_had_does_not_hold_up_a_batch_that_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    """Samples that were lost three times make too many unscored: all the rest ends with them, at once."""
    monkeypatch.setattr(routing, "OWN_ROOM", 0)

    async def story(fleet: Fleet) -> None:
        job = fleet.submit(samples(1000), seconds=3000.0)
        for moment in (0.1, 0.1, 0.5):
            await clock.sleep(moment)
            await fleet.kill(0)
            if moment == 0.5:
                break
            fleet.revive(0)
        began = clock.now()
        await job.done.wait()
        assert isinstance(job.error, TooManyUnscored)
        assert clock.now() - began < 0.5
        assert {"config", "cancelled", "scored"} == set(job.reasons())

    limits, missing = {"concurrency": 64}, {"abort_above": 0.01}
    sail(story, SLOW, hosts=1, alone=True, cache=NOTHING_KEPT, limits=limits, missing=missing)
