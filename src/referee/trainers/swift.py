"""ms-swift: reward classes for GRPO. In a plugin file: `from referee.trainers.swift import register; register()`.

    swift rlhf --rlhf_type grpo --external_plugins plugin.py --reward_funcs referee …

ms-swift counts None as 0, so `[missing] policy = "abstain"` is refused; "group_mean" gives an unscored answer
advantage 0. Each step of an AsyncORM runs on a new event loop; ours works on any.
"""

from __future__ import annotations

import importlib
import logging
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from referee.records import Sample, Text
from referee.trainers.outcome import values
from referee.trainers.record import expect_steps
from referee.trainers.rows import field, text_of
from referee.trainers.shared import Judged, from_environment
from referee.trainers.siblings import spread_over_ranks

log = logging.getLogger("referee.trainers")

WHOLE = "Make per_device_train_batch_size * steps_per_generation a multiple of num_generations."


class RefereeORM:
    """Judge, length penalty and missing policy as one synchronous reward."""

    def __init__(self, args: Any = None, judged: Judged | None = None, **_: Any) -> None:
        self.args = args
        self.judged = (judged or from_environment()).needs("ms-swift", can_abstain=False, sees_groups=True)
        self._seen_whole = False

    def __call__(self, completions: Sequence[Any], **columns: Any) -> list[float | None]:
        """One reward for each completion, in order. None only where a whole group has no score."""
        return values(self.judged.score(self._samples(completions, columns)))

    def _samples(self, completions: Sequence[Any], columns: Mapping[str, Any]) -> list[Sample]:
        """ms-swift gives the conversation, and its last message once more as the completion."""
        ids, cut = columns.get("response_token_ids"), columns.get("is_truncated")
        infos = columns.get("rollout_infos") or [None] * len(completions)
        conversations = columns.get("messages") or [[] for _ in completions]
        pairs = [
            _parts(
                conversation,
                completions[row],
                _turns(None if ids is None else ids[row], infos[row]),
                f"messages[{row}]",
            )
            for row, conversation in enumerate(conversations)
        ]
        prompts = [prompt for prompt, _ in pairs]
        self._check_ranks(prompts)
        expect_steps(self.judged.referee, columns)
        return self.judged.samples(
            prompts,
            [answer for _, answer in pairs],
            None if ids is None else [_flat(row) for row in ids],
            columns,
            getattr(columns.get("trainer_state"), "global_step", None),
            size=self._group_size(prompts),
            truncated=None if cut is None else [bool(row) for row in cut],
        )

    def _check_ranks(self, prompts: Sequence[Text]) -> None:
        """Refuse what depends on siblings where a part of them is on another rank. ms-swift does not say whether it
        evaluates, which may have other groups: after a batch of whole ones it is a warning."""
        size, rows = getattr(self.args, "num_generations", None), len(prompts)
        if not isinstance(size, int) or size < 1 or rows % size == 0 or min(Counter(prompts).values()) >= size:
            self._seen_whole = True
        elif int(os.environ.get("WORLD_SIZE") or 1) > 1:
            problem = spread_over_ranks(self.judged.config, rows, size, WHOLE)
            if problem is not None and not self._seen_whole:
                raise problem
            if problem is not None:
                log.warning("%s", problem)

    def _group_size(self, prompts: Sequence[Text]) -> int | None:
        """Rows of a group, if the batch can be made of such groups: an evaluation may have others."""
        size = getattr(self.args, "num_generations", None)
        if not isinstance(size, int) or size < 1 or len(prompts) % size:
            return None
        blocks = [prompts[start : start + size] for start in range(0, len(prompts), size)]
        return size if all(len({*block}) == 1 for block in blocks) else None


class AsyncRefereeORM(RefereeORM):
    """The same as a coroutine; ms-swift runs it together with other asynchronous rewards."""

    async def __call__(self, completions: Sequence[Any], **columns: Any) -> list[float | None]:  # type: ignore[override]
        """One reward for each completion, in order. None only where a whole group has no score."""
        return values(await self.judged.ascore(self._samples(completions, columns)))


def register() -> None:
    """Make the names `referee` and `referee_async` known to --reward_funcs."""
    known = importlib.import_module("swift.rewards").orms
    known["referee"] = RefereeORM
    known["referee_async"] = AsyncRefereeORM


def _flat(ids: Any) -> list[int] | None:
    """An answer's tokens; ms-swift keeps them turn by turn."""
    if not ids:
        return None
    return [token for turn in ids for token in (turn if isinstance(turn, Sequence) else [turn])]


def _turns(ids: Any, infos: Any) -> int:
    """How many messages of a conversation the policy wrote in this rollout: ms-swift keeps tokens turn by turn."""
    if ids and isinstance(ids[0], Sequence):
        return len(ids)
    return int((infos or {}).get("num_turns") or 1)


def _parts(conversation: Sequence[Any], completion: Any, turns: int, where: str) -> tuple[Text, Any]:
    """Prompt and response: the response begins with the first of the policy's `turns` last messages."""
    messages = text_of(conversation, where)
    if not conversation or field(conversation[-1], "role") != "assistant":
        return messages, completion
    if isinstance(messages, str):
        return "", messages
    own = [place for place, message in enumerate(messages) if message.role == "assistant"]
    first = own[-min(turns, len(own))]
    return text_of(messages[:first]), text_of(messages[first:])
