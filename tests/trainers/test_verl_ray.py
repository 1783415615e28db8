"""A real RewardLoopManager on Ray, eight reward workers, a simulated judge over HTTP. One cluster for the module.

Starting the workers takes a minute, most of it verl's own import, so all tests share a few of them.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("verl")

import ray
from omegaconf import OmegaConf
from tests.trainers.ray_tools import wait_for
from tests.trainers.verl_batches import lengths, make_batch, make_tokenizer
from tests.trainers.verl_real import DataProto, RewardLoopManager

from referee.ledger import RewardLine, read
from referee.sim import ProviderSpec, ServerProcess, start_server_process
from referee.trainers.verl.columns import KEYS

pytestmark = [
    pytest.mark.filterwarnings("ignore"),
    pytest.mark.timeout(900),
    pytest.mark.slow,
]

WORKERS = 8
LIMIT = 10


@pytest.fixture(scope="module")
def cluster() -> Iterator[None]:
    """Ray on this machine, without a dashboard."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    ray.init(
        num_cpus=WORKERS + 2,
        include_dashboard=False,
        log_to_driver=False,
        logging_level="ERROR",
    )
    yield
    ray.shutdown()


@pytest.fixture(scope="module")
def tokenizer_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where reward workers load the tokenizer from."""
    folder = tmp_path_factory.mktemp("tokenizer")
    make_tokenizer(folder)
    return folder


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    """The same in this process."""
    return make_tokenizer()


@pytest.fixture(scope="module")
def server() -> Iterator[ServerProcess]:
    """A judge that takes a moment, so that calls overlap."""
    with start_server_process(ProviderSpec(latency_median=0.05)) as started:
        yield started


def by_keys(url: str, ledger: Path) -> dict[str, Any]:
    """The documents' keys."""
    return {
        "length_penalty": {
            "enable": True,
            "enable_openai_reward": True,
            "api_endpoint": url,
            "max_concurrent_requests": LIMIT,
            "referee": {
                "cache": {"path": ""},
                "judge": {"ask_again": 0},
                "ledger": {"dir": str(ledger)},
                "missing": {"policy": "group_mean"},
            },
        }
    }


def by_file(url: str, **sections: Any) -> dict[str, Any]:
    """What stands in a referee.toml."""
    config = {
        "judge": {"kind": "integer", "ask_again": 0, "reply": "text"},
        "endpoint": {"url": url, "key_env": ""},
        "cache": {"path": ""},
        "shaping": {"scale": "native", "length": {"enable": True}},
        **sections,
    }
    return {"config": config}


def verl_config(folder: Path, ours: dict[str, Any], workers: int) -> Any:
    """What main_ppo would hand to the RewardLoopManager, with our lines."""
    return OmegaConf.create(
        {
            "actor_rollout_ref": {
                "model": {"path": str(folder), "tokenizer_path": None},
                "rollout": {"n": 4, "val_kwargs": {"n": 1}},
            },
            "trainer": {"experiment_name": "x", "use_v1": True},
            "reward": {
                "num_workers": workers,
                "referee": {**ours, "group_wait": 120},
                "reward_model": {"enable": False, "enable_resource_pool": False},
                "custom_reward_function": {"path": str(Path(__file__).with_name("verl_rule.py")), "name": "contains"},
                "reward_manager": {
                    "source": "importlib",
                    "name": "RefereeRewardManager",
                    "module": {"path": "pkg://referee.trainers.verl", "name": None},
                },
            },
        }
    )


@pytest.fixture(scope="module")
def start(cluster: None, tokenizer_folder: Path) -> Iterator[Callable[..., Any]]:
    """Starts a RewardLoopManager; only one at a time can hold verl's worker names."""
    running: list[Any] = []

    def stop() -> None:
        for manager in running:
            for worker in manager.reward_loop_workers:
                ray.kill(worker)
        running.clear()

    def make(ours: dict[str, Any], workers: int = WORKERS) -> Any:
        stop()
        running.append(RewardLoopManager(verl_config(tokenizer_folder, ours, workers)))
        return running[-1]

    yield make
    stop()


