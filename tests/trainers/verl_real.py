"""The real verl, imported without the deprecation warnings of its own dependencies."""

from __future__ import annotations

import warnings

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import verl.experimental.reward_loop.reward_manager as loop_managers
    from verl import DataProto
    from verl.experimental.reward_loop import RewardLoopManager
    from verl.trainer.ppo import reward as loading
    from verl.workers.reward_manager import get_reward_manager_cls
    from verl.workers.reward_manager.abstract import AbstractRewardManager

__all__ = [
    "AbstractRewardManager",
    "DataProto",
    "RewardLoopManager",
    "get_reward_manager_cls",
    "loading",
    "loop_managers",
]
