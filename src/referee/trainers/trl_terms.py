"""One TRL reward function for each judge: which settings allow it, batches they share, and each judge's numbers."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from referee.config import Config, JudgeConfig
from referee.errors import ConfigError
from referee.records import Reward, Sample, Verdict
from referee.shaping.missing import mean
from referee.trainers.shared import Pending

MAX_OPEN = 64
"""Batches kept for functions that have not asked yet. AsyncGRPO has as many open as it scores groups at once."""


class RewardFunctions(list[Any]):
    """For `reward_funcs`: a function for each judge that counts. `weights`: for `reward_weights`."""

    def __init__(self, functions: Sequence[Any], weights: Sequence[float]) -> None:
        super().__init__(functions)
        self.weights = list(weights)


def counted_judges(config: Config) -> list[tuple[int, JudgeConfig]]:
    """The judges that have a function, with their places among the terms; a lone one has one, whatever its weight."""
    judges = list(enumerate(config.judge))
    return [(place, judge) for place, judge in judges if judge.weight != 0 or len(judges) == 1]


def refuse_whole_reward_settings(config: Config) -> None:
    """Refuse settings that are about the reward as a whole, and no judge's own."""
    if config.shaping.length.enable:
        raise ConfigError(
            "the length penalty is no judge's: reward_funcs(config) has nowhere to put it, and a function of its own "
            'would turn "not scored" into "scored 0". Use reward_func(config), or set [shaping.length] enable = false.',
            setting="shaping.length.enable",
        )
    if config.missing.policy == "value":
        raise ConfigError(
            '[missing] policy = "value" is one number for the whole reward; reward_funcs(config) would have to invent '
            'each judge\'s part of it. Set "abstain", "group_mean" or "raise", or use reward_func(config).',
            setting="missing.policy",
        )


def term_values(rewards: Sequence[Reward], place: int, config: Config, factor: float = 1.0) -> list[float | None]:
    """One judge's numbers on the scale of [shaping], without weight and coefficient, times the audit's `factor`.

    A row without a reward is None, whatever this judge said: TRL leaves a row out only if every function says None,
    and counts a single None as 0. So only an optional judge's missing verdict is None by itself.
    """
    unit = config.shaping.scale == "unit"
    numbers = [_number(reward, place, unit) for reward in rewards]
    found = [None if number is None else factor * number for number in numbers]
    if config.missing.policy != "group_mean":
        return found
    groups: dict[str | int, list[float]] = {}
    for reward, number in zip(rewards, found, strict=True):
        if number is not None:
            groups.setdefault(reward.group or reward.index, []).append(number)
    return [
        mean(groups.get(reward.group or reward.index, [])) if reward.filled else number
        for reward, number in zip(rewards, found, strict=True)
    ]


def _number(reward: Reward, place: int, unit: bool) -> float | None:
    verdict = reward.terms[place].settled.verdict
    if reward.judge is None or reward.value is None or not isinstance(verdict, Verdict):
        return None
    return verdict.value if unit else verdict.score


class OpenBatches:
    """Batches that some of `functions` functions have asked for, and others will."""

    def __init__(self, functions: int) -> None:
        self._functions = functions
        self._open: deque[tuple[Pending, set[int]]] = deque(maxlen=MAX_OPEN)
        self._lock = threading.Lock()

    def take(
        self, function: int, samples: tuple[Sample, ...], submit: Callable[[tuple[Sample, ...]], Pending]
    ) -> tuple[Pending, bool]:
        """The batch of these samples that the function has not had yet, and whether it is the first to ask for it."""
        with self._lock:
            for batch in reversed(self._open):  # an older one of the same samples was left by an error
                if function not in batch[1] and batch[0].samples == samples:
                    break
            else:
                batch = (submit(samples), set())
                self._open.append(batch)
            pending, asked = batch
            asked.add(function)
            if len(asked) == self._functions:
                self._open.remove(batch)
            return pending, len(asked) == 1
