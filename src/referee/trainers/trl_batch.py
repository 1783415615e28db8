"""What a TRL trainer knows about a batch and does not pass to its reward functions: groups, tools, answers cut short.

TRL 1.0 and newer pass bound methods of the trainer (`log_metric`, `log_extra`); `attach` knows it in any release, and
ScoringLoop of trl_async.py stands for it in AsyncGRPO. Only attributes are read here; TRL is not imported.
"""

from __future__ import annotations

import contextlib
import inspect
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from referee.errors import ConfigError
from referee.records import Sample
from referee.trainers.record import expect_steps
from referee.trainers.rows import TOOLS
from referee.trainers.shared import Judged


def trainer_of(columns: Mapping[str, Any], known: Any) -> Any:
    """The trainer that calls: `known` if the batch is its own, else the owner of the methods TRL passes, else None."""
    if known is not None and getattr(known, "state", None) is columns.get("trainer_state"):
        return known
    for name in ("log_metric", "log_extra"):
        owner = getattr(columns.get(name), "__self__", None)
        if hasattr(owner, "num_generations"):
            return owner
    return None


def group_size(trainer: Any) -> int | None:
    """Rows that the trainer takes for one group; None where that is not known."""
    size = getattr(trainer, "num_generations", None)
    if not is_training(trainer):
        size = getattr(trainer, "num_generations_eval", None) or size
    return size if isinstance(size, int) and size > 0 else None


def is_training(trainer: Any) -> bool:
    """False while the trainer evaluates, by TRL's own sign."""
    return bool(getattr(getattr(trainer, "model", None), "training", True))


def refuse_same_names(trainer: Any) -> None:
    """Refuse functions of ours whose metrics and columns TRL would mix up with another function's."""
    funcs = list(getattr(trainer, "reward_funcs", None) or ())
    rewards = {id(reward): reward for func in funcs if (reward := getattr(func, "referee", None)) is not None}
    ours = {func.__name__ for func in funcs if hasattr(func, "referee")}
    names = [name for func in funcs if (name := getattr(func, "__name__", "")) in ours]
    for known in (names, [reward.name for reward in rewards.values()]):
        twice = next((name for name in known if known.count(name) > 1), None)
        if twice is not None:
            raise ConfigError(
                f"two reward functions of this trainer are named {twice!r}: in TRL's log and table one would overwrite "
                f'the other. Give each a name of its own, such as reward_func(config, name="quality").',
                setting="name",
            )


def samples_of(
    judged: Judged,
    prompts: Sequence[Any],
    completions: Sequence[Any],
    ids: Any,
    columns: Mapping[str, Any],
    trainer: Any,
) -> list[Sample]:
    """TRL's batch as samples, in TRL's own groups and with its tools where the trainer is known."""
    rank = getattr(getattr(trainer, "accelerator", None), "process_index", 0)
    refuse_same_names(trainer)
    expect_steps(judged.referee, columns)
    if TOOLS not in columns:
        columns = {**columns, TOOLS: tools_by_row(trainer, columns, len(prompts))}
    return judged.samples(
        prompts,
        completions,
        ids,
        columns,
        getattr(columns.get("trainer_state"), "global_step", None),
        size=group_size(trainer),
        offset=rank * len(prompts),
        truncated=None if ids is None else truncated(trainer, ids),
    )


def tools_by_row(trainer: Any, columns: Mapping[str, Any], rows: int) -> list[list[dict[str, Any]]]:
    """What the policy could call in each row: the trainer's own tools, or those of the row's environment."""
    offered = getattr(trainer, "_env_tools", None)
    if not isinstance(offered, Mapping):
        offered = {None: getattr(trainer, "tools", None)}
    schemas = {name: [described(tool) for tool in tools or () if callable(tool)] for name, tools in offered.items()}
    names = columns.get("environment") or [None] * rows
    return [schemas.get(name, schemas.get(None, [])) for name in names]


def described(tool: Any) -> dict[str, Any]:
    """A tool's schema as transformers gives it to the policy; its name and docstring where transformers cannot."""
    transformers = sys.modules.get("transformers")
    with contextlib.suppress(Exception):
        found: dict[str, Any] = transformers.utils.get_json_schema(tool)  # type: ignore[union-attr]
        return found
    return {"name": getattr(tool, "__name__", type(tool).__name__), "description": inspect.getdoc(tool) or ""}


def truncated(trainer: Any, ids: Sequence[Sequence[int]]) -> list[bool] | None:
    """Which answers stopped at the token limit: no end token, as TRL counts it, and not shorter than the limit.

    TRL's own count asks for the end token alone; an answer that ended with a stop string has none either, and is
    whole. None where the end tokens are not known.
    """
    ends = end_tokens(trainer)
    limit = getattr(trainer, "max_completion_length", None) or getattr(trainer, "max_tokens", None) or 0
    return [bool(row) and row[-1] not in ends and len(row) >= limit for row in ids] if ends else None


def end_tokens(trainer: Any) -> set[int]:
    """The tokens after which TRL takes an answer for finished; empty where they are not known."""
    names = ("_tokenizer", "processing_class", "tokenizer")  # since TRL 1.0, before, AsyncGRPO's loop
    tokens = next((found for name in names if (found := getattr(trainer, name, None)) is not None), None)
    tokens = getattr(tokens, "tokenizer", tokens)  # of a processor
    ends = {getattr(tokens, "eos_token_id", None), *(getattr(trainer, "eos_token_ids", None) or ())} - {None}
    return {*ends, getattr(tokens, "pad_token_id", None)} - {None} if ends else set()