@pytest.fixture(scope="module")
def ledger(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where all workers write."""
    return tmp_path_factory.mktemp("ledger")


@pytest.fixture(scope="module")
def loop(start: Callable[..., Any], server: ServerProcess, ledger: Path) -> Any:
    """All workers, with a good judge."""
    return start(by_keys(server.url, ledger))


def groups(count: int, size: int = 4) -> list[str]:
    """uids of `count` groups, interleaved, new in every call as in every step of verl."""
    mark = uuid.uuid4().hex
    return [f"{mark}-{number}" for _ in range(size) for number in range(count)]


def one_by_one(manager: Any, data: DataProto) -> list[Any]:
    """As the agent loop does it: each rollout to one of the workers, an error for one is not the others'."""
    workers: Sequence[Any] = manager.reward_loop_worker_handles
    refs = [workers[i % len(workers)].compute_score.remote(data[i : i + 1]) for i in range(len(data))]
    found: list[Any] = []
    for ref in refs:
        try:
            found.append(ray.get(ref, timeout=300))
        except ray.exceptions.RayTaskError as error:
            found.append(error.cause)
    return found


def test_a_batch_through_verls_own_path(loop: Any, server: ServerProcess, tokenizer: Any) -> None:
    """compute_rm_score: rewards on the last valid token, columns in batch order, groups across workers."""
    uids = groups(16)
    sizes = [80 if row < 48 else 20 for row in range(64)]  # the last of each group is short
    texts = [f"right {row:02d} [[quality={row % 10 + 1}]]" + "x" * size for row, size in enumerate(sizes)]
    data = make_batch(tokenizer, texts, uids)
    out = loop.compute_rm_score(data)
    size = lengths(data)
    median = float(size[0])
    assert [int(n) for n in out.non_tensor_batch["response_length"]] == size
    assert set(out.non_tensor_batch["median_length"].tolist()) <= {median, median + 1, median - 1, median + 0.5}
    penalties = out.non_tensor_batch["length_penalty"]
    assert all(penalties[:48] == 0.0)
    assert all(penalties[48:] == 1.0)
    expected = [1.0 + row % 10 + 1 - penalties[row] for row in range(64)]
    rewards = out.batch["rm_scores"]
    assert [rewards[row, length - 1].item() for row, length in enumerate(size)] == pytest.approx(expected)
    assert rewards.sum(-1).tolist() == pytest.approx(expected)
    assert set(out.meta_info["reward_extra_keys"]) == set(KEYS)


def test_the_limit_holds_for_all_workers_together(loop: Any, server: ServerProcess, tokenizer: Any) -> None:
    """Eight workers, max_concurrent_requests = 10: the provider never sees more than ten at once, nor only one."""
    texts = [f"right {row} [[quality=5]] limit" for row in range(160)]
    outs = one_by_one(loop, make_batch(tokenizer, texts, groups(40)))
    assert [out["reward_score"] for out in outs] == [6.0] * 160
    assert len(loop.reward_loop_worker_handles) == 8
    stats = server.stats()
    assert 1 < stats.max_open <= LIMIT


def test_equal_rollouts_are_paid_once_for_the_whole_job(loop: Any, server: ServerProcess, tokenizer: Any) -> None:
    """One cache and one flight per key, whichever workers they reach."""
    before = server.stats().received
    outs = one_by_one(loop, make_batch(tokenizer, ["right [[quality=9]] equal"] * 32, groups(8)))
    assert [out["reward_score"] for out in outs] == [10.0] * 32
    assert server.stats().received - before == 1


def test_sparse_failures_do_not_break_the_step(loop: Any, tokenizer: Any) -> None:
    """Some rollouts have no score: their siblings' mean, the same keys on every row, and the batch assembles."""
    texts = [f"right {row} [[quality={'none' if row % 9 == 0 else 4}]] sparse" for row in range(32)]
    out = loop.compute_rm_score(make_batch(tokenizer, texts, groups(8)))
    assert out.batch["rm_scores"].sum(-1).tolist() == pytest.approx([5.0] * 32)
    scored = out.non_tensor_batch["judge_scored"].tolist()
    assert scored == [0.0 if row % 9 == 0 else 1.0 for row in range(32)]


def test_the_ledger_has_the_rewards_verl_got(loop: Any, ledger: Path, tokenizer: Any) -> None:
    """One line a rollout, with its group's terms, whichever worker wrote it."""
    uids = groups(8)
    sizes = [80 if row < 24 else 20 for row in range(32)]
    texts = [f"right {row:02d} [[quality={row % 10 + 1}]]" + "x" * size for row, size in enumerate(sizes)]
    outs = one_by_one(loop, make_batch(tokenizer, texts, uids))

    def written() -> list[RewardLine]:
        lines = [line for line in read(ledger) if isinstance(line, RewardLine) and line.group in uids]
        return lines if len(lines) >= len(outs) else []

    lines = wait_for(written, "a reward line for each rollout")
    assert len(lines) == len(outs)
    assert sorted(line.value for line in lines) == pytest.approx(sorted(out["reward_score"] for out in outs))
    assert sum(line.penalty for line in lines) == pytest.approx(8.0)


def test_a_second_run_meets_nothing_of_the_first(start: Callable[..., Any], tokenizer: Any) -> None:
    """The same uids in the same Ray job, after a run that was stopped between two siblings: its rewards are its own."""
    uids = [f"uid_sample_0_{number}" for _ in range(4) for number in range(3)]
    first = start({"length_penalty": {"enable": True}}, workers=2)
    data = make_batch(tokenizer, ["right" + "x" * 40] * 12, uids)
    for row in range(7):
        first.reward_loop_worker_handles[row % 2].compute_score.remote(data[row : row + 1])
    one_by_one(first, make_batch(tokenizer, ["right"] * 12, groups(3)))  # all of them have reported by now
    second = start({"length_penalty": {"enable": True}}, workers=2)
    data = make_batch(tokenizer, ["right" + "x" * 400] * 12, uids)
    outs = one_by_one(second, data)
    assert {out["reward_extra_info"]["median_length"] for out in outs} == {float(lengths(data)[0])}
    assert [out["reward_score"] for out in outs] == [1.0] * 12


def test_a_judge_outage_is_an_error_for_each_prompt_and_no_zeros(
    start: Callable[..., Any], loop: Any, tokenizer: Any
) -> None:
    """abstain in V1: every rollout fails with a clear error, the workers live on, and answer when the judge does."""
    with start_server_process(ProviderSpec(faults={"http_503": 1.0})) as down:
        ours = by_file(
            down.url,
            missing={"policy": "abstain", "abort_above": 1.0},
            limits={"max_concurrency": LIMIT, "deadline": 5.0},
        )
        manager = start(ours, workers=2)
        texts = [f"right {row} [[quality=4]] outage" for row in range(8)]
        outs = one_by_one(manager, make_batch(tokenizer, texts, groups(2)))
        assert {type(out).__name__ for out in outs} == {"UnscoredError"}
        assert all("was not scored" in str(out) for out in outs)
        gated = one_by_one(manager, make_batch(tokenizer, [""] * 4, groups(1)))
        assert [out["reward_score"] for out in gated] == [1.0] * 4
