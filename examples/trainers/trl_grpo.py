"""TRL: GRPO with a judge that works while log-probabilities are computed.

python examples/trainers/trl_grpo.py Qwen/Qwen3-0.6B referee.toml   # trains, with your model and judge
python examples/trainers/trl_grpo.py                                # only calls the reward, as TRL would
"""

from __future__ import annotations

import sys
from typing import Any

from simulated import GOOD, POOR, PROMPT, UNSCORED, simulated_judge

from referee.trainers.trl import attach, reward_func


def train(model: str, config: str, **settings: Any) -> Any:
    """A few steps of GRPO on a few prompts."""
    from datasets import Dataset
    from trl import GRPOConfig, GRPOTrainer

    trainer = GRPOTrainer(
        model=model,
        args=GRPOConfig(beta=0.04, num_generations=4, per_device_train_batch_size=8, **settings),
        train_dataset=Dataset.from_dict({"prompt": ["What is 2 + 2?", "Name a colour.", "Say hello."] * 8}),
        reward_funcs=[reward_func(config)],
    )
    with attach(trainer):
        trainer.train()
    return trainer


def main() -> None:
    """The reward alone: one call with three answers, the last of which cannot be scored."""
    with simulated_judge() as config:
        judge = reward_func(config)
        rewards = judge(prompts=[PROMPT] * 3, completions=[GOOD, POOR, UNSCORED], completion_ids=[[1], [1], [1]])
        print(f"{judge.__name__}: {rewards} (None: TRL leaves the row out)")


if __name__ == "__main__":
    if len(sys.argv) > 2:
        import torch

        train(sys.argv[1], sys.argv[2], output_dir="out", max_steps=10, use_cpu=not torch.cuda.is_available())
    else:
        main()
