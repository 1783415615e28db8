"""AsyncGRPO's own scoring loop, with one group at a time as shipped and with several at once as ours."""

from __future__ import annotations

import asyncio
import multiprocessing
import pickle
import queue
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from tests.trainers.trl_tiny import quietly

from referee import clock
from referee.errors import ConfigError
from referee.sim import ProviderSpec, start_server_process
from referee.trainers.shared import close_all
from referee.trainers.trl import reward_func

pytest.importorskip("trl")
pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.timeout(300)]
GROUPS, SIZE = 6, 4


@pytest.fixture
def worker() -> Any:
    """TRL's module; skipped where this release has no AsyncGRPO of the known kind."""
    try:
        return quietly("trl.experimental.async_grpo.async_rollout_worker")
    except (ImportError, RuntimeError):
        pytest.skip("this TRL has no AsyncGRPO rollout worker")


@pytest.fixture
def config() -> Iterator[dict[str, Any]]:
    """A judge that takes its time."""
    with start_server_process(ProviderSpec(latency_median=0.05), seed=1) as server:
        yield {"endpoint": {"url": server.url, "model": "simulated", "key_env": ""}, "cache": {"path": ""}}
    close_all()


def group(number: int) -> Any:
    """A finished group of four answers, as the generation loop hands it over."""
    texts = [f"[[quality={(number + n) % 10 + 1}]] {number} {n}" for n in range(SIZE)]
    fields = {
        "prompts": [f"prompt {number}"] * SIZE,
        "completions": texts,
        "completions_ids": [[1, 2, 3]] * SIZE,
        "reward_kwargs": {},
        "queued_at": clock.monotonic(),
    }
    return SimpleNamespace(**fields)


class Watched:
    """Counts how many groups are being scored at once. Mixed into a scoring loop, in place of TRL's constructor."""

    def __init__(self, func: Any) -> None:
        self.reward_funcs = [func]
        self.rollout_buffer: queue.Queue[Any] = queue.Queue()
        self._heartbeat_value = SimpleNamespace(value=0.0)
        self._groups_to_score: asyncio.Queue[Any] = asyncio.Queue(maxsize=16)
        self._total_completion_tokens = self._pushed_completion_tokens = self._total_groups_scored = 0
        self._pushed_at = 0.0
        self._inflight = 0
        self.log_completions = False
        self.queue_maxsize = 0
        self.now = self.peak = 0
        self.expected = 1
        """Groups that must be under way together before any is finished."""
        self.enough = asyncio.Event()

    def _push_metrics(self, values: Any) -> None:
        pass

    async def _score_group(self, found: Any) -> list[Any]:
        self.now += 1
        self.peak = max(self.peak, self.now)
        if self.now >= self.expected:
            self.enough.set()
        await asyncio.wait_for(self.enough.wait(), 100)
        try:
            rewards = await self.reward_funcs[0](
                prompts=found.prompts, completions=found.completions, completion_ids=found.completions_ids
            )
        finally:
            self.now -= 1
        return [
            SimpleNamespace(prompt=p, completion=c, reward=r, enqueued_at=0.0)
            for p, c, r in zip(found.prompts, found.completions, rewards, strict=True)
        ]


def run(kind: type, func: Any, together: int) -> Any:
    """Score all groups, then end as TRL ends: a None on the queue."""
    made = type("Loop", (Watched, kind), {})(func)
    made.expected = together

    async def main() -> None:
        for number in range(GROUPS):
            made._groups_to_score.put_nowait(group(number))
        made._groups_to_score.put_nowait(None)
        await asyncio.wait_for(made._score_loop(stop_event=asyncio.Event()), 120)

    quietly("accelerate.state").PartialState()
    asyncio.run(main())
    return made


def test_our_loop_tells_which_answers_were_cut(worker: Any, config: dict[str, Any]) -> None:
    """A reward function of AsyncGRPO is not shown the end tokens; ScoringLoop has them."""
    ours = quietly("referee.trainers.trl_async")
    func = reward_func({**config, "judge": {"gates": {"truncated": "unscored"}}}, is_async=True)
    loop = object.__new__(ours.ScoringLoop)
    loop.reward_funcs, loop.eos_token_ids, loop.max_tokens = [func], [0], 3
    loop.tokenizer = SimpleNamespace(eos_token_id=0, pad_token_id=4)
    loop.tell_rewards()
    texts = [f"[[quality=5]] {n}" for n in range(2)]
    found = asyncio.run(func(prompts=["q"] * 2, completions=texts, completion_ids=[[1, 2, 3], [1, 2, 0]]))
    assert found[0] is None
    assert found[1] is not None


def test_several_groups_are_scored_at_once(worker: Any, config: dict[str, Any]) -> None:
    """As shipped one after the other; with ours together, every sample once and with its own reward."""
    ours = quietly("referee.trainers.trl_async")
    func = reward_func(config, is_async=True)
    shipped = run(worker._AsyncRolloutLoop, func, 1)
    made = run(ours.ScoringLoop, func, GROUPS)
    assert shipped.peak == 1
    assert made.peak == GROUPS
    for loop in (shipped, made):
        rows = [loop.rollout_buffer.get_nowait() for _ in range(loop.rollout_buffer.qsize())]
        assert len(rows) == GROUPS * SIZE
        for row in rows:
            mark = int(row.completion.split("=")[1].split("]")[0])
            assert row.reward == pytest.approx((mark - 1) / 9)


def test_stops_when_asked(worker: Any, config: dict[str, Any]) -> None:
    """A stop event ends all loops, also without a mark on the queue."""
    ours = quietly("referee.trainers.trl_async")
    made = type("Loop", (Watched, ours.ScoringLoop), {})(reward_func(config, is_async=True))

    async def main() -> None:
        stop = asyncio.Event()
        task = asyncio.create_task(made._score_loop(stop_event=stop))
        await asyncio.sleep(0)
        stop.set()
        await asyncio.wait_for(task, 60)

    asyncio.run(main())


def test_the_workers_class_and_arguments(worker: Any, config: dict[str, Any]) -> None:
    """A worker made by the trainer is told before it starts; what it sends to its process pickles."""
    ours = quietly("referee.trainers.trl_async")
    made = object.__new__(worker.AsyncRolloutWorker)
    made._loop_kwargs = {"reward_funcs": [reward_func(config, is_async=True)]}
    made._process = None
    ours.score_groups_at_once(SimpleNamespace(rollout_worker=made), 4)
    assert made._loop_cls is ours.ScoringLoop
    assert pickle.loads(pickle.dumps((made._loop_cls, made._loop_kwargs)))[1]["groups_at_once"] == 4
    made._process = multiprocessing.current_process()
    with pytest.raises(ConfigError, match="before train"):
        ours.score_groups_at_once(SimpleNamespace(rollout_worker=made))
    with pytest.raises(ConfigError, match="not TRL's own"):
        ours.score_groups_at_once(SimpleNamespace(rollout_worker=object()))
    with pytest.raises(ConfigError, match="groups = 0"):
        ours.score_groups_at_once(SimpleNamespace(rollout_worker=made), 0)
    ours.score_groups_at_once(SimpleNamespace(rollout_worker=None))
    assert ours.RolloutWorker._loop_cls is ours.ScoringLoop
