"""A judge of whole groups in a real RewardLoopManager on Ray: six reward workers, each with one sibling.

Workers import the judge as a plug-in from a folder on their module path.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("verl")

import ray
from tests.plugins.install import install_by_hand
from tests.trainers.ray_tools import wait_for
from tests.trainers.test_verl_ray import by_file, groups, one_by_one, verl_config
from tests.trainers.verl_batches import make_batch, make_tokenizer
from tests.trainers.verl_real import RewardLoopManager

from referee import plugins
from referee.ledger import RewardLine, VerdictLine, read
from referee.runtime.ray_cluster import find
from referee.runtime.ray_group_actor import actor_name
from referee.sim import ProviderSpec, ServerProcess, start_server_process

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.timeout(900), pytest.mark.slow]

SIZE = 6
NUMBERS = itertools.count(1)
JUDGES = """
from msgspec.structs import replace
from referee.judging import KINDS, JudgeFactory, together
from referee.records import Verdict


class Ranked:
    unit = "group"

    def __init__(self, one):
        self._one = one

    def deliberate(self, samples, form):
        found = yield from together([self._one.deliberate((sample,), form) for sample in samples])
        scores = [verdict.score for verdict in found if isinstance(verdict, Verdict)]
        return [
            replace(verdict, value=sum(score < verdict.score for score in scores) / len(scores))
            if isinstance(verdict, Verdict) else verdict
            for verdict in found
        ]


ranked = JudgeFactory(lambda config, question: Ranked(question(KINDS["score"](config))), unit="group")
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Ray on this machine; its processes, and this one, find the judge."""
    folder = tmp_path_factory.mktemp("plugin")
    install_by_hand(folder, "ranked", {plugins.JUDGES: {"ranked": "plugin_ranked:ranked"}}, plugin_ranked=JUDGES)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")]))
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        patch.syspath_prepend(folder)
        plugins.load.cache_clear()
        ray.init(num_cpus=SIZE + 2, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
        yield
        ray.shutdown()
    plugins.load.cache_clear()


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """For this process, and as a folder for reward workers."""
    folder = tmp_path_factory.mktemp("tokenizer")
    made = make_tokenizer(folder)
    made.folder = folder
    return made


@contextlib.contextmanager
def started(tokenizer: Any, url: str, **sections: Any) -> Iterator[Any]:
    """A RewardLoopManager with six workers; only one at a time can hold verl's worker names."""
    judge = {"kind": "ranked", "name": "rank", "ask_again": 0}
    ours = by_file(url, **{"judge": judge, "shaping": {"scale": "unit"}, **sections})
    config = verl_config(tokenizer.folder, ours, SIZE)
    config.actor_rollout_ref.rollout.n = SIZE
    manager = RewardLoopManager(config)
    yield manager
    for worker in manager.reward_loop_workers:
        ray.kill(worker)
    wait_for(lambda: find(actor_name()) is None, "the end of the coordinator that one of them made")


@pytest.fixture(scope="module")
def slow(cluster: None, tokenizer: Any) -> Iterator[tuple[Any, ServerProcess]]:
    """Workers with a judge that takes long enough for something to happen meanwhile."""
    with (
        start_server_process(ProviderSpec(latency_median=5.0, latency_sigma=0.0)) as server,
        started(tokenizer, server.url) as manager,
    ):
        workers, data = manager.reward_loop_worker_handles, make_batch(tokenizer, answers(*[5] * SIZE), groups(1, SIZE))
        refs = [workers[0].compute_score.remote(data[0:1])]
        wait_for(lambda: find(actor_name()), "the coordinator, which dies with the first worker and no other")
        refs += [workers[row].compute_score.remote(data[row : row + 1]) for row in range(1, SIZE)]
        ray.get(refs, timeout=300)
        yield manager, server


def answers(*marks: Any) -> list[str]:
    """Answers that the judge has not seen before."""
    return [f"right {next(NUMBERS)} [[quality={mark}]]" for mark in marks]


def asked(server: ServerProcess, before: int) -> bool:
    return server.stats().received > before


def rewards(outs: list[Any]) -> list[Any]:
    return [out["reward_score"] if isinstance(out, dict) else out for out in outs]


