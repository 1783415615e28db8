"""A tokenizer and DataProtos built in memory, for the tests with the real verl."""

from __future__ import annotations

import asyncio
import uuid
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from referee.sim import ProviderSpec, ServerProcess, start_server_process
from referee.trainers.shared import close_all

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from verl import DataProto

PROMPT_WIDTH = 12


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    """One for all tests."""
    return make_tokenizer()


@pytest.fixture(scope="module")
def server() -> Iterator[ServerProcess]:
    """A judge without faults."""
    with start_server_process(ProviderSpec()) as started:
        yield started


@pytest.fixture(autouse=True)
def clean(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Files go to the test's folder; what was opened is closed."""
    monkeypatch.chdir(tmp_path)
    yield
    close_all()


def make_tokenizer(folder: Path | None = None) -> Any:
    """Byte-level, so that any text survives a round trip; saved to a folder for Ray workers to load."""
    vocabulary = {"<pad>": 0, "<eos>": 1, "<unk>": 2}
    for symbol in sorted(pre_tokenizers.ByteLevel.alphabet()):
        vocabulary[symbol] = len(vocabulary)
    tokenizer = Tokenizer(models.BPE(vocabulary, [], unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token="<pad>",
        eos_token="<eos>",
        unk_token="<unk>",
        clean_up_tokenization_spaces=False,
    )
    if folder is not None:
        fast.save_pretrained(folder)
    return fast


def make_batch(
    tokenizer: Any,
    responses: Sequence[str],
    uids: Sequence[str],
    *,
    truths: Sequence[str | None] | None = None,
    source: str = "toy",
    extra: Sequence[dict[str, Any]] | None = None,
    **columns: Sequence[Any],
) -> DataProto:
    """Left-padded prompts, right-padded responses with an end token (but an empty response has no token at all)."""
    count = len(responses)
    ids = [
        [*tokenizer(text, add_special_tokens=False)["input_ids"], tokenizer.eos_token_id] if text else []
        for text in responses
    ]
    width = max(map(len, ids)) + 2
    prompt = tokenizer("ask", add_special_tokens=False)["input_ids"]
    prompts = torch.tensor([[0] * (PROMPT_WIDTH - len(prompt)) + prompt] * count)
    padded = torch.tensor([row + [0] * (width - len(row)) for row in ids])
    mask = torch.tensor(
        [[0] * (PROMPT_WIDTH - len(prompt)) + [1] * (len(prompt) + len(row)) + [0] * (width - len(row)) for row in ids]
    )
    truths = truths if truths is not None else ["right"] * count
    extra = extra if extra is not None else [{"index": index} for index in range(count)]
    non_tensors = {
        "uid": _column(uids),
        "data_source": _column([source] * count),
        "reward_model": _column([{"style": "rule", "ground_truth": truth} for truth in truths]),
        "extra_info": _column(extra),
        **{name: _column(values) for name, values in columns.items()},
    }
    return DataProto.from_dict(
        tensors={
            "prompts": prompts,
            "responses": padded,
            "attention_mask": mask,
            "input_ids": torch.cat([prompts, padded], dim=1),
        },
        non_tensors=non_tensors,
    )


def lengths(data: DataProto) -> list[int]:
    """Valid response tokens per row."""
    found: list[int] = data.batch["attention_mask"][:, PROMPT_WIDTH:].sum(-1).tolist()
    return found


def _column(values: Sequence[Any]) -> Any:
    column = np.empty(len(values), dtype=object)
    for index, value in enumerate(values):
        column[index] = value
    return column


def run(managers: Sequence[Any], data: Any, errors: bool = False) -> list[Any]:
    """Each row to the next manager in turn, all at once, as reward workers get them."""

    async def together() -> list[Any]:
        calls = [managers[i % len(managers)].run_single(data[i : i + 1]) for i in range(len(data))]
        return await asyncio.gather(*calls, return_exceptions=errors)

    return asyncio.run(together())


def fresh(*names: str) -> list[str]:
    """uids as verl makes them: new in every step."""
    mark = uuid.uuid4().hex
    return [f"{mark}-{name}" for name in names]
