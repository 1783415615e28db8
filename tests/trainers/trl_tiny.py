"""A real TRL trainer that runs in a second: a random two-layer model and a byte tokenizer, built in memory, offline."""

from __future__ import annotations

import collections
import os
import warnings
from pathlib import Path
from typing import Any

OFFLINE = {
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "HF_DATASETS_OFFLINE": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "TRL_EXPERIMENTAL_SILENCE": "1",
}
TEMPLATE = (
    "{% for m in messages %}{{ m['role'] + ': ' + m['content'] }}{% if m.tool_calls %}{{ m.tool_calls | tojson }}"
    "{% endif %}{{ '\n' }}{% endfor %}{% if add_generation_prompt %}assistant: {% endif %}"
)
PROMPTS = ["2+2=", "Say hi. ", "The sky is ", "Count to 3: "]


def quietly(name: str) -> Any:
    """Import a heavy module without its warnings, on one thread."""
    os.environ.update(OFFLINE)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import importlib

        import torch

        torch.set_num_threads(1)
        return importlib.import_module(name)


def tokenizer() -> Any:
    """One token for each byte."""
    tokenizers, transformers = quietly("tokenizers"), quietly("transformers")
    alphabet = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {token: number for number, token in enumerate(["<pad>", "<eos>", *alphabet])}
    inner = tokenizers.Tokenizer(tokenizers.models.BPE(vocab=vocabulary, merges=[]))
    inner.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = tokenizers.decoders.ByteLevel()
    made = transformers.PreTrainedTokenizerFast(
        tokenizer_object=inner,
        pad_token="<pad>",
        eos_token="<eos>",
        padding_side="left",
        model_input_names=["input_ids", "attention_mask"],
    )
    made.chat_template = TEMPLATE
    return made


def model(tokens: Any) -> Any:
    """Two layers of noise, always the same noise."""
    torch, transformers = quietly("torch"), quietly("transformers")
    torch.manual_seed(0)
    config = transformers.Qwen2Config(
        vocab_size=len(tokens),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=2,
        max_position_embeddings=512,
        pad_token_id=tokens.pad_token_id,
        eos_token_id=tokens.eos_token_id,
        bos_token_id=None,
        tie_word_embeddings=False,
    )
    return transformers.Qwen2ForCausalLM(config)


def make_trainer(
    folder: Path,
    funcs: Any,
    kind: str = "GRPO",
    chat: bool = False,
    steps: int = 2,
    parts: dict[str, Any] | None = None,
    columns: dict[str, str] | None = None,
    asked: list[str] | None = None,
    **settings: Any,
) -> Any:
    """A GRPOTrainer or RLOOTrainer over a few prompts, four answers to each, two prompts a step.

    `parts`: more arguments of the trainer. `columns`: more columns of its dataset, the same in every row. `asked`:
    other prompts.
    """
    trl, datasets = quietly("trl"), quietly("datasets")
    parts = {"processing_class": tokenizer(), **(parts or {})}
    tokens = parts["processing_class"]
    policy: Any = model(tokens)
    if settings.get("beta"):  # the reference model is loaded by name
        path = folder / "model"
        policy.save_pretrained(path)
        tokens.save_pretrained(path)
        policy = str(path)
    prompts: list[Any] = asked or PROMPTS * 4
    if chat:
        prompts = [[{"role": "user", "content": text}] for text in prompts]
    more = {name: [value] * len(prompts) for name, value in (columns or {}).items()}
    known = [str(n) for n in range(len(prompts))]
    rows = datasets.Dataset.from_dict({"prompt": prompts, "ground_truth": known, **more})
    arguments = getattr(trl, f"{kind}Config")(
        **{
            "output_dir": str(folder / "out"),
            "use_cpu": True,
            "bf16": False,
            "report_to": "none",
            "save_strategy": "no",
            "per_device_train_batch_size": 8,
            "num_generations": 4,
            "max_completion_length": 12,
            "max_steps": steps,
            "logging_steps": 1,
            "disable_tqdm": True,
            "dataloader_pin_memory": False,
            "gradient_checkpointing": False,
            "beta": 0.0,
            "learning_rate": 1e-4,
            "seed": 7,
            **settings,
        }
    )
    trainer = getattr(trl, f"{kind}Trainer")(
        model=policy, args=arguments, train_dataset=rows, reward_funcs=funcs, **parts
    )
    for name, kept in trainer._logs.items():  # TRL keeps the last step's rows; here, all of them
        trainer._logs[name] = collections.defaultdict(list) if isinstance(kept, dict) else []
    return trainer


def logged(trainer: Any, name: str = "referee") -> tuple[list[Any], list[Any], list[float], list[float]]:
    """Prompts, completions, rewards (NaN: none) and advantages of everything generated, row by row."""
    logs = trainer._logs
    return list(logs["prompt"]), list(logs["completion"]), list(logs["rewards"][name]), list(logs["advantages"])
