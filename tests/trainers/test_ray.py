"""Engines on a real Ray cluster, shared by processes that know nothing of each other, and losing them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.trainers.ray_tools import PATIENCE, local_ray, wait_for

from referee.config import Config, load
from referee.ledger.reader import read
from referee.records import Sample
from referee.referee import Referee
from referee.runtime.ray import look, shutdown
from referee.runtime.ray_cluster import find
from referee.runtime.ray_settings import broker_name, engine_names
from referee.sim import ProviderSpec, start_server_process
from referee.sim.process import ServerProcess

pytest.importorskip("ray")

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300), pytest.mark.filterwarnings("default")]

LATENCY = 0.03


@pytest.fixture(scope="module")
def ray() -> Iterator[Any]:
    """One cluster for the module."""
    yield from local_ray()


@pytest.fixture
def server() -> Iterator[ServerProcess]:
    """A provider that takes a moment."""
    with start_server_process(ProviderSpec(latency_median=LATENCY)) as found:
        yield found


@pytest.fixture
def config(ray: Any, server: ServerProcess) -> Iterator[Config]:
    """Settings of its own for each test, so engines of its own, which end with it."""
    found = load(settings(server))
    yield found
    shutdown(found)


def settings(server: ServerProcess, **sections: Any) -> dict[str, Any]:
    return {
        "endpoint": {"url": server.url, "model": "m", "key_env": "", "price_in": 1.0, "price_out": 1.0},
        "cache": {"path": ""},
        "limits": {"concurrency": 7, "deadline": PATIENCE},
        "runtime": "ray",
        **sections,
    }


def samples(count: int, start: int = 0) -> list[Sample]:
    return [
        Sample(prompt="p", response=f"[[quality={n % 10 + 1}]] {n}", id=str(n)) for n in range(start, start + count)
    ]


def make_workers(ray: Any, source: dict[str, Any], count: int) -> list[Any]:
    """Asynchronous actors with a Referee each, as verl's reward workers are."""

    @ray.remote(num_cpus=0)
    class Worker:
        def __init__(self, source: dict[str, Any]) -> None:
            from referee import Referee

            self.referee = Referee.from_config(source)
            self.ticks = 0

        async def score(self, start: int, count: int, blocking: bool = False) -> list[Any]:
            import asyncio

            from referee import Sample

            given = [Sample(prompt="p", response=f"[[quality={n % 10 + 1}]] {n}") for n in range(start, start + count)]

            async def tick() -> None:
                while True:
                    await asyncio.sleep(0.005)
                    self.ticks += 1

            beat = asyncio.get_running_loop().create_task(tick())
            rewards = self.referee.score(given) if blocking else await self.referee.ascore(given)
            beat.cancel()
            return [(reward.value, reward.settled.origin) for reward in rewards]

        async def state(self) -> tuple[int, dict[str, float]]:
            return self.ticks, self.referee.metrics()

        def close(self) -> None:
            self.referee.close()

    return [Worker.remote(source) for _ in range(count)]


def values(start: int, count: int) -> list[float]:
    return [n % 10 / 9 for n in range(start, start + count)]


def engine_pid(config: Config) -> int:
    """The process of the first engine, once it answers."""
    return int(wait_for(lambda: (look(config)[0][1] or {}).get("pid"), "an engine's answer"))


