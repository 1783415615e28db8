"""Starting the judge when TRL's generation ends, so that it works while log-probabilities are computed.

TRL asks for rewards only after both log-prob passes. `attach` wraps two methods of one trainer instance and nothing
else; the reward function still decides every number, and judges anew if anything differs from what was begun.
"""

from __future__ import annotations

import inspect
from types import TracebackType
from typing import Any

from referee.errors import ConfigError

FIRST, LAST = (0, 27), (1, 16)
"""TRL releases whose trainers are known to have the methods wrapped here, with the results read here."""
CALLED_WITH = ["inputs", "prompts", "completions", "completion_ids_list"]
PLACES = {3: (1, 2), 7: (1, 3), 8: (1, 3), 9: (1, 3)}
"""Length of what `_generate` returns (3: RLOO) to where completion ids and completions stand in it."""


class Attached:
    """Early judging on one trainer. `detach`, or the end of a `with`, leaves the trainer as it was."""

    def __init__(self, trainer: Any, rewards: list[Any]) -> None:
        self._trainer = trainer
        self._rewards = rewards
        self._inputs: Any = None
        self._generate = trainer._generate
        self._score = trainer._generate_and_score_completions
        self._before = {name: trainer.__dict__.get(name) for name in ("_generate", "_generate_and_score_completions")}
        trainer._generate = self._generate_and_begin
        trainer._generate_and_score_completions = self._remember_and_score
        for reward in rewards:
            reward.know(trainer)

    def detach(self) -> None:
        """Undo it. Safe to call twice."""
        for name, before in self._before.items():
            if before is None:
                self._trainer.__dict__.pop(name, None)
            else:
                setattr(self._trainer, name, before)
        self._before = {}
        for reward in self._rewards:
            reward.abandon()

    def __enter__(self) -> Attached:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.detach()

    def _remember_and_score(self, inputs: Any, *more: Any, **named: Any) -> Any:
        self._inputs = inputs
        try:
            return self._score(inputs, *more, **named)
        finally:
            self._inputs = None

    def _generate_and_begin(self, prompts: Any, *more: Any, **named: Any) -> Any:
        result = self._generate(prompts, *more, **named)
        place = PLACES.get(len(result)) if isinstance(result, tuple) else None
        if self._inputs and place is not None:
            ids, completions = result[place[0]], result[place[1]]
            names = [name for name in self._inputs[0] if name not in ("prompt", "completion", "completion_ids")]
            columns = {name: [row.get(name) for row in self._inputs] for name in names}
            # What a rollout_func returns besides tokens: TRL hands it to reward functions as columns.
            columns |= next((part for part in result if isinstance(part, dict)), {})
            columns["trainer_state"] = self._trainer.state
            for reward in self._rewards:
                reward.begin((prompts, completions, ids, columns))
        return result


def attach(trainer: Any) -> Attached:
    """Let the trainer's referee functions start judging at the end of generation. Changes no reward.

    For GRPOTrainer and RLOOTrainer, before `train()`. There is something to hide behind when log-probabilities are
    computed between generation and rewards: beta > 0, vLLM's importance sampling, several updates per generation.
    """
    from referee.trainers.trl import TrlReward, trl_version

    version = trl_version()
    if version is None or not FIRST <= version <= LAST:
        shown = "none" if version is None else ".".join(map(str, version))
        raise ConfigError(
            f"attach knows TRL 0.27 to 1.16, and this is {shown}: its trainer may work differently inside. Rewards are "
            "the same without attach, only without overlap; leave it out, or update referee.",
            setting="trl",
        )
    rewards = [found for func in getattr(trainer, "reward_funcs", []) if (found := getattr(func, "referee", None))]
    rewards = [*dict.fromkeys(reward for reward in rewards if isinstance(reward, TrlReward))]
    if not rewards:
        raise ConfigError(
            "attach found no referee function among the trainer's reward_funcs. Put reward_func(config) there.",
            setting="reward_funcs",
        )
    if isinstance(getattr(getattr(trainer, "_generate", None), "__self__", None), Attached):
        raise ConfigError("this trainer is attached already; detach it first.", setting="trl")
    calculate = getattr(trainer, "_calculate_rewards", None)
    known = calculate is not None and list(inspect.signature(calculate).parameters) == CALLED_WITH
    if not known or not callable(getattr(trainer, "_generate", None)):
        raise ConfigError(
            f"attach does not know the inside of {type(trainer).__name__}: it is for GRPOTrainer and RLOOTrainer. "
            "Rewards are the same without attach; leave it out.",
            setting="trl",
        )
    return Attached(trainer, rewards)
