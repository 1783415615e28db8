"""LengthPenaltyRewardManager: verl's batch manager with a length penalty and a judge. One batch is one wave of calls.

    reward = compute_score(...) + reward_coefficient * judge - penalty_scale * penalty

Neither verl nor torch is imported here before a batch comes.
"""

from __future__ import annotations

import statistics
import sys
from collections import Counter
from collections.abc import Sequence
from typing import Any

from referee.errors import InputError
from referee.records import Reward
from referee.ticket import Ticket
from referee.trainers.verl.backend import Backend
from referee.trainers.verl.columns import KEYS, RESERVED, columns_of, numeric
from referee.trainers.verl.config import LengthPenaltyConfig
from referee.trainers.verl.data import (
    Row,
    RuleFunction,
    default_rule,
    existing_scores,
    lengths_of,
    place,
    rows_of,
    rule_scores,
)


class LengthPenaltyRewardManager:
    """Call it with a DataProto, or `submit` one, compute on, and `collect` when the rewards are due."""

    def __init__(
        self,
        tokenizer: Any,
        num_examine: int = 0,
        compute_score: RuleFunction | None = None,
        reward_fn_key: str = "data_source",
        length_penalty_config: Any = None,
    ) -> None:
        """`num_examine`: rows per data source and batch that are printed. `compute_score`: the rule; None is verl's."""
        self.tokenizer = tokenizer
        self.num_examine = num_examine
        self.compute_score = compute_score
        self.reward_fn_key = reward_fn_key
        self.length_penalty_config = LengthPenaltyConfig.of(length_penalty_config)
        self._backend = Backend(self.length_penalty_config)

    def start_workers(self) -> None:
        """Open the judge. Called by itself on first use; safe to call twice."""
        self._backend.start()

    def shutdown_workers(self) -> None:
        """Let the judge go. Called by itself at exit; safe to call twice, and the next batch opens it again."""
        self._backend.close()

    def __call__(self, data: Any, return_dict: bool = False) -> Any:
        """The reward tensor, or with `return_dict` also the extra info, both in the order of the batch."""
        existing = existing_scores(data, return_dict)
        if existing is not None:
            return existing
        return self.collect(self.submit(data), data, return_dict)

    def submit(self, data: Any) -> Ticket:
        """Apply the rule, start judging the whole batch, and return at once."""
        self.start_workers()
        rows = rows_of(data, self.tokenizer, self.reward_fn_key)
        results = rule_scores(self.compute_score or default_rule(), rows)
        self._examine(rows, [score for score, _ in results])
        samples = [
            row.sample(score, str(index)) for index, (row, (score, _)) in enumerate(zip(rows, results, strict=True))
        ]
        ticket = self._backend.submit(samples)
        ticket.rule_columns = _own_columns([extra for _, extra in results])  # type: ignore[attr-defined]
        return ticket

    def collect(self, ticket: Ticket, data: Any, return_dict: bool = False) -> Any:
        """The rewards of a batch that was submitted, waiting for them if need be."""
        existing = existing_scores(data, return_dict)
        if existing is not None:
            return existing
        if len(ticket) != len(data):
            raise InputError(
                f"this ticket holds {len(ticket)} rewards and the batch has {len(data)} rows: collect a ticket with "
                "the batch it was submitted for.",
                field="data",
            )
        rewards = self._backend.collect(ticket)
        values = _values(rewards)
        lengths = lengths_of(data, getattr(self.tokenizer, "pad_token_id", None))
        tensor = place(values, lengths, data.batch["responses"])
        if not return_dict:
            return tensor
        rows = [columns_of(reward, value) for reward, value in zip(rewards, values, strict=True)]
        info: dict[str, list[float]] = {key: [row[key] for row in rows] for key in KEYS}
        return {"reward_tensor": tensor, "reward_extra_info": {**info, **getattr(ticket, "rule_columns", {})}}

    def __repr__(self) -> str:
        return f"LengthPenaltyRewardManager({self.length_penalty_config!r}, judging {self._backend.mode})"

    def __getstate__(self) -> dict[str, Any]:
        # verl 0.4 to 0.7 sends the manager to another process; what is open stays here.
        return {name: value for name, value in self.__dict__.items() if name != "_backend"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._backend = Backend(self.length_penalty_config)

    def _examine(self, rows: Sequence[Row], scores: Sequence[float]) -> None:
        """Print a few rows, as verl's managers do."""
        shown: Counter[str] = Counter()
        for row, score in zip(rows, scores, strict=True):
            source = str(row.data_source)
            if shown[source] >= self.num_examine:
                continue
            shown[source] += 1
            sys.stdout.write(
                f"[prompt] {row.prompt}\n[response] {row.response}\n"
                f"[ground_truth] {row.ground_truth}\n[score] {score}\n"
            )


def _values(rewards: Sequence[Reward]) -> list[float]:
    """A number for every row. A group without a single reward gets one number for all, so that it teaches nothing."""
    bare: dict[str | int, list[float]] = {}
    for reward in rewards:
        bare.setdefault(reward.group or reward.index, []).append(reward.rule - reward.penalty)
    return [
        statistics.fmean(bare[reward.group or reward.index]) if reward.value is None else reward.value
        for reward in rewards
    ]


def _own_columns(extras: Sequence[dict[str, Any]]) -> dict[str, list[float]]:
    """What the rule said beside its score, by name, a number for every row. Columns without numbers are left out."""
    names = sorted({name for extra in extras for name in extra} - RESERVED)
    columns = {name: [numeric(extra, [name])[name] for extra in extras] for name in names}
    return {name: values for name, values in columns.items() if any(value == value for value in values)}
