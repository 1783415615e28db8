"""The columns beside a reward that verl logs: one fixed set of ours, numeric on every row, and the rule's own."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from referee.config import MissingConfig
from referee.records import Reason, Reward, Unscored, Verdict
from referee.shaping.missing import mean
from referee.trainers.outcome import judge_numbers, rubric_of

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

RESERVED = frozenset({"reward", "score", *KEYS})
"""Names a rule's own columns cannot have: verl adds a `reward` of its own in validation, and a rule's `score` is
`original_score`. `acc`, which verl takes for the core metric of validation, is the rule's to give."""

ERRORS: dict[Reason, int] = {reason: number for number, reason in enumerate(Reason, 1)}
"""judge_error: 0 for none, else the place of the reason in `referee.Reason`."""


MIDDLE = 0.5
"""Of a judge's value, for a group in which it gave no verdict at all: the same for all, so that it teaches nothing."""


def columns_of(
    reward: Reward, value: float, terms: Mapping[str, float] | None = None, *, rubric: bool = False
) -> dict[str, float]:
    """One row's numbers. `value` is the reward verl is given. Of several judges each has two columns more, `terms`
    holding the numbers in place of missing verdicts; with a judge that goes by criteria (`rubric`) there are two more.
    """
    settled, verdict = reward.settled, reward.verdict
    missing = isinstance(verdict, Unscored)
    found = {
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
    found |= judge_numbers(reward, terms, float("nan"))
    if rubric:
        criteria = rubric_of(reward)
        found["rubric_met"] = criteria.met if criteria else float("nan")
        found["rubric_missing"] = float(criteria.missing) if criteria else float("nan")
    return found


def terms_given(reward: Reward) -> dict[str, float | None]:
    """What each of several judges that count said, in [0, 1]; nothing of a lone one."""
    counted = [term for term in reward.terms if term.weight != 0] if len(reward.terms) > 1 else []
    ends = {term.judge: term.settled.verdict for term in counted}
    return {name: said.value if isinstance(said, Verdict) else None for name, said in ends.items()}


def terms_filled(
    given: Mapping[str, float | None], siblings: Sequence[Mapping[str, float | None]], missing: MissingConfig
) -> dict[str, float]:
    """A number for each of these judges: its verdict, the policy's `value`, or its mean over the siblings, which has
    advantage 0 where each column is normalized by itself."""
    found = {}
    for name, number in given.items():
        if number is None and missing.policy == "value":
            number = missing.value
        if number is None:
            number = mean([there for one in siblings if (there := one.get(name)) is not None])
        found[name] = MIDDLE if number is None else number
    return found


def numeric(extra: dict[str, object], names: Iterable[str]) -> dict[str, float]:
    """A rule's own columns by these names; not a number where the rule gave none."""
    return {name: _number(extra.get(name)) for name in names}


def rule_columns(extras: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """What the rule said beside its score, by name, a value for every row: as the rule gave it, and where a row has
    none, not a number, or an empty text in a column of texts."""
    names = dict.fromkeys(name for extra in extras for name in extra if name not in RESERVED)
    columns: dict[str, list[Any]] = {}
    for name in names:
        texts = any(isinstance(extra.get(name), str) for extra in extras)
        columns[name] = [extra.get(name, "" if texts else float("nan")) for extra in extras]
    return columns


def _number(value: object) -> float:
    try:
        return float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return float("nan")
