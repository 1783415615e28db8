"""What a cluster may do to its engines: a node that vanishes, a key that is searched for, siblings that meet again."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.trainers.ray_tools import ENVIRONMENT, PATIENCE, start_ray, wait_for

from referee.config import Secret, load
from referee.errors import EndpointClosed
from referee.ledger.reader import read
from referee.records import Sample
from referee.referee import Referee
from referee.runtime import ray_group_actor
from referee.runtime.ray import look, shutdown
from referee.runtime.ray_cluster import find
from referee.runtime.ray_settings import engine_names
from referee.sim import ProviderSpec, start_server_process

pytest.importorskip("ray")

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400), pytest.mark.filterwarnings("default")]

CANARY = "canaryKEY7f3a9c1e5b2d8046"


@pytest.fixture
def ray() -> Iterator[Any]:
    """A cluster with its dashboard, whose interface shows what Ray knows of actors and calls."""
    found = start_ray(include_dashboard=True, dashboard_host="127.0.0.1")
    yield found
    found.shutdown()


def samples(count: int, start: int = 0) -> list[Sample]:
    return [
        Sample(prompt="p", response=f"[[quality={n % 10 + 1}]] {n}", id=str(n)) for n in range(start, start + count)
    ]


def test_a_key_is_nowhere_in_what_ray_keeps(ray: Any) -> None:
    """Not in its logs, not in what its dashboard tells, not in the engine's environment or command line."""
    from ray.util import state

    with start_server_process(ProviderSpec(key=CANARY)) as good, start_server_process(ProviderSpec(key="x")) as bad:
        pids = []
        for server, works in ((good, True), (bad, False)):
            endpoint = {"url": server.url, "model": "m", "api_key": Secret(CANARY)}
            config = load({"endpoint": endpoint, "cache": {"path": ""}, "runtime": "ray"})
            with Referee(config) as referee:
                if works:
                    assert all(reward.scored for reward in referee.score(samples(5)))
                else:
                    with pytest.raises(EndpointClosed) as caught:
                        referee.score(samples(5))
                    assert CANARY not in f"{caught.value!r} {caught.value}"
                pids.append(int((look(config)[0][1] or {})["pid"]))
            assert CANARY not in "".join(engine_names(config))
            if works:
                continue
            told = str(
                [*state.list_actors(detail=True), *state.list_tasks(detail=True), *state.list_workers(detail=True)]
            )
            assert "EngineActor" in told
            assert CANARY not in told
        for pid in pids:
            for name in ("environ", "cmdline"):
                assert CANARY.encode() not in Path(f"/proc/{pid}/{name}").read_bytes()
        shutdown(config)
    session = Path(ray._private.worker._global_node.get_session_dir_path())
    files = [path for path in session.rglob("*") if path.is_file() and not path.is_symlink()]
    assert any("worker" in path.name for path in files)
    for path in files:
        assert CANARY.encode() not in path.read_bytes(), path


def test_a_node_that_vanishes_mid_batch_loses_nothing(tmp_path: Path) -> None:
    """The engine comes back on another node; everything is sent again, each sample is once in the ledger."""
    ray = pytest.importorskip("ray")
    from ray.cluster_utils import Cluster
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    from referee.runtime import ray as runtime

    os.environ.update(ENVIRONMENT)
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    try:
        other = cluster.add_node(num_cpus=1)
        ray.init(address=cluster.address, namespace="tests", log_to_driver=False)
        cluster.wait_for_nodes()
        with start_server_process(ProviderSpec(latency_median=0.05)) as server:
            source = {
                "endpoint": {"url": server.url, "model": "m", "key_env": ""},
                "cache": {"path": ""},
                "limits": {"concurrency": 6, "deadline": 240.0},
                "ledger": {"dir": str(tmp_path)},
                "runtime": "ray",
            }
            config = load(source)
            (name,) = engine_names(config)
            strategy = NodeAffinitySchedulingStrategy(other.node_id, soft=True)
            runtime.find_or_make(
                runtime.EngineActor,
                name,
                lambda: (name, "0", 0, 1, 600.0, None),
                max_concurrency=runtime.MANY,
                scheduling_strategy=strategy,
            )
            with Referee(config) as referee:
                referee.score(samples(1, 9000))
                ticket = referee.submit(samples(600))
                wait_for(lambda: ticket.landed() > 50, "the first fifty rewards")
                cluster.remove_node(other, allow_graceful=False)
                rewards = ticket.result(240)
            assert [reward.value for reward in rewards] == [n % 10 / 9 for n in range(600)]
            shutdown(config)
        lines = [line for line in read(tmp_path) if type(line).__name__ == "VerdictLine"]
        assert sorted(line.index for line in lines) == [0, *range(600)]  # type: ignore[union-attr]
    finally:
        ray.shutdown()
        cluster.shutdown()


def test_siblings_meet_across_workers_and_a_lost_desk() -> None:
    """Members of one group in three actors get the same values, also when the place they met at is killed."""
    ray = start_ray()
    try:

        @ray.remote(num_cpus=0)
        class Worker:
            async def meet(self, uid: str, member: str, value: int, expected: int) -> tuple[Any, ...]:
                from referee.runtime.ray_group_actor import open_groups

                return tuple(await open_groups().meet(uid, member, value, expected, wait=120.0))

        workers = [Worker.remote() for _ in range(3)]
        calls = [workers[n % 3].meet.remote(f"u{g}", str(n), n, 6) for g in range(50) for n in range(6)]
        found = ray.get(calls, timeout=PATIENCE)
        assert all(values == {str(n): n for n in range(6)} and complete for values, _, complete, _ in found)
        first = workers[0].meet.remote("late", "0", 10, 2)
        ray.get(workers[0].meet.remote("other", "0", 1, 1), timeout=PATIENCE)
        ray.kill(find(ray_group_actor.actor_name()), no_restart=False)
        second = workers[1].meet.remote("late", "1", 11, 2)
        for values, _, complete, _ in ray.get([first, second], timeout=PATIENCE):
            assert complete
            assert values == {"0": 10, "1": 11}
        mine = asyncio.run(ray_group_actor.open_groups().meet("own", "0", 1, expected=1, wait=PATIENCE))
        assert mine.complete
        assert ray_group_actor.shutdown()
    finally:
        ray.shutdown()