SHARES = [1.0, 1 + 1 / 6, 1 + 2 / 6, 1 + 3 / 6, 1 + 4 / 6, 1 + 5 / 6]
"""Rule and rank of answers that are better and better."""


@pytest.mark.usefixtures("cluster")
def test_siblings_on_six_workers_are_judged_as_one_group(tokenizer: Any, tmp_path: Path) -> None:
    """Through verl's own path: nothing is asked twice, missing ones get their mean, and the ledger has each reward."""
    ledger = tmp_path / "ledger"
    more = {"missing": {"policy": "group_mean"}, "ledger": {"dir": str(ledger)}}
    with (
        start_server_process(ProviderSpec(latency_median=0.05)) as server,
        started(tokenizer, server.url, **more) as manager,
    ):
        uids = groups(8, SIZE)
        marks = [1 + row // 8 for row in range(8 * SIZE)]  # each group's answers are better and better
        marks[5 * 8 + 3] = 99  # no score
        out = manager.compute_rm_score(make_batch(tokenizer, answers(*marks), uids))
        found = out.batch["rm_scores"].sum(-1).tolist()
        fair = [SHARES[row // 8] for row in range(8 * SIZE)]
        rest = [1.0, 1.2, 1.4, 1.6, 1.8]
        for row in range(3, 8 * SIZE, 8):
            fair[row] = [*rest, sum(rest) / 5][row // 8]
        assert found == pytest.approx(fair)
        assert server.stats().received == 8 * SIZE
    scored = out.non_tensor_batch["judge_scored"].tolist()
    assert [row for row, mark in enumerate(scored) if not mark] == [43]

    def written() -> list[Any]:
        lines = [line for line in read(ledger) if isinstance(line, RewardLine | VerdictLine)]
        return lines if sum(isinstance(line, RewardLine) for line in lines) >= 8 * SIZE else []

    lines = wait_for(written, "a reward line for each rollout")
    assert sum(isinstance(line, VerdictLine) for line in lines) == 8 * SIZE
    assert sorted(line.value or 0.0 for line in lines if isinstance(line, RewardLine)) == pytest.approx(sorted(fair))


def test_a_coordinator_that_is_killed_costs_a_delay(slow: tuple[Any, ServerProcess], tokenizer: Any) -> None:
    """Between the fifth sibling and the sixth, and while the group is judged: all six are ranked among six."""
    manager, server = slow
    workers = manager.reward_loop_worker_handles
    for moment in ("gathering", "judging"):
        data = make_batch(tokenizer, answers(1, 2, 3, 4, 5, 6), groups(1, SIZE))
        refs = [workers[row].compute_score.remote(data[row : row + 1]) for row in range(5)]
        other = make_batch(tokenizer, answers(*[5] * SIZE), groups(1, SIZE))
        one_by_one(manager, other)  # all workers have told the coordinator by now
        before = server.stats().received
        if moment == "judging":
            refs.append(workers[5].compute_score.remote(data[5:6]))
            wait_for(functools.partial(asked, server, before), "the first question")
        ray.kill(find(actor_name()), no_restart=False)
        if moment == "gathering":
            refs.append(workers[5].compute_score.remote(data[5:6]))
        assert rewards(ray.get(refs, timeout=300)) == pytest.approx(SHARES)


def test_a_worker_that_dies_while_it_judges_is_replaced(slow: tuple[Any, ServerProcess], tokenizer: Any) -> None:
    """The others have their ranks among all six, the dead one's answer included. The last test: one worker is gone."""
    manager, server = slow
    workers = manager.reward_loop_worker_handles
    data = make_batch(tokenizer, answers(1, 2, 3, 4, 5, 6), groups(1, SIZE))
    refs = [workers[row].compute_score.remote(data[row : row + 1]) for row in range(5)]
    # The second group completes after the first one's five texts have been sent, over the same connections.
    one_by_one(manager, make_batch(tokenizer, answers(*[4] * SIZE), groups(1, SIZE)))
    before = server.stats().received
    workers[5].compute_score.remote(data[5:6])
    wait_for(functools.partial(asked, server, before), "the first question")
    ray.kill(manager.reward_loop_workers[5])
    assert rewards(ray.get(refs, timeout=300)) == pytest.approx(SHARES[:5])
