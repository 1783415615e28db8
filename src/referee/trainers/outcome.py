"""Rewards as frameworks take them: numbers, None, or an error in words. No framework."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from referee.config import Config
from referee.errors import UnscoredError
from referee.records import Reason, Reward, Sample, Settled, Unscored
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
