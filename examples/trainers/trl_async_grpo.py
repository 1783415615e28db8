"""TRL's AsyncGRPO: the judge in the rollout process, several groups at once.

python examples/trainers/trl_async_grpo.py Qwen/Qwen3-0.6B referee.toml   # trains; needs vLLM's server, as TRL says
python examples/trainers/trl_async_grpo.py                                # only the function, through a pickle
"""

from __future__ import annotations

import asyncio
import pickle
import sys

from simulated import GOOD, POOR, PROMPT, simulated_judge

from referee.trainers.trl import reward_func


def train(model: str, config: str) -> None:
    """AsyncGRPO on a few prompts."""
    from datasets import Dataset
    from trl.experimental.async_grpo import AsyncGRPOConfig, AsyncGRPOTrainer

    from referee.trainers.trl_async import score_groups_at_once

    trainer = AsyncGRPOTrainer(
        model=model,
        args=AsyncGRPOConfig(output_dir="out", max_steps=10),
        train_dataset=Dataset.from_dict({"prompt": [[{"role": "user", "content": PROMPT}]] * 64}),
        reward_funcs=[reward_func(config, is_async=True)],
    )
    score_groups_at_once(trainer, 16)
    trainer.train()


def main() -> None:
    """The function survives the trip to TRL's process, and is a coroutine there."""
    with simulated_judge() as config:
        judge = pickle.loads(pickle.dumps(reward_func(config, is_async=True)))  # noqa: S301  # our own, just made
        print(asyncio.run(judge(prompts=[PROMPT] * 2, completions=[GOOD, POOR], completion_ids=[[1], [1]])))


if __name__ == "__main__":
    if len(sys.argv) > 2:
        train(sys.argv[1], sys.argv[2])
    else:
        main()
