"""Rewards as frameworks take them: numbers, None, or an error in words. No framework."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from referee.config import Config
from referee.errors import UnscoredError
from referee.judging.folding import PASSED
from referee.records import Part, Reason, Reward, Sample, Settled, Unscored, Verdict
from referee.shaping import shape_group


def values(rewards: Iterable[Reward]) -> list[float | None]:
    """The numbers for the trainer, None where there is no reward."""
    return [reward.value for reward in rewards]


def number(reward: Reward, hook: str) -> float:
    """The reward for a framework that takes nothing but numbers; UnscoredError where there is none."""
    if reward.value is None:
        raise UnscoredError(
            f"an answer has no reward ({why(reward)}), and {hook} takes only a number.", rewards=[reward]
        )
    return reward.value


def why(reward: Reward) -> str:
    """Why a reward is missing, in words."""
    verdict = reward.verdict
    if isinstance(verdict, Unscored):
        return f"{verdict.reason}: {verdict.detail}" if verdict.detail else str(verdict.reason)
    return "the sum of its terms is no number a trainer can hold"


def terms_of(reward: Reward) -> dict[str, float]:
    """What each judge that counts adds to a reward, by name, weight included; without those that gave no verdict."""
    return {term.judge: term.value for term in reward.terms if term.weight != 0 and term.value is not None}


def judge_numbers(reward: Reward, filled: Mapping[str, float] | None = None, default: float = 0.0) -> dict[str, float]:
    """For a trainer's log, of several judges: what each said, in [0, 1], and whether it did. Where it did not, the
    number is that of `filled`, or `default`."""
    found = {}
    for term in reward.terms if len(reward.terms) > 1 else ():
        said = term.settled.verdict
        number = said.value if isinstance(said, Verdict) else (filled or {}).get(term.judge, default)
        found[f"judge_{term.judge}"] = number
        found[f"judge_{term.judge}_scored"] = float(isinstance(said, Verdict))
    return found


class Rubric(NamedTuple):
    """A row's criteria in two numbers."""

    met: float
    """Share of those with a verdict that speak for the response."""
    missing: int
    """Those that count and have no verdict."""


def rubric_of(reward: Reward) -> Rubric | None:
    """The criteria that judges of kind "rubric" gave verdicts on; None where there are none."""
    verdicts = [
        end.verdict for end in reward.judged if isinstance(end.verdict, Verdict) and end.verdict.how == "rubric"
    ]
    parts = [part for verdict in verdicts for part in verdict.parts]
    passed = [_merit(part) > PASSED for part in parts if isinstance(part.verdict, Verdict)]
    missing = sum(isinstance(part.verdict, Unscored) and part.weight != 0 for part in parts)
    return Rubric(sum(passed) / len(passed), missing) if passed else None


def has_rubric(config: Config) -> bool:
    """Whether a judge goes by criteria."""
    return any(judge.kind == "rubric" for judge in config.judge)


def _merit(part: Part) -> float:
    assert isinstance(part.verdict, Verdict)
    return part.verdict.value if part.good else 1.0 - part.verdict.value


def alike(samples: Sequence[Sample], config: Config, end: Settled) -> list[Reward]:
    """Rewards of samples that all end like this, with every judge: shaped and filled as the configuration says."""
    ends = (end,) * len(config.judge)
    groups: dict[str | int, list[tuple[int, Sample, tuple[Settled, ...]]]] = {}
    for index, sample in enumerate(samples):
        groups.setdefault(sample.group or index, []).append((index, sample, ends))
    rewards = [reward for members in groups.values() for reward in shape_group(members, config)]
    return sorted(rewards, key=lambda reward: reward.index)


def unscored(
    samples: Sequence[Sample], config: Config, detail: str, reason: Reason = Reason.CONNECTION
) -> list[Reward]:
    """Rewards of samples whose judging failed as a whole."""
    return alike(samples, config, Settled(verdict=Unscored(reason=reason, detail=detail)))
