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

from msgspec import Struct

from referee.config import MissingConfig
from referee.errors import InputError
from referee.records import Reward
from referee.rollouts import plain
from referee.shaping import median
from referee.ticket import Ticket
from referee.trainers.outcome import has_rubric
from referee.trainers.verl.backend import Backend
from referee.trainers.verl.columns import KEYS, columns_of, rule_columns, terms_filled, terms_given
from referee.trainers.verl.config import LengthPenaltyConfig
from referee.trainers.verl.data import (
    Row,
    RuleFunction,
    default_rule,
    existing_scores,
    fingerprints,
    lengths_of,
    place,
    rows_of,
    scores_of,
)


class _Submitted(Struct, frozen=True):
    """What a ticket was submitted for."""

    rows: list[tuple[str, int]]
    columns: dict[str, list[Any]]
    """The rule's own."""


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
        rows = rows_of(data, self.tokenizer, self.reward_fn_key, window=int(data.batch["responses"].shape[-1]))
        results = scores_of(self.compute_score or default_rule(), [row.arguments() for row in rows])
        self._examine(rows, [score for score, _ in results])
        judged = self._backend.judged
        samples = [
            row.sample(judged, score, str(index))
            for index, (row, (score, _)) in enumerate(zip(rows, results, strict=True))
        ]
        ticket = self._backend.submit(samples)
        ticket.submitted = _Submitted(  # type: ignore[attr-defined]
            fingerprints(data, [row.length for row in rows]), rule_columns([extra for _, extra in results])
        )
        return ticket

    def collect(self, ticket: Ticket, data: Any, return_dict: bool = False) -> Any:
        """The rewards of a batch that was submitted, waiting for them if need be. Its rows must be as they were."""
        existing = existing_scores(data, return_dict)
        if existing is not None:
            return existing
        if len(ticket) != len(data):
            raise InputError(
                f"this ticket holds {len(ticket)} rewards and the batch has {len(data)} rows: collect a ticket with "
                "the batch it was submitted for.",
                field="data",
            )
        lengths = lengths_of(data, getattr(self.tokenizer, "pad_token_id", None))
        submitted = _submitted(ticket, fingerprints(data, lengths))
        rewards = self._backend.collect(ticket)
        groups = _groups(rewards)
        values = [_value(reward, rewards, rows) for reward, rows in zip(rewards, groups, strict=True)]
        tensor = place(values, lengths, data.batch["responses"])
        if not return_dict:
            return tensor
        config = self._backend.judged.config if self._backend.judged else None
        missing, rubric = (config.missing, has_rubric(config)) if config else (MissingConfig(), False)
        given, columns = [terms_given(reward) for reward in rewards], []
        for reward, value, own, rows in zip(rewards, values, given, groups, strict=True):
            terms = terms_filled(own, [given[row] for row in rows], missing)
            columns.append(columns_of(reward, value, terms, rubric=rubric))
            # Also where no penalty is computed from it.
            columns[-1]["median_length"] = median([rewards[row].length for row in rows])
        info: dict[str, list[Any]] = {key: [row[key] for row in columns] for key in (columns[0] if columns else KEYS)}
        return {"reward_tensor": tensor, "reward_extra_info": {**info, **submitted.columns}}

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
                f"[prompt] {plain(row.prompt)}\n[response] {row.response}\n"
                f"[ground_truth] {row.ground_truth}\n[score] {score}\n"
            )


def _groups(rewards: Sequence[Reward]) -> list[list[int]]:
    """For each row those of its group, itself among them."""
    groups: dict[str | int, list[int]] = {}
    for row, reward in enumerate(rewards):
        groups.setdefault(reward.group or reward.index, []).append(row)
    return [groups[reward.group or reward.index] for reward in rewards]


def _value(reward: Reward, rewards: Sequence[Reward], rows: Sequence[int]) -> float:
    """A number for the row. A group without a single reward gets one number for all, so that it teaches nothing."""
    if reward.value is not None:
        return reward.value
    return statistics.fmean([rewards[row].rule - rewards[row].penalty for row in rows])


def _submitted(ticket: Ticket, rows: Sequence[tuple[str, int]]) -> _Submitted:
    """What the ticket was submitted for; an error that names the first row that is not in this batch's place."""
    submitted = getattr(ticket, "submitted", None)
    if not isinstance(submitted, _Submitted):
        raise InputError(
            "this ticket is not of LengthPenaltyRewardManager.submit: collect the one it returned.", field="ticket"
        )
    for index, (there, here) in enumerate(zip(submitted.rows, rows, strict=True)):
        if there == here:
            continue
        if sorted(submitted.rows) == sorted(rows):
            problem = "the batch holds the same rows in another order. Submit it after reordering, or collect before"
        elif there[0] != here[0]:
            problem = f"it was submitted for a batch whose row {index} has uid {there[0]!r}; here that is {here[0]!r}"
        else:
            problem = f"it was submitted for a batch with another response in row {index} (uid {here[0]!r})"
        raise InputError(f"this ticket's rewards are not this batch's: {problem}.", field="ticket")
    return submitted