def test_importing_referee_does_not_import_ray() -> None:
    """Not the package, not the runtime's modules, not a Referee that has not judged yet."""
    program = """
        import sys
        import referee, referee.runtime.ray, referee.runtime.ray_group_actor
        config = {"runtime": "ray", "endpoint": {"url": "http://127.0.0.1:9/v1", "model": "m"}}
        referee.Referee.from_config(config).close()
        print("ray" in sys.modules)
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == "False", done.stderr


@pytest.mark.parametrize("shards", [1, 2])
def test_workers_share_limit_cache_flights_and_money(ray: Any, server: ServerProcess, shards: int) -> None:
    """Three actors and this process: the provider sees one client, and no request twice."""
    source = settings(server, shards=shards)
    config = load(source)
    workers = make_workers(ray, source, 3)
    with Referee(config) as own:
        refs = [workers[n].score.remote(100 * (n // 2), 100) for n in range(3)]  # two of them ask the same
        ticket = own.submit(samples(100))
        found = ray.get(refs, timeout=PATIENCE)
        mine = ticket.result(PATIENCE)
        assert [value for value, _ in found[0]] == values(0, 100)
        assert [value for value, _ in found[2]] == values(100, 100)
        assert [reward.value for reward in mine] == values(0, 100)
        stats = server.stats()
        assert stats.max_open <= 7
        assert stats.received == 200
        origins = Counter(origin for rows in found for _, origin in rows)
        origins.update(reward.settled.origin for reward in mine)
        assert origins["call"] == 200
        assert origins["shared"] + origins["cache"] == 200
        spent = own.score(samples(1)) and own.metrics()["budget_spent_usd"]
        cost = sum(reward.settled.cost for reward in mine)
        assert spent >= cost * 0.99
    ray.get([worker.close.remote() for worker in workers], timeout=PATIENCE)
    for worker in workers:
        ray.kill(worker)
    assert shutdown(config) == shards


def test_one_budget_for_all(ray: Any, server: ServerProcess) -> None:
    """Two workers cannot spend more together than one could alone."""
    source = settings(server)
    source["limits"] = {"concurrency": 4, "budget_usd": 0.05, "deadline": PATIENCE}
    source["missing"] = {"abort_above": 1.0}
    workers = make_workers(ray, source, 2)
    found = ray.get([worker.score.remote(1000 * n, 60) for n, worker in enumerate(workers)], timeout=PATIENCE)
    scored = [value for rows in found for value, _ in rows if value is not None]
    missing = [value for rows in found for value, _ in rows if value is None]
    assert scored
    assert missing
    spent = sum(status["budget_spent_usd"] for _, status in look(load(source)) if status)
    assert 0 < spent <= 0.05
    stats = server.stats()
    assert (stats.tokens_in + stats.tokens_out) / 1e6 <= 0.05
    for worker in workers:
        ray.kill(worker)
    shutdown(load(source))


def test_a_workers_loop_stays_free(ray: Any, server: ServerProcess) -> None:
    """While an asynchronous actor awaits rewards its other coroutines run; the blocking form answers there too."""
    (worker,) = make_workers(ray, settings(server), 1)
    assert len(ray.get(worker.score.remote(0, 40), timeout=PATIENCE)) == 40
    ticks, _ = ray.get(worker.state.remote(), timeout=PATIENCE)
    assert ticks > 0
    blocked = ray.get(worker.score.remote(40, 5, blocking=True), timeout=PATIENCE)
    assert [value for value, _ in blocked] == values(40, 5)
    ray.kill(worker)
    shutdown(load(settings(server)))


def test_an_engine_killed_mid_batch_loses_nothing(config: Config, tmp_path: Path) -> None:
    """SIGKILL: Ray makes another, everything is sent again, each sample is once in the ledger."""
    source = {"dir": str(tmp_path)}
    with Referee(load({**_plain(config), "ledger": source})) as referee:
        referee.score(samples(1, 9000))
        pid = engine_pid(config)
        ticket = referee.submit(samples(600))
        wait_for(lambda: ticket.landed() > 50, "the first fifty rewards")
        os.kill(pid, signal.SIGKILL)
        rewards = ticket.result(PATIENCE)
    assert [reward.value for reward in rewards] == values(0, 600)
    lines = [line for line in read(tmp_path) if type(line).__name__ == "VerdictLine"]
    assert sorted(line.index for line in lines) == [0, *range(600)]  # type: ignore[union-attr]


def test_a_broker_killed_mid_batch_keeps_the_limit(ray: Any, server: ServerProcess) -> None:
    """Engines without their broker go by what they have, and find the next one; the limit holds all along."""
    config = load(settings(server, shards=2))
    with Referee(config) as referee:
        referee.score(samples(1, 9000))
        broker = wait_for(lambda: find(broker_name(engine_names(config)[0])), "the broker")
        ticket = referee.submit(samples(400))
        wait_for(lambda: ticket.landed() > 50, "the first fifty rewards")
        ray.kill(broker, no_restart=False)
        assert [reward.value for reward in ticket.result(PATIENCE)] == values(0, 400)
    assert server.stats().max_open <= 7
    shutdown(config)


def test_a_client_that_dies_leaves_the_engine_to_others(ray: Any, config: Config) -> None:
    """A worker killed in the middle of its batch disturbs nobody."""
    workers = make_workers(ray, _plain(config), 2)
    lost = workers[0].score.remote(0, 2000)
    kept = workers[1].score.remote(5000, 50)
    wait_for(lambda: (look(config)[0][1] or {}).get("requests"), "the first request")
    ray.kill(workers[0])
    assert [value for value, _ in ray.get(kept, timeout=PATIENCE)] == values(5000, 50)
    with pytest.raises(Exception, match="actor"):
        ray.get(lost, timeout=PATIENCE)
    ray.kill(workers[1])


def test_shutdown_ends_the_engines_and_the_next_batch_makes_new_ones(config: Config) -> None:
    """A client whose engine was ended under it goes on with another."""
    with Referee(config) as referee:
        referee.score(samples(3))
        pid = engine_pid(config)
        assert shutdown(config) == 1
        wait_for(lambda: find(engine_names(config)[0]) is None, "the engine's end")
        assert shutdown(config) == 0
        assert len(referee.score(samples(3, 10))) == 3
        assert engine_pid(config) != pid


def test_an_engine_nobody_uses_ends_itself(ray: Any, config: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its idle lifetime begins when the last client has gone."""
    monkeypatch.setattr("referee.runtime.ray.IDLE", 1.0)
    with Referee(config) as referee:
        referee.score(samples(3))
        pid = engine_pid(config)
    wait_for(lambda: find(engine_names(config)[0]) is None, "the engine's end")
    wait_for(lambda: not Path(f"/proc/{pid}").exists(), "the end of its process")


