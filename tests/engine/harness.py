"""A whole scorer against the simulated provider in virtual time: what tests of the engine stand on."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Mapping
from typing import Any

from msgspec import Struct

from referee.config import load
from referee.engine.port import Transport
from referee.errors import RefereeError
from referee.records import Reward, Sample, Unscored, Verdict
from referee.scoring.batch import Batch
from referee.scoring.build import build_scorer
from referee.scoring.local import Scorer
from referee.sim import Provider, ProviderSpec, SimTransport, Stats, run_virtual

HOST = "a.test"


class Run(Struct):
    """What a run left behind."""

    rewards: list[Reward | None]
    error: RefereeError | None
    stats: dict[str, Stats]
    seconds: float
    metrics: dict[str, float]

    @property
    def seen(self) -> Stats:
        """What the only provider saw."""
        return self.stats[HOST]

    def reasons(self) -> dict[str, int]:
        """How many samples ended in which reason; "scored" for those with a verdict."""
        counts: dict[str, int] = {}
        for reward in self.rewards:
            assert reward is not None
            name = "scored" if reward.scored else str(reward.verdict.reason)
            counts[name] = counts.get(name, 0) + 1
        return counts

    def verdicts(self) -> list[Verdict | Unscored]:
        """The ends, in order."""
        return [reward.verdict for reward in self.rewards if reward is not None]


def samples(count: int, name: str = "n", distinct: int | None = None) -> list[Sample]:
    """Samples whose right score is known: the simulated judge reads it in the response."""
    return [
        Sample(
            prompt="p",
            response=f"[[quality={n % (distinct or count) % 10 + 1}]] {name} {n % (distinct or count)}",
            id=str(n),
        )
        for n in range(count)
    ]


def expected(given: list[Sample]) -> list[float]:
    """The scores those samples deserve."""
    return [float(s.response.split("=")[1].split("]")[0]) for s in given]


def config_for(hosts: list[str], **sections: Any) -> Any:
    """A configuration with one endpoint per host; `endpoints` adds settings to each."""
    more = sections.pop("endpoints", [{}] * len(hosts))
    endpoints = [
        {"url": f"http://{host}/v1", "model": "m", "key_env": "", **extra}
        for host, extra in zip(hosts, more, strict=True)
    ]
    return load({"cache": {"path": ""}, **sections, "endpoint": endpoints})


def run(
    given: list[Sample],
    spec: ProviderSpec | Mapping[str, ProviderSpec],
    *,
    seed: int = 1,
    seconds: float | None = None,
    during: Callable[[Scorer, Batch], Any] | None = None,
    network: Callable[[Mapping[str, Provider]], Transport] = SimTransport,
    **sections: Any,
) -> Run:
    """Judge `given` in virtual time. `during(scorer, batch)` may return a coroutine to run beside it.
    `network` makes the transport."""
    specs = {HOST: spec} if isinstance(spec, ProviderSpec) else dict(spec)
    config = config_for(list(specs), **sections)
    providers = {host: Provider(s, seed + n) for n, (host, s) in enumerate(specs.items())}

    async def main() -> Run:
        scorer = build_scorer(config, network(providers), random.Random(seed), b"secret")
        rewards: list[Reward | None] = [None] * len(given)
        errors: list[RefereeError] = []

        def deliver(landed: list[Reward], error: RefereeError | None, done: bool) -> None:
            for reward in landed:
                assert rewards[reward.index] is None, "a reward is final once"
                rewards[reward.index] = reward
            if done and error is not None:
                errors.append(error)

        patience = config.limits.deadline if seconds is None else seconds
        batch = Batch("b", given, config, patience, deliver)
        loop = asyncio.get_running_loop()
        beside = during(scorer, batch) if during else None
        helper = asyncio.ensure_future(beside) if asyncio.iscoroutine(beside) else None
        await scorer.run(batch)
        took = loop.time()
        if helper is not None:
            await helper
        metrics = scorer.metrics()
        await scorer.aclose()
        assert scorer.engine.flying == 0
        assert all(endpoint.in_flight == 0 for endpoint in scorer.engine.endpoints), "every permit came back"
        stats = {host: provider.stats() for host, provider in providers.items()}
        return Run(rewards, errors[0] if errors else None, stats, took, metrics)

    return run_virtual(main())
