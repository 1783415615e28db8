"""A client, several workers and their broker on one loop in virtual time, joined by encoded messages."""

from __future__ import annotations

import asyncio
import functools
import random
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from referee import clock
from referee.config import Config, load
from referee.engine.port import Transport
from referee.errors import RefereeError
from referee.limits import make_limit
from referee.limits.quota_broker import Broker, Grant, Report, SharedEndpoint
from referee.records import Reward, Sample
from referee.runtime.client import RemoteTracker
from referee.runtime.messages import Granted, decode_inbound, decode_outbound, encode
from referee.runtime.worker_engine import WorkerEngine
from referee.scoring.batch import Batch
from referee.scoring.build import worker_with
from referee.scoring.lines import Wanted
from referee.scoring.messages import Cancel, Update, Work
from referee.sim import Provider, ProviderSpec, SimTransport, run_virtual

TRAVEL = 0.002
"""Virtual seconds a message takes."""


class Fleet:
    """Hosts by number. `kill` ends one without a word; `revive` puts another in its place."""

    def __init__(
        self,
        config: Config,
        providers: dict[str, Provider],
        hosts: int,
        shared: bool = True,
        alone: bool = False,
        network: Callable[[dict[str, Provider]], Transport] = SimTransport,
    ) -> None:
        self.config = config
        self.providers = providers
        self._network = network
        self.remote = RemoteTracker(config, hosts, self._send, exclusive=alone)
        self.broker = Broker(
            [SharedEndpoint(make_limit(config.limits), config.limits.rpm, config.limits.tpm) for _ in config.endpoint],
            config.limits.budget_usd,
        )
        self.answering = True
        self.messages = 0
        self._shared = shared
        self.hosts: dict[int, WorkerEngine] = {}
        self._count = hosts
        self._made = 0
        for number in range(hosts):
            self.revive(number)

    def revive(self, number: int) -> None:
        """A new host in this place."""
        self._made += 1
        name, seed = f"{number}.{self._made}", self._made

        async def exchange(report: Report) -> Grant:
            await clock.sleep(TRAVEL)
            if not self.answering:
                raise ConnectionError("no broker")
            grant = self.broker.exchange(name, report, clock.now())
            await clock.sleep(TRAVEL)
            message = decode_inbound(encode(Granted(grant)))
            assert isinstance(message, Granted)
            return message.grant

        def emit(client: str, update: Update) -> None:
            self.messages += 1
            data = encode(update)
            if self.hosts.get(number) is host:
                self._later(lambda: self._landed(number, host, data))

        wanted = Wanted(self.config.ledger.content) if self.remote.recorder.kept else None
        host = WorkerEngine(
            self.config,
            emit,
            wanted=lambda _: wanted,
            exchange=exchange if self._shared else None,
            members=self._count,
            rank=number,
            build=worker_with(lambda: self._network(self.providers), random.Random(seed), b"secret"),
        )
        host.name = name  # type: ignore[attr-defined]
        self.hosts[number] = host
        self.remote.ready(number)

    async def kill(self, number: int) -> None:
        """The host ends in the middle of its work."""
        host = self.hosts.pop(number)
        self.broker.leave(host.name)  # type: ignore[attr-defined]
        await host.close()
        self.remote.lost(number)

    async def close(self) -> None:
        """End everything."""
        for host in self.hosts.values():
            await host.close()
        self.remote.close()

    def submit(self, given: Sequence[Sample], seconds: float | None = None, name: str = "b", caller: str = "") -> Job:
        """Send a batch out."""
        job = Job(len(given))
        limit = self.config.limits.deadline if seconds is None else seconds
        job.batch = Batch(name, given, self.config, limit, job.deliver)
        job.batch.caller = caller
        self.remote.submit(job.batch)
        return job

    def _landed(self, number: int, host: WorkerEngine, data: bytes) -> None:
        if self.hosts.get(number) is not host:
            return
        message = decode_outbound(data)
        assert isinstance(message, Update)
        self.remote.updated(number, message)

    def _send(self, number: int, messages: Sequence[Work | Cancel]) -> None:
        host = self.hosts[number]
        for data in [encode(message) for message in messages]:
            self._later(functools.partial(self._take, number, host, data))

    def _take(self, number: int, host: WorkerEngine, data: bytes) -> None:
        if self.hosts.get(number) is not host:
            return
        message = decode_inbound(data)
        if isinstance(message, Work):
            host.take(message)
        elif isinstance(message, Cancel):
            host.cancel(message)

    def _later(self, call: Callable[[], object]) -> None:
        loop = asyncio.get_running_loop()
        clock.at(loop, loop.time() + TRAVEL, call)


class Job:
    """One batch's rewards as they come."""

    batch: Batch

    def __init__(self, count: int) -> None:
        self.rewards: list[Reward | None] = [None] * count
        self.error: RefereeError | None = None
        self.done = asyncio.Event()

    def deliver(self, rewards: list[Reward], error: RefereeError | None, done: bool) -> None:
        """As a ticket takes them; every reward once."""
        for reward in rewards:
            assert self.rewards[reward.index] is None, "a reward is final once"
            self.rewards[reward.index] = reward
        if done:
            assert not self.done.is_set()
            self.error = error
            self.done.set()

    async def result(self) -> list[Reward]:
        """All rewards."""
        await self.done.wait()
        return [reward for reward in self.rewards if reward is not None]

    def reasons(self) -> dict[str, int]:
        """How many samples ended in which reason; "scored" for those with a verdict."""
        counts: dict[str, int] = {}
        for reward in self.rewards:
            assert reward is not None
            name = "scored" if reward.scored else str(reward.verdict.reason)
            counts[name] = counts.get(name, 0) + 1
        return counts


def sail(
    story: Callable[[Fleet], Coroutine[Any, Any, Any]],
    spec: ProviderSpec | None = None,
    *,
    hosts: int = 4,
    shared: bool = True,
    alone: bool = False,
    network: Callable[[dict[str, Provider]], Transport] = SimTransport,
    endpoint: dict[str, Any] | None = None,
    seed: int = 1,
    **sections: Any,
) -> Fleet:
    """Play a story in virtual time and return the fleet, closed."""
    target = {"url": "http://a.test/v1", "model": "m", "key_env": "", **(endpoint or {})}
    config = load({"cache": {"path": ""}, **sections, "endpoint": target})
    fleets: list[Fleet] = []

    async def main() -> None:
        fleet = Fleet(config, {"a.test": Provider(spec or ProviderSpec(), seed)}, hosts, shared, alone, network)
        fleets.append(fleet)
        await story(fleet)
        await fleet.close()
        for host in fleet.hosts.values():
            assert host.worker.engine.flying == 0

    run_virtual(main())
    return fleets[0]
