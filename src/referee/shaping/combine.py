"""The reward of a group: rule score + coefficient * (sum of weight * judge) - penalty_scale * penalty, and the missing
policy.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import repeat

from msgspec.structs import replace

from referee.config import Config, JudgeConfig, ShapingConfig
from referee.records import Origin, Part, Reason, Reward, Sample, Settled, Term, Unscored, Verdict
from referee.rollouts import own_words
from referee.shaping.length import count_tokens, length_penalty, median
from referee.shaping.missing import fill

MAX_REWARD = 3.4e38
"""Largest 32-bit float, in which trainers keep rewards."""


def needs_group(config: Config) -> bool:
    """True if a reward depends on its siblings. Otherwise each sample is shaped as soon as it settles."""
    return config.shaping.length.enable or config.missing.policy == "group_mean"


def weighted(config: Config, factor: float) -> Config:
    """The same with the judges' part of the reward times a factor."""
    if factor == 1.0:
        return config
    return replace(config, shaping=replace(config.shaping, coefficient=config.shaping.coefficient * factor))


def shape_group(members: Sequence[tuple[int, Sample, tuple[Settled, ...]]], config: Config) -> list[Reward]:
    """The rewards of one complete group, in the order given: (index in the batch, sample, what each judge said of it).

    The median length includes unscored members. With the length penalty off, only group_mean depends on the siblings,
    and `median_length` is 0. It never raises, because the verdicts are already paid for: a sum that is not finite (a
    rule's NaN, an absurd coefficient) is no reward.
    """
    judges, shaping, limits = config.judge, config.shaping, config.shaping.length
    lengths = _lengths([sample for _, sample, _ in members], limits.enable)
    middle = median(lengths) if limits.enable else 0.0
    rewards = []
    for (index, sample, settled), length in zip(members, lengths, strict=True):
        penalty = limits.penalty_scale * length_penalty(length, middle, limits) if limits.enable else 0.0
        terms: tuple[Term, ...]
        if len(settled) == 1:
            ended, terms = settled[0], (_term(settled[0], judges[0], shaping),)
            judge = terms[0].value
        else:
            ended, terms = whole(settled, judges), tuple(map(_term, settled, judges, repeat(shaping)))
            judge = _sum(terms, judges)
        rewards.append(
            Reward(
                index=index,
                id=sample.id,
                group=sample.group,
                value=None if judge is None else _number(sample.rule_score + judge - penalty),
                settled=ended,
                terms=terms,
                rule=sample.rule_score,
                judge=judge,
                penalty=penalty,
                length=length,
                median_length=middle,
            )
        )
    return fill(rewards, config.missing)


def _term(settled: Settled, judge: JudgeConfig, shaping: ShapingConfig) -> Term:
    verdict, value = settled.verdict, None
    if isinstance(verdict, Verdict):
        number = verdict.value if shaping.scale == "unit" else verdict.score
        value = _number(shaping.coefficient * (judge.weight * number))
    return Term(judge.name, value, judge.weight, settled)


def _sum(terms: Sequence[Term], judges: Sequence[JudgeConfig]) -> float | None:
    """What the judges add to a reward. None if a required term is missing, or all of them are."""
    total, found = 0.0, False
    for term, judge in zip(terms, judges, strict=True):
        if term.value is not None:
            total += term.value
            found = found or judge.weight != 0
        elif judge.weight != 0 and not judge.optional:
            return None
    return _number(total) if found else None


def whole(settled: Sequence[Settled], judges: Sequence[JudgeConfig]) -> Settled:
    """What several judges said of a sample, merged: the first required verdict that is missing, or all of them as
    parts, with the weighted sum as score and the weighted mean as value.
    """
    if len(settled) == 1:
        return settled[0]
    missing: Unscored | None = None
    score = value = weight = 0.0
    for end, judge in zip(settled, judges, strict=True):
        said = end.verdict
        if isinstance(said, Verdict):
            score += judge.weight * said.score
            value += abs(judge.weight) * (said.value if judge.weight >= 0 else 1 - said.value)
            weight += abs(judge.weight)
        elif judge.weight != 0 and not judge.optional and missing is None:
            missing = Unscored(reason=said.reason, detail=f"judge {judge.name}: {said.detail}")
    if missing is None and not weight:
        missing = Unscored(reason=Reason.NO_VERDICT, detail="no judge that counts gave a verdict")
    parts = [
        Part(name=judge.name, verdict=end.verdict, weight=judge.weight)
        for end, judge in zip(settled, judges, strict=True)
    ]
    origins = {end.origin for end in settled}
    names: tuple[Origin, ...] = ("call", "shared", "cache", "gate")
    return Settled(
        verdict=missing or Verdict(score=score, value=value / weight, how="terms", parts=tuple(parts)),
        origin=next((name for name in names if name in origins), "none"),
        endpoint=joined(end.endpoint for end in settled),
        model=joined(end.model for end in settled),
        attempts=sum(end.attempts for end in settled),
        sent=min((end.sent for end in settled if end.sent), default=0.0),
        queued_s=max(end.queued_s for end in settled),
        latency_s=max(end.latency_s for end in settled),
        tokens_in=sum(end.tokens_in for end in settled),
        tokens_out=sum(end.tokens_out for end in settled),
        tokens_cached=sum(end.tokens_cached for end in settled),
        tokens_cache_write=sum(end.tokens_cache_write for end in settled),
        cost=sum(end.cost for end in settled),
        saved=sum(end.saved for end in settled),
    )


def joined(names: Iterable[str]) -> str:
    """Names of endpoints or models, some of them already joined, as one text: each once."""
    return ", ".join(dict.fromkeys(name for some in names for name in some.split(", ") if name))


def _lengths(samples: Sequence[Sample], compared: bool) -> list[int]:
    """Response lengths. If compared, they must be in one unit: stated by all, or counted for all."""
    counted = compared and any(sample.length is None for sample in samples)
    return [
        count_tokens(own_words(sample.response)) if counted or sample.length is None else sample.length
        for sample in samples
    ]


def _number(value: float) -> float | None:
    """The value, or None where a trainer's 32-bit float would hold infinity or NaN."""
    return value if -MAX_REWARD <= value <= MAX_REWARD else None
