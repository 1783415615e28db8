"""Plays a scenario in virtual time against the whole pipeline and writes down what happened, send by send."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping
from unittest import mock

from msgspec import Struct, field
from tests.faults.scenario import Act, Scenario

from referee import clock
from referee.config import Config, load
from referee.engine import Response, Transport
from referee.errors import RefereeError
from referee.records import Reason, Reward, Unscored
from referee.scoring.batch import Batch
from referee.scoring.build import build_scorer
from referee.scoring.local import Scorer
from referee.sim import Provider, SimTransport, Stats, run_virtual

EPOCH = 1_700_000_000.0


class Heard(Struct):
    """What the caller of one batch got, and when."""

    act: Act
    rewards: dict[int, Reward] = field(default_factory=dict)
    twice: list[int] = field(default_factory=list)
    """Samples that were handed over more than once: there must be none."""
    error: RefereeError | None = None
    done: int = 0
    """How often it was said to be complete: once."""
    began: float = 0.0
    ended: float | None = None


class Play(Struct):
    """Everything seen."""

    scenario: Scenario
    config: Config
    heard: list[Heard]
    sends: list[tuple[float, str]]
    """When each request left, and where to."""
    stats: dict[str, Stats]
    metrics: dict[str, float]
    most_open: dict[str, int]
    left_over: list[str]
    """Tasks, permits or flights that should be gone."""

    def trace(self) -> list[object]:
        """What must be the same when the same seed is played again."""
        ends = [
            [(i, str(r.verdict), r.value) for i, r in sorted(heard.rewards.items())] + [str(heard.error), heard.ended]
            for heard in self.heard
        ]
        return [self.sends, ends]


class _Watched:
    """A transport that notes every send."""

    def __init__(self, inner: Transport) -> None:
        self._inner = inner
        self.sends: list[tuple[float, str]] = []

    async def post(self, url: str, headers: Mapping[str, str], body: bytes, timeout: float) -> Response:
        self.sends.append((clock.now(), url.split("/")[2]))
        return await self._inner.post(url, headers, body, timeout)

    async def close(self) -> None:
        await self._inner.close()


def _wall() -> float:
    return EPOCH + clock.now()


def play(scenario: Scenario) -> Play:
    """Run it to its end. Dates in headers follow virtual time too, or no two plays would be the same."""
    with mock.patch.object(clock, "wall", _wall):
        return run_virtual(_main(scenario))


async def _main(scenario: Scenario) -> Play:
    config = load(scenario.config, {})
    providers = {host: Provider(spec, scenario.seed + n) for n, (host, spec) in enumerate(scenario.specs.items())}
    transport = _Watched(SimTransport(providers))
    scorer = build_scorer(config, transport, random.Random(scenario.seed), b"secret")
    heard = [Heard(act) for act in scenario.acts]
    acting = [asyncio.ensure_future(_act(scorer, config, one, str(n))) for n, one in enumerate(heard)]
    if scenario.closed_at is not None:
        await clock.sleep(scenario.closed_at)
        await scorer.aclose()
        for task in acting:
            task.cancel()
    await asyncio.gather(*acting, return_exceptions=True)
    metrics = scorer.metrics()
    if scenario.closed_at is None:
        await scorer.aclose()
    left = [f"{scorer.engine.flying} flights"] if scorer.engine.flying else []
    left += [f"{e.in_flight} permits of {e.label}" for e in scorer.engine.endpoints if e.in_flight]
    await clock.breathe()
    left += [f"task {t.get_coro()}" for t in asyncio.all_tasks() if t is not asyncio.current_task()]
    stats = {host: provider.stats() for host, provider in providers.items()}
    most = {host: found.max_open for host, found in stats.items()}
    return Play(scenario, config, heard, transport.sends, stats, metrics, most, left)


async def _act(scorer: Scorer, config: Config, heard: Heard, name: str) -> None:
    act = heard.act
    await clock.sleep(act.at)

    def deliver(landed: list[Reward], error: RefereeError | None, done: bool) -> None:
        for reward in landed:
            if reward.index in heard.rewards:
                heard.twice.append(reward.index)
            heard.rewards[reward.index] = reward
        if done:
            heard.done += 1
            heard.error = error
            heard.ended = clock.now()

    heard.began = clock.now()
    batch = Batch(name, act.samples, config, config.limits.deadline, deliver)
    if act.cancelled_at is not None:
        why = Unscored(reason=Reason.CANCELLED, detail="cancelled by the caller")
        loop = asyncio.get_running_loop()
        clock.at(loop, loop.time() + act.cancelled_at, lambda: scorer.cancel(batch, why))
    await scorer.run(batch)
