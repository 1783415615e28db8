"""Engines of the Ray runtime without Ray: a cluster in this process, lines to it that can be made bad, clients."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import msgspec

from referee.limits.quota_broker import Grant, Report
from referee.records import Reward, Sample
from referee.referee import Referee
from referee.runtime.ray import RayRuntime
from referee.runtime.ray_engine import BrokerActor, EngineActor, News, Opened
from referee.runtime.ray_settings import Sealed
from referee.scoring.build import worker_with
from referee.sim import Provider, ProviderSpec, SimTransport

PATIENCE = 50.0
CANARY = "canary-4f1d9e7c2b"
BASE: dict[str, Any] = {
    "endpoint": {"url": "http://sim.test/v1", "model": "m", "key_env": "", "price_in": 1.0, "price_out": 1.0},
    "cache": {"path": ""},
    "runtime": "ray",
}


class Cluster:
    """Engines by name, as Ray would keep them, and a line to them that can be made bad."""

    def __init__(self, spec: ProviderSpec) -> None:
        self.provider = Provider(spec, 1)
        self.build = worker_with(lambda: SimTransport(self.provider))
        self.engines: dict[str, EngineActor] = {}
        self._making = threading.Lock()
        self.gone: list[EngineActor] = []
        self.broker: BrokerActor | None = None
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, name="cluster", daemon=True)
        self._thread.start()
        self.lose_answers = 0
        self.refuse_calls = 0

    def attach(self, name: str, tag: str, rank: int, members: int) -> Line:
        with self._making:  # clients attach from threads of their own, and Ray makes a named actor once
            if name not in self.engines:
                self.engines[name] = Member(self, name, tag, rank, members)
            return Line(self, self.engines[name])

    def close(self) -> None:
        """End the process that the engines live in."""

        async def end() -> None:
            for engine in [*self.gone, *self.engines.values()]:
                await engine.close()
            for task in asyncio.all_tasks() - {asyncio.current_task()}:
                task.cancel()

        asyncio.run_coroutine_threadsafe(end(), self.loop).result(PATIENCE)
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(PATIENCE)
        self.loop.close()

    def kill(self) -> None:
        """Every engine is gone, with what it knew; calls to it fail."""
        died, self.engines = list(self.engines.values()), {}
        self.gone += died
        for engine in died:
            asyncio.run_coroutine_threadsafe(engine.close(), self.loop).result(PATIENCE)


class Member(EngineActor):
    """An engine whose broker stands beside it."""

    def __init__(self, cluster: Cluster, name: str, tag: str, rank: int, members: int) -> None:
        super().__init__(name, tag, rank, members, 3600.0, cluster.build)
        self._cluster = cluster

    async def _exchange(self, report: Report) -> Grant:
        if self in self._cluster.gone:
            raise ConnectionError("this engine is dead")
        if self._cluster.broker is None:
            limits = msgspec.msgpack.encode([self._config.limits, len(self._config.endpoint)])
            self._cluster.broker = BrokerActor("limits", limits, self._members, 3600.0)
        data = await self._cluster.broker.exchange(self._rank, self._id, msgspec.msgpack.encode(report))
        return msgspec.msgpack.decode(data, type=Grant)


class Line:
    """A handle: calls fail when the engine is gone, or when told to."""

    def __init__(self, cluster: Cluster, engine: EngineActor) -> None:
        self._cluster = cluster
        self._engine = engine

    async def _call(self, method: Callable[..., Any], *args: Any) -> Any:
        cluster = self._cluster
        if self._engine in cluster.gone:
            raise ConnectionError("the engine is dead")
        if cluster.refuse_calls:
            cluster.refuse_calls -= 1
            raise ConnectionError("refused")
        answer = asyncio.wrap_future(asyncio.run_coroutine_threadsafe(method(*args), cluster.loop))
        while not answer.done():
            await asyncio.wait([answer], timeout=0.01)
            if self._engine in cluster.gone:
                answer.cancel()
                raise ConnectionError("the engine died")
        if self._engine in cluster.gone:
            raise ConnectionError("the engine died")
        if cluster.lose_answers:
            cluster.lose_answers -= 1
            raise ConnectionError("the answer was lost")
        return answer.result()

    async def open(self, client: str, lines: int, heard: tuple[str, float], settings: Sealed) -> Opened:
        return Opened(*await self._call(self._engine.open, client, lines, heard, settings))

    async def send(self, client: str, number: int, messages: list[bytes]) -> str:
        return str(await self._call(self._engine.send, client, number, messages))

    async def poll(self, client: str, confirmed: int, wait: float) -> News:
        return News(*await self._call(self._engine.poll, client, confirmed, wait))

    async def leave(self, client: str) -> None:
        await self._call(self._engine.leave, client)


class Client(RayRuntime):
    """The runtime, with the simulated cluster in Ray's place."""

    cluster: Cluster

    def _attach(self, rank: int, name: str) -> Line:  # type: ignore[override]
        tag = name.split("-")[3]
        return self.cluster.attach(name, tag, rank, self._config.shards)


Make = Callable[..., Referee]
Start = Callable[..., Cluster]


def samples(count: int, start: int = 0) -> list[Sample]:
    return [
        Sample(prompt="p", response=f"[[quality={n % 10 + 1}]] {n}", id=str(n)) for n in range(start, start + count)
    ]


def scores(rewards: list[Reward]) -> list[float]:
    return [reward.verdict.score for reward in rewards]  # type: ignore[union-attr]


def wait_for(condition: Callable[[], bool]) -> None:
    done = threading.Event()
    for _ in range(int(PATIENCE / 0.01)):
        if condition():
            return
        done.wait(0.01)
    raise AssertionError("it did not happen")