def test_doctor_shows_engines_and_who_holds_the_limits(config: Config, server: ServerProcess, tmp_path: Path) -> None:
    """The runtime, its shards, the engine that is there, and one verdict through it."""
    from typer.testing import CliRunner

    from referee.cli.main import app

    path = tmp_path / "referee.toml"
    limits = f"[limits]\nconcurrency = 7\ndeadline = {PATIENCE}\n"
    endpoint = f'[endpoint]\nurl = "{server.url}"\nmodel = "m"\nkey_env = ""\nprice_in = 1.0\nprice_out = 1.0\n'
    path.write_text(f'runtime = "ray"\n{endpoint}{limits}[cache]\npath = ""\n')
    with Referee(config) as referee:
        referee.score(samples(1))
        shown = CliRunner().invoke(app, ["doctor", "-c", str(path)]).output
    assert "held by the engine actor on Ray" in shown
    assert f"engine {engine_names(config)[0]}: 1 client," in shown
    assert "shards 1" in shown
    assert "probe: " in shown
    assert "FAIL" not in shown


def test_a_forked_child_is_told(ray: Any, config: Config) -> None:
    """Ray does not survive a fork; a child that tries gets an error and not a hang."""
    with Referee(config) as referee:
        referee.score(samples(1))
        child = os.fork()
        if child == 0:
            code = 1
            try:
                referee.score(samples(1, 5))
            except Exception as error:
                code = 7 if "spawn" in str(error) else 2
            os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
        assert len(referee.score(samples(2, 20))) == 2


def test_a_program_without_a_cluster_gets_one_and_exits(server: ServerProcess) -> None:
    """`runtime = "ray"` alone is enough for a try; work in flight does not keep the program from ending."""
    program = f"""
        from referee import Referee, Sample
        source = {settings(server)!r}
        referee = Referee.from_config({{**source, "ray_address": "local"}})
        print(len(referee.score([Sample(prompt="p", response=f"[[quality=3]] {{n}}") for n in range(5)])))
        referee.submit([Sample(prompt="p", response=f"[[quality=3]] {{n}}") for n in range(5000)])
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, timeout=PATIENCE
    )
    assert done.stdout.strip() == "5", done.stderr
    assert "Traceback" not in done.stderr


def _plain(config: Config) -> dict[str, Any]:
    """The settings as a mapping that can be sent to an actor."""
    return config.public()
