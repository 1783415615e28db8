"""TRL's AsyncGRPO with several groups scored at once. Imports TRL: only for those who use AsyncGRPOTrainer.

As shipped, the rollout process scores one group after the other, so a slow judge holds generation back however many
calls the provider would take. Here it scores up to `groups_at_once`.
"""

from __future__ import annotations

import asyncio
from typing import Any

from trl.experimental.async_grpo.async_rollout_worker import AsyncRolloutWorker, _AsyncRolloutLoop

from referee.errors import ConfigError

GROUPS = 16
"""As many groups as TRL's queue in front of the scorer holds by default."""


class ScoringLoop(_AsyncRolloutLoop):  # type: ignore[misc]
    """TRL's loop, with several of its scoring loops on one queue."""

    groups_at_once = GROUPS

    def __init__(self, *, groups_at_once: int = GROUPS, **settings: Any) -> None:
        super().__init__(**settings)
        self.groups_at_once = groups_at_once
        self.tell_rewards()

    def tell_rewards(self) -> None:
        """Our functions find the end tokens here; TRL does not pass them on."""
        for reward in (getattr(func, "referee", None) for func in self.reward_funcs):
            if reward is not None:
                reward.know(self)

    async def _score_loop(self, stop_event: asyncio.Event) -> None:
        one = super()._score_loop

        async def run() -> None:
            await one(stop_event=stop_event)
            # A loop ends when generation has; the mark it took off the queue is for the others, too.
            if not stop_event.is_set():
                await self._groups_to_score.put(None)

        tasks = [asyncio.create_task(run()) for _ in range(self.groups_at_once)]
        try:
            await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()


class RolloutWorker(AsyncRolloutWorker):  # type: ignore[misc]
    """For AsyncGRPOTrainer(rollout_worker=…): TRL's worker; takes `groups_at_once` besides TRL's own arguments."""

    _loop_cls = ScoringLoop


def score_groups_at_once(trainer: Any, groups: int = GROUPS) -> None:
    """Let the worker that an AsyncGRPOTrainer made for itself score several groups at once. Before `train()`."""
    if groups < 1:
        raise ConfigError(f"groups = {groups}: none would ever be scored. Give 1 or more.", setting="groups")
    worker = getattr(trainer, "rollout_worker", None)
    if worker is None:  # not the main process: no worker here
        return
    if not isinstance(worker, AsyncRolloutWorker) or worker._loop_cls not in (_AsyncRolloutLoop, ScoringLoop):
        raise ConfigError(
            f"{type(worker).__name__} is not TRL's own rollout worker; let yours score several groups, or use "
            "RolloutWorker from this module.",
            setting="rollout_worker",
        )
    if worker._process is not None:
        raise ConfigError("the rollout worker runs already: call this before train().", setting="rollout_worker")
    worker._loop_cls = ScoringLoop
    worker._loop_kwargs["groups_at_once"] = groups
