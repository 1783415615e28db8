"""The numbers beside a reward that verl logs: one fixed set of keys, numeric on every row, never `reward` nor `acc`."""

from __future__ import annotations

from collections.abc import Iterable

from referee.records import Reason, Reward, Unscored

KEYS = (
    "openai_quality_reward",
    "length_penalty",
    "original_score",
    "response_length",
    "median_length",
    "judge_scored",
    "judge_asked",
    "judge_cached",
    "judge_attempts",
    "judge_latency_s",
    "judge_cost_usd",
    "judge_error",
)
"""The first three add up on every row: reward = original_score + openai_quality_reward - length_penalty. Where the
judge gave no score (judge_scored = 0) openai_quality_reward is what the missing policy put in its place; without a
judge both are 0 everywhere."""

RESERVED = frozenset({"reward", "acc", "score", *KEYS})
"""Names a rule's own columns cannot have: verl gives the first two a meaning of their own."""

ERRORS: dict[Reason, int] = {reason: number for number, reason in enumerate(Reason, 1)}
"""judge_error: 0 for none, else the place of the reason in `referee.Reason`."""


def columns_of(reward: Reward, value: float) -> dict[str, float]:
    """One row's numbers. `value` is the reward verl is given."""
    settled, verdict = reward.settled, reward.verdict
    missing = isinstance(verdict, Unscored)
    return {
        "openai_quality_reward": reward.judge if reward.judge is not None else value - reward.rule + reward.penalty,
        "length_penalty": reward.penalty,
        "original_score": reward.rule,
        "response_length": float(reward.length),
        "median_length": reward.median_length,
        "judge_scored": float(reward.scored and settled.origin != "none"),
        "judge_asked": float(settled.origin in ("call", "cache", "shared") or missing),
        "judge_cached": float(settled.origin in ("cache", "shared")),
        "judge_attempts": float(settled.attempts),
        "judge_latency_s": settled.latency_s,
        "judge_cost_usd": settled.cost,
        "judge_error": float(ERRORS[verdict.reason]) if isinstance(verdict, Unscored) else 0.0,
    }


def numeric(extra: dict[str, object], names: Iterable[str]) -> dict[str, float]:
    """A rule's own columns by these names; not a number where the rule gave none."""
    return {name: _number(extra.get(name)) for name in names}


def _number(value: object) -> float:
    try:
        return float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return float("nan")
