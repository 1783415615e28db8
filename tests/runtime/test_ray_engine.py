"""Clients and engines of the Ray runtime without Ray: lost calls, lost engines, keys, money, ledger."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from referee.config import Config, Secret, load
from referee.errors import EndpointClosed, MissingKeyError, RefereeError
from referee.ledger.reader import read
from referee.limits.shares import Grant, Report
from referee.records import Reward, Sample
from referee.referee import Referee
from referee.runtime import ray_engine, ray_link
from referee.runtime.ray import RayRuntime
from referee.runtime.ray_engine import BrokerActor, EngineActor, News, Opened
from referee.runtime.ray_settings import Sealed, engine_names, far_config, key_tag, seal, unseal
from referee.scorer import Scorer, build_scorer
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
        self.engines: dict[str, EngineActor] = {}
        self.gone: list[EngineActor] = []
        self.broker: BrokerActor | None = None
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, name="cluster", daemon=True)
        self._thread.start()
        self.lose_answers = 0
        self.refuse_calls = 0

    def build(self, config: Config) -> Scorer:
        return build_scorer(config, SimTransport(self.provider))

    def attach(self, name: str, tag: str, rank: int, members: int) -> Line:
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


@pytest.fixture
def made() -> Iterator[list[Referee]]:
    found: list[Referee] = []
    yield found
    for referee in found:
        referee.close()


@pytest.fixture
def start(made: list[Referee]) -> Iterator[Callable[..., Cluster]]:
    started: list[Cluster] = []

    def start(**spec: Any) -> Cluster:
        started.append(Cluster(ProviderSpec(**spec)))
        return started[-1]

    yield start
    for referee in made:
        referee.close()
    for cluster in started:
        cluster.close()


@pytest.fixture
def connect(made: list[Referee]) -> Callable[..., Referee]:
    def connect(cluster: Cluster, **sections: Any) -> Referee:
        referee = Referee(load({**BASE, **sections}))
        client = Client(referee.config)
        client.cluster = cluster
        referee._runtime = client
        made.append(referee)
        return referee

    return connect


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


def test_two_clients_share_an_engine_and_its_cache(start: Start, connect: Make) -> None:
    """What one client had judged, the other gets from the cache, in its own order."""
    cluster = start()
    one, other = connect(cluster), connect(cluster)
    assert scores(one.score(samples(20))) == [n % 10 + 1 for n in range(20)]
    assert scores(other.score(samples(20))) == [n % 10 + 1 for n in range(20)]
    assert other.metrics()["cache_hits"] == 20
    assert len(cluster.engines) == 1


def test_equal_samples_of_two_clients_are_asked_once(start: Start, connect: Make) -> None:
    """One flight per key, whoever asks."""
    cluster = start(latency_median=0.3)
    one, other = connect(cluster), connect(cluster)
    tickets = [one.submit(samples(10)), other.submit(samples(10))]
    found = [ticket.result(PATIENCE) for ticket in tickets]
    assert scores(found[0]) == scores(found[1])
    assert cluster.provider.stats().received == 10


def test_one_limit_holds_for_all_clients(start: Start, connect: Make) -> None:
    """Three clients, one fixed limit: the provider never sees more at once."""
    cluster = start(latency_median=0.01)
    clients = [connect(cluster, limits={"concurrency": 5}) for _ in range(3)]
    tickets = [client.submit(samples(40, 100 * n)) for n, client in enumerate(clients)]
    for ticket in tickets:
        assert all(reward.scored for reward in ticket.result(PATIENCE))
    assert cluster.provider.stats().max_open <= 5


@pytest.mark.parametrize("shards", [1, 3])
def test_an_engine_lost_mid_batch_loses_nothing(start: Start, connect: Make, tmp_path: Path, shards: int) -> None:
    """Everything is sent again to the engine that takes its place; each sample is once in the ledger."""
    cluster = start(latency_median=0.02)
    referee = connect(cluster, ledger={"dir": str(tmp_path)}, limits={"concurrency": 6}, shards=shards)
    ticket = referee.submit(samples(300))
    wait_for(lambda: ticket.landed() > 20)
    cluster.kill()
    assert scores(ticket.result(PATIENCE)) == [n % 10 + 1 for n in range(300)]
    referee.close()
    lines = [line for line in read(tmp_path) if type(line).__name__ == "VerdictLine"]
    assert sorted(line.index for line in lines) == list(range(300))  # type: ignore[union-attr]


@pytest.mark.parametrize("trouble", ["refuse_calls", "lose_answers"])
def test_a_bad_line_costs_nothing_twice(
    start: Start, connect: Make, trouble: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Calls and answers that are lost are repeated; the engine still knows the work, and nothing is asked twice."""
    monkeypatch.setattr(ray_link, "MOST_AGAIN", 0.2)
    cluster = start(latency_median=0.02)
    referee = connect(cluster, cache={"enabled": False})
    referee.score(samples(1))
    ticket = referee.submit(samples(60, 1))
    for _ in range(4):
        setattr(cluster, trouble, 2)
        wait_for(lambda: getattr(cluster, trouble) == 0 or ticket.done())
    assert all(reward.scored for reward in ticket.result(PATIENCE))
    assert cluster.provider.stats().received == 61


