"""What workers report besides verdicts, and when: limits, costs, ends for lack of time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import pytest
from msgspec.structs import replace
from tests.engine.harness import samples
from tests.runtime.fleet import Fleet, sail
from tests.runtime.test_fleet import SLOW

from referee import clock
from referee.engine.identity import Change, ModelIdentity
from referee.judging import Deliberation, Form, make_judge
from referee.judging.registry import COMPOSED, Composed, Materials
from referee.records import Reason, Sample, Unscored
from referee.runtime.messages import decode_outbound, encode
from referee.scoring.messages import Gauge, Results, Update
from referee.sim import ProviderSpec


def test_the_limit_of_a_dead_host_is_forgotten() -> None:
    """What it sent still counts; what it was allowed to does not."""

    async def story(fleet: Fleet) -> None:
        remote = fleet.remote
        for number in (0, 1):
            remote.updated(number, Update(gauges=(Gauge("a.test", 200, 10, 100, 0),)))
        remote.lost(0)
        remote.ready(0)
        for number in (0, 1):
            remote.updated(number, Update(gauges=(Gauge("a.test", 5, 1, 150, 40),)))
        metrics = remote.metrics()
        assert (metrics["limit"], metrics["in_flight"], metrics["requests"]) == (5, 2, 400)

    sail(story, hosts=2)


def test_a_death_after_a_cancel_leaves_the_others_their_word() -> None:
    """What they have spent on the batch is counted, though one of them died with it."""

    async def story(fleet: Fleet) -> None:
        job = fleet.submit(samples(40), seconds=300.0)
        await clock.sleep(0.1)
        fleet.remote.cancel(job.batch, Unscored(reason=Reason.CANCELLED, detail="enough"))
        await fleet.kill(0)
        assert not job.batch.done
        await job.done.wait()
        ended = [reward.settled.attempts for reward in job.rewards if reward is not None]
        assert 0 < sum(ended) < 40, "those of the other one say that they were sent"

    sail(story, SLOW, hosts=2, missing={"abort_above": 1.0})


def test_a_client_that_goes_while_it_is_told() -> None:
    """Telling one may end another: all are told."""

    async def story(fleet: Fleet) -> None:
        host, told = fleet.hosts[0], list[str]()
        host._listening = {"one", "two"}

        def send(client: str, update: Update) -> None:
            told.append(client)
            host.forget(client)

        host._send = send
        host._tell()
        assert sorted(told) == ["one", "two"]

    sail(story, hosts=1)


def test_an_end_for_lack_of_time_does_not_wait_for_company() -> None:
    """Whoever waits for it is to be back at his deadline, whatever else is under way."""

    async def story(fleet: Fleet) -> None:
        fleet.submit(samples(400, "long"), seconds=300.0)
        short = fleet.submit(samples(40, "short"), seconds=5.0, name="short")
        await short.done.wait()
        assert short.reasons() == {"deadline": 40}
        assert clock.now() < 4.95

    sail(story, ProviderSpec(latency_median=1000.0), hosts=2, missing={"abort_above": 1.0})


class LateJudge:
    """Says of the first sample that its time is over."""

    unit: Literal["sample"] = "sample"

    def __init__(self, given: Materials) -> None:
        self._one = make_judge(replace(given.config, kind="score"), given.secret)

    def deliberate(self, given: Sequence[Sample], form: Form) -> Deliberation:
        """As any judge of the others."""
        verdicts = yield from self._one.deliberate(given, form)
        return (Unscored(reason=Reason.DEADLINE, detail="my own limit"),) if given[0].id == "0" else verdicts


def test_a_judges_own_deadline_is_not_that_of_the_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    """It ends its sample; what waits to be sent is judged."""
    monkeypatch.setitem(COMPOSED, "late", Composed(LateJudge))

    async def story(fleet: Fleet) -> None:
        job = fleet.submit(samples(2000), seconds=300.0)
        await job.done.wait()
        assert job.reasons() == {"deadline": 1, "scored": 1999}

    sections: dict[str, Any] = {
        "judge": {"kind": "late"},
        "limits": {"concurrency": 4},
        "missing": {"abort_above": 1.0},
    }
    sail(story, hosts=1, alone=True, **sections, cache={"enabled": False})


def test_a_changed_judge_is_told_once_by_all_workers_together() -> None:
    """Each of them sees the change, and sends all it has seen with every update."""

    async def story(fleet: Fleet) -> None:
        job = fleet.submit(samples(4))
        change = Change("a.test", ModelIdentity("old"), ModelIdentity("new"), 9e12)
        part = Results(1, ())
        message = Update((part,), changes=(change,))
        assert decode_outbound(encode(message)) == message
        for number in (0, 1, 0):
            fleet.remote.updated(number, message)
        await job.result()
        assert fleet.remote.metrics()["identity_changes"] == 1

    sail(story, hosts=2)
