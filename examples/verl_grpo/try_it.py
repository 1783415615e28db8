"""The rewards of four made-up rollouts, through verl's own configuration and loader. No GPU, no key, no Ray.

A simulated judge stands in for the real one; everything else is what a training run uses.
"""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

from referee.sim import ProviderSpec, start_server_process

try:
    import numpy as np
    import torch
    from hydra import compose, initialize_config_module
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast
    from verl import DataProto
    from verl.trainer.ppo.reward import load_reward_manager
except ImportError as error:
    raise SystemExit(
        f"this example runs verl's own code, which is not installed here ({error}). A CPU is enough:\n"
        '    pip install "llm-referee[verl]" hydra-core\n'
        '    in the folder of a clone: pip install ".[verl]" hydra-core'
    ) from None

HERE = Path(__file__).parent
ANSWERS = [
    "Half of 48 is 24, so 48 + 24 = 72.\n#### 72",
    "She sold 48 in April. In May she sold half as many, that is 24 clips. Together 48 + 24 is 72.\n#### 72",
    "48 / 2 = 24\n#### 24",
    "I think it is a lot of clips, and clips are fun, and there are many of them, maybe seventy. " * 3 + "\n#### 70",
]


def tokenizer() -> Any:
    """A byte-level one, so that nothing has to be downloaded."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    made = Tokenizer(models.BPE({word: n for n, word in enumerate(["<pad>", "<eos>", *alphabet])}, []))
    made.pre_tokenizer, made.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    return PreTrainedTokenizerFast(tokenizer_object=made, **{"pad_token": "<pad>", "eos_token": "<eos>"})


def rollout(words: Any, answer: str) -> DataProto:
    """One rollout as verl's agent loop hands it to a reward worker."""
    question = words("How many clips did Natalia sell?", return_tensors="pt")["input_ids"]
    response = words(answer, return_tensors="pt")["input_ids"]
    both = torch.cat([question, response], dim=1)
    columns = {
        "uid": "natalia",
        "data_source": "openai/gsm8k",
        "reward_model": {"style": "rule", "ground_truth": "72"},
        "extra_info": {"split": "train"},
    }
    return DataProto.from_dict(
        tensors={
            "prompts": question,
            "responses": response,
            "input_ids": both,
            "attention_mask": torch.ones_like(both),
        },
        non_tensors={name: np.array([value], dtype=object) for name, value in columns.items()},
    )


async def main() -> None:
    """Four siblings, judged at once, shaped together."""
    overrides = [line for line in (HERE / "overrides.txt").read_text().splitlines() if line and line[0] != "#"]
    with initialize_config_module("verl.trainer.config", version_base=None):
        config = compose("ppo_trainer", [*overrides, f"actor_rollout_ref.rollout.n={len(ANSWERS)}"])
    config.reward.referee.config = str(HERE / config.reward.referee.config)
    words = tokenizer()
    manager = load_reward_manager(config, words)
    print(manager)
    outs = await asyncio.gather(*(manager.run_single(rollout(words, answer)) for answer in ANSWERS))
    for answer, out in zip(ANSWERS, outs, strict=True):
        info = out["reward_extra_info"]
        rule, judged, length = (info[n] for n in ("original_score", "openai_quality_reward", "length_penalty"))
        print(
            f"{out['reward_score']:6.3f} = rule {rule:.1f} + judge {judged:.3f} - length {length:.3f}  {answer[:40]!r}…"
        )


if __name__ == "__main__":
    with start_server_process(ProviderSpec(latency_median=0.2)) as judge:
        # The simulated judge in place of the real one; referee's settings can all be overridden like this.
        os.environ.update(REFEREE_ENDPOINT_URL=judge.url, REFEREE_ENDPOINT_KEY_ENV="", REFEREE_CACHE_PATH="")
        os.environ.update(REFEREE_LEDGER_DIR="")
        asyncio.run(main())
