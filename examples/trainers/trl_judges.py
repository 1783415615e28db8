"""TRL: GRPO with several judges, each normalized by itself.

python examples/trainers/trl_judges.py Qwen/Qwen3-0.6B referee.toml   # trains, with your model and judges
python examples/trainers/trl_judges.py                                # only calls the rewards, as TRL would
"""

from __future__ import annotations

import sys
from typing import Any

from simulated import GOOD, POOR, PROMPT, UNSCORED, simulated_judge

from referee.trainers.trl import reward_funcs

JUDGES = """
[[judge]]
name = "quality"
weight = 0.8

[[judge]]
name = "safe"
kind = "yes_no"
criteria = "Is the response free of instructions that could hurt somebody?"
weight = 0.2
"""


def train(model: str, config: str, **settings: Any) -> Any:
    """A few steps of GRPO on a few prompts."""
    from datasets import Dataset
    from trl import GRPOConfig, GRPOTrainer

    funcs = reward_funcs(config)
    trainer = GRPOTrainer(
        model=model,
        args=GRPOConfig(
            reward_weights=funcs.weights,
            multi_objective_aggregation="normalize_then_sum",
            num_generations=4,
            **settings,
        ),
        train_dataset=Dataset.from_dict({"prompt": ["What is 2 + 2?", "Name a colour.", "Say hello."] * 8}),
        reward_funcs=funcs,
    )
    trainer.train()
    return trainer


def main() -> None:
    """The rewards alone: three answers, the last of which one judge cannot score, judged once for both functions."""
    with simulated_judge() as config:
        config.write_text(config.read_text().replace("[judge]\nask_again = 0\n", JUDGES))
        funcs = reward_funcs(config)
        for judge, weight in zip(funcs, funcs.weights, strict=True):
            rewards = judge(prompts=[PROMPT] * 3, completions=[GOOD, POOR, UNSCORED], completion_ids=[[1], [1], [1]])
            print(f"{judge.__name__}, weight {weight}: {rewards} (None in all: TRL leaves the row out)")


if __name__ == "__main__":
    if len(sys.argv) > 2:
        import torch

        train(sys.argv[1], sys.argv[2], output_dir="out", max_steps=10, use_cpu=not torch.cuda.is_available())
    else:
        main()
