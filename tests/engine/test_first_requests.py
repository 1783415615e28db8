"""How soon an idle judge gets its first requests."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest
from tests.engine.harness import samples
from tests.engine.test_waiting import Desk

from referee.engine.port import Response
from referee.judging.kind import Deliberation, Form, Judge
from referee.records import Sample
from referee.scoring.build import build_scorer
from referee.sim import ProviderSpec, SimTransport, run_virtual


class Connecting(SimTransport):
    """It takes a turn of the loop to connect."""

    async def post(self, url: str, headers: Mapping[str, str], body: bytes, timeout: float) -> Response:
        await asyncio.sleep(0)
        return await super().post(url, headers, body, timeout)


class Noting:
    """A judge that says when it is asked to plan."""

    def __init__(self, judge: Judge, note: Callable[[], None]) -> None:
        self._judge = judge
        self._note = note
        self.unit = judge.unit

    def deliberate(self, samples: Sequence[Sample], form: Form) -> Deliberation:
        self._note()
        return self._judge.deliberate(samples, form)


class Watched(Desk):
    """Notes how many requests the provider had when each sample was planned."""

    def __init__(self, spec: ProviderSpec, **sections: Any) -> None:
        super().__init__(spec, **sections)
        self.scorer = build_scorer(self.config, Connecting(self.provider), random.Random(1), b"secret")
        self.had: list[int] = []
        worker = self.scorer._worker
        worker._judges = [
            Noting(judge, lambda: self.had.append(self.provider.stats().received)) for judge in worker._judges
        ]


def test_the_first_are_sent_before_the_next_are_planned() -> None:
    """As long as the provider has nothing to do, a few at a time; beside other work, as many as a turn may take."""

    async def main() -> None:
        desk = Watched(ProviderSpec(latency_median=1.0), limits={"concurrency": 500})
        first, _ = desk.batch(samples(100))
        one = desk.start(first)
        await asyncio.sleep(0.1)
        assert desk.had == [*(at // 8 * 8 for at in range(64)), *[64] * 36]
        second, _ = desk.batch(samples(40, "other"))
        two = desk.start(second)
        await asyncio.gather(one, two)
        assert desk.had[100:132] == [100] * 32
        await desk.scorer.aclose()

    run_virtual(main())


def test_larger_steps_where_a_turn_takes_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody holds the interpreter's lock: each turn costs milliseconds, so there are few."""

    async def slow() -> None:
        await asyncio.sleep(0.004)

    async def main() -> None:
        desk = Watched(ProviderSpec(latency_median=1.0), limits={"concurrency": 500})
        monkeypatch.setattr("referee.scoring.worker.clock.breathe", slow)
        batch, _ = desk.batch(samples(72))
        await desk.scorer.run(batch)
        assert desk.had == [*[0] * 8, *[8] * 32, *[40] * 32]
        await desk.scorer.aclose()

    run_virtual(main())