def test_the_budget_outlives_the_engine(start: Start, connect: Make) -> None:
    """Money spent before an engine was lost counts for the one in its place."""
    cluster = start()
    referee = connect(cluster, limits={"budget_usd": 1.0})
    referee.score(samples(20))
    spent = referee.metrics()["budget_spent_usd"]
    assert spent > 0
    cluster.kill()
    referee.score(samples(20, 100))
    assert referee.metrics()["budget_spent_usd"] == pytest.approx(2 * spent, rel=0.2)


def test_money_is_not_counted_twice_after_a_cut(start: Start, connect: Make) -> None:
    """The same engine, met again, knows what it has spent."""
    cluster = start()
    referee = connect(cluster, limits={"budget_usd": 1.0})
    referee.score(samples(20))
    spent = referee.metrics()["budget_spent_usd"]
    cluster.refuse_calls = 2
    referee.score(samples(1, 50))
    assert referee.metrics()["budget_spent_usd"] == pytest.approx(spent, rel=0.2)


def test_a_forgotten_client_sends_its_work_again(start: Start, connect: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that was away too long has lost its place, not its samples."""
    cluster = start(latency_median=0.05)
    referee = connect(cluster, limits={"concurrency": 4})
    ticket = referee.submit(samples(100))
    wait_for(lambda: ticket.landed() > 4)
    (engine,) = cluster.engines.values()
    for client in list(engine._clients):
        cluster.loop.call_soon_threadsafe(engine._drop, client)
    assert all(reward.scored for reward in ticket.result(PATIENCE))


def test_a_client_that_vanishes_is_forgotten(start: Start, connect: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its lease runs out and its work is stopped: nobody pays for rewards that nobody will collect."""
    monkeypatch.setattr(ray_engine, "CLIENT_LEASE", 0.2)
    monkeypatch.setattr(ray_engine, "CHECK", 0.05)
    cluster = start(latency_median=0.2)
    referee = connect(cluster, limits={"concurrency": 2})
    referee.submit(samples(500))
    wait_for(lambda: cluster.provider.stats().received > 2)
    cluster.refuse_calls = 1_000_000_000
    (engine,) = cluster.engines.values()
    wait_for(lambda: not engine._clients)
    wait_for(lambda: engine._pending == 0)
    assert cluster.provider.stats().received < 500


def test_close_ends_whoever_waits(start: Start, connect: Make) -> None:
    """Closing with work out gives every sample an end, and the engine stops judging for us."""
    cluster = start(latency_median=60.0)
    referee = connect(cluster)
    ticket = referee.submit(samples(5))
    wait_for(lambda: cluster.provider.stats().received > 0)
    (engine,) = cluster.engines.values()
    referee.close()
    assert {str(reward.verdict.reason) for reward in ticket.result(PATIENCE)} == {"cancelled"}  # type: ignore[union-attr]
    assert not engine._clients


def test_a_closed_endpoint_is_one_clear_error(start: Start, connect: Make) -> None:
    """A wrong key fails the batch with the setting to change."""
    referee = connect(start(key="right"))
    with pytest.raises(EndpointClosed, match="key_env"):
        referee.score(samples(10))


def test_an_engine_that_cannot_start_says_why(start: Start, connect: Make) -> None:
    """Trouble at the far side is the caller's error, not silence, and later batches try again."""
    cluster = start()
    referee = connect(cluster)
    build, cluster.build = cluster.build, _broken  # type: ignore[method-assign]
    for _ in range(2):
        with pytest.raises(RefereeError, match="could not start: this cannot work"):
            referee.score(samples(2))
    cluster.build = build  # type: ignore[method-assign]
    cluster.kill()
    assert len(referee.score(samples(2))) == 2


def _broken(config: Config) -> Scorer:
    raise RefereeError("this cannot work")


def test_lines_come_as_each_client_wants_them(start: Start, connect: Make, tmp_path: Path) -> None:
    """One client keeps contents, one digests, one nothing; texts that lines refer to reach each of them."""
    cluster = start()
    full = connect(cluster, ledger={"dir": str(tmp_path / "full")})
    lean = connect(cluster, ledger={"dir": str(tmp_path / "lean"), "content": False})
    none = connect(cluster)
    for referee in (none, lean, full):
        referee.score(samples(3))
        referee.close()
    kinds = {}
    for name in ("full", "lean"):
        kinds[name] = [type(line).__name__ for line in read(tmp_path / name)]
    assert kinds["full"].count("VerdictLine") == kinds["lean"].count("VerdictLine") == 3
    assert kinds["full"].count("TextLine") == 1
    assert kinds["lean"].count("TextLine") == 0


def keyed(**endpoint: Any) -> Config:
    return load({**BASE, "endpoint": {**BASE["endpoint"], "url": "https://sim.test/v1", **endpoint}})


def test_a_key_is_not_where_it_can_be_seen() -> None:
    """Not in names, not in settings sent at first, not in what is sent on request unless opened."""
    config = keyed(api_key=Secret(CANARY))
    bare, full = seal(config, False), seal(config, True)
    assert CANARY not in "".join(engine_names(config))
    assert CANARY.encode() not in bare.open()
    assert CANARY.encode() in full.open()
    assert CANARY not in repr(full)
    kind, fields = full.__reduce__()[:2]
    assert all(CANARY.encode() not in field for field in fields)
    assert kind(*fields).open() == full.open()


def test_an_engine_finds_its_key_where_it_runs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A key of the node's own environment or file is used if it is the one the engine is named after."""
    monkeypatch.setenv("JUDGE_KEY", CANARY)
    config = keyed(key_env="JUDGE_KEY")
    tag = key_tag([Secret(CANARY)])
    found = unseal(seal(config, False), tag)
    assert found is not None
    assert found.endpoint[0].api_key is not None
    assert found.endpoint[0].api_key.reveal() == CANARY
    monkeypatch.setenv("JUDGE_KEY", "another")
    assert unseal(seal(config, False), tag) is None
    monkeypatch.delenv("JUDGE_KEY")
    assert unseal(Sealed(seal(config, False).open()), tag) is None
    with pytest.raises(MissingKeyError):
        seal(config, True)


def test_an_engine_without_a_key_asks_its_client(start: Start, connect: Make) -> None:
    """A key given in Python is sent only when the engine says that it needs it, and then works."""
    cluster = start(key=CANARY)
    endpoint = {**BASE["endpoint"], "url": "https://sim.test/v1", "api_key": CANARY}
    referee = connect(cluster, endpoint=endpoint)
    assert scores(referee.score(samples(3))) == [1, 2, 3]
    assert CANARY not in "".join(cluster.engines)


def test_different_keys_are_different_engines() -> None:
    """Limits belong to an account: another key is another engine, the same key the same one."""
    one, same, other = (keyed(api_key=Secret(key)) for key in (CANARY, CANARY, "other-key"))
    assert engine_names(one) == engine_names(same)
    assert engine_names(one) != engine_names(other)


def test_an_engine_is_named_after_what_matters_to_it(tmp_path: Path) -> None:
    """Shaping, ledger and policy are the client's own; endpoint, limits, judge and template are the engine's."""
    base = engine_names(load(BASE))
    assert engine_names(load({**BASE, "ledger": {"dir": "x"}, "shaping": {"coefficient": 0.1}})) == base
    assert engine_names(load({**BASE, "limits": {"rpm": 5}})) != base
    assert len(engine_names(load({**BASE, "shards": 3}))) == 3
    path = tmp_path / "template.txt"
    shipped = (Path(ray_engine.__file__).parent.parent / "judging" / "prompts" / "score.txt").read_text()
    path.write_text(shipped)
    config = load({**BASE, "judge": {"prompt_file": str(path)}})
    first = engine_names(config)
    path.write_text(shipped + "\nBe strict.")
    assert engine_names(config) != first


def test_paths_are_the_clients_own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A relative cache path means the client's folder, wherever the engine's process happens to stand."""
    monkeypatch.chdir(tmp_path)
    config = far_config(load({**BASE, "cache": {"path": "cache.sqlite"}}))
    assert config.cache.path == str(tmp_path / "cache.sqlite")
