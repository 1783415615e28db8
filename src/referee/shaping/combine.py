"""The reward of a group: rule score + coefficient * judge - penalty_scale * penalty, and the missing policy."""

from __future__ import annotations

from collections.abc import Sequence

from referee.config import Config
from referee.records import Reward, Sample, Settled, Verdict
from referee.shaping.length import count_tokens, length_penalty, median
from referee.shaping.missing import fill

LARGEST = 3.4e38
"""Trainers keep rewards in 32-bit floats, where anything larger is infinity."""


def needs_group(config: Config) -> bool:
    """True if a reward depends on its siblings. Otherwise each sample is shaped as soon as it is settled."""
    return config.shaping.length.enable or config.missing.policy == "group_mean"


def shape_group(members: Sequence[tuple[int, Sample, Settled]], config: Config) -> list[Reward]:
    """The rewards of one whole group, in the order given: (index in the batch, sample, how its judging ended).

    The median counts every member, also unscored ones: their answers are answers. With the length penalty off, no
    number here depends on the siblings but a group_mean, and `median_length` is 0. It never raises: the judge has been
    paid by now. A sum that is no number (a rule's NaN, an absurd coefficient) is no reward.
    """
    shaping, limits = config.shaping, config.shaping.length
    lengths = _lengths([sample for _, sample, _ in members], limits.enable)
    middle = median(lengths) if limits.enable else 0.0
    rewards = []
    for (index, sample, settled), length in zip(members, lengths, strict=True):
        penalty = limits.penalty_scale * length_penalty(length, middle, limits) if limits.enable else 0.0
        verdict, judge, value = settled.verdict, None, None
        if isinstance(verdict, Verdict):
            judge = _number(shaping.coefficient * (verdict.value if shaping.scale == "unit" else verdict.score))
            value = None if judge is None else _number(sample.rule_score + judge - penalty)
        rewards.append(
            Reward(
                index=index,
                id=sample.id,
                group=sample.group,
                value=value,
                settled=settled,
                rule=sample.rule_score,
                judge=judge,
                penalty=penalty,
                length=length,
                median_length=middle,
            )
        )
    return fill(rewards, config.missing)


def _lengths(samples: Sequence[Sample], compared: bool) -> list[int]:
    """Response lengths. Where they are compared they must be in one unit: stated by all, or counted for all."""
    counted = compared and any(sample.length is None for sample in samples)
    return [count_tokens(sample.response) if counted or sample.length is None else sample.length for sample in samples]


def _number(value: float) -> float | None:
    """The value, or None where a trainer's 32-bit float would hold infinity or NaN."""
    return value if -LARGEST <= value <= LARGEST else None
