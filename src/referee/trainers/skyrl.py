"""SkyRL: a single-turn environment whose reward is the judge's, and a helper for environments of your own.

    register(id="referee", entry_point="referee.trainers.skyrl:JudgedEnv")

SkyRL has no signal for "no reward", and an environment shows one answer at a time: `[missing] policy` must be "value"
or "raise". Steps run in a thread pool (`environment.skyrl_gym.max_env_workers`): as many judge calls can wait at once.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from typing import Any

from referee.records import Reward, Unscored
from referee.trainers.on_demand import on_demand
from referee.trainers.outcome import judge_numbers, number
from referee.trainers.rows import with_reference
from referee.trainers.shared import Judged, from_environment

ADD = "the known answer as reward_spec.ground_truth of the row"
GROUPS = "judge_groups in a trainer's postprocess_generator_output"


def judge_answer(
    prompt: Any,
    action: Any,
    reference: Any = None,
    judged: Judged | None = None,
    row: Mapping[str, Any] | None = None,
) -> tuple[float, dict[str, Any]]:
    """The reward and metadata for one answer, from any thread. For `step` of an environment of your own.

    `action`: the answer's text; of an episode of several turns, its messages. `row`: columns of the dataset, with
    `tools` if there are any.
    """
    judged = (judged or from_environment()).needs("SkyRL's step", can_abstain=False, sees_groups=False, instead=GROUPS)
    sample = judged.sample(prompt, action, with_reference(row, reference), ADD, names=("prompt", "action"))
    (reward,) = judged.score([sample])
    return number(reward, "SkyRL"), _metadata(reward)


def judge_groups(
    prompts: Sequence[Any],
    answers: Sequence[Any],
    uids: Sequence[Any],
    *,
    rows: Sequence[Mapping[str, Any]] | None = None,
    lengths: Sequence[int] | None = None,
    judged: Judged | None = None,
) -> list[float]:
    """The rewards of a whole batch, in its order; answers with one uid are a group. For a trainer of your own, in
    `postprocess_generator_output`. `rows`: columns of the dataset, the known answer among them. `lengths`: tokens of
    the answers, for the length penalty.
    """
    judged = (judged or from_environment()).needs("SkyRL", can_abstain=False, sees_groups=True)
    given = zip(prompts, answers, uids, rows or [{}] * len(answers), strict=True)
    samples = [
        judged.sample(
            prompt, answer, row, ADD, names=("prompt", "action"), group=uid, length=lengths[place] if lengths else None
        )
        for place, (prompt, answer, uid, row) in enumerate(given)
    ]
    return [number(reward, "SkyRL") for reward in judged.score(samples)]


def _environment() -> type:
    base = importlib.import_module("skyrl_gym.envs.base_text_env")

    class JudgedEnv(base.BaseTextEnv):  # type: ignore[misc, name-defined]
        """One question, one answer, one verdict. The known answer: extras["reward_spec"]["ground_truth"]."""

        def __init__(self, env_config: Any = None, extras: dict[str, Any] | None = None) -> None:
            super().__init__()
            extras = extras or {}
            parts = (extras.get("extra_info") or {}, extras, extras.get("reward_spec") or {})
            self._row = {name: value for part in parts for name, value in part.items()}
            self._prompt: Any = extras.get("prompt", "")
            self._metrics: dict[str, Any] = {}
            from_environment().needs("SkyRL's step", can_abstain=False, sees_groups=False, instead=GROUPS)

        def init(self, prompt: Any) -> tuple[Any, dict[str, Any]]:
            self._prompt = prompt
            return prompt, {}

        def step(self, action: str) -> Any:
            reward, metadata = judge_answer(self._prompt, action, row=self._row)
            self._metrics = {"judge_scored": float(not metadata["unscored"]), **metadata["judges"]}
            return base.BaseTextEnvStepOutput(observations=[], reward=reward, done=True, metadata=metadata)

        def get_metrics(self) -> dict[str, Any]:
            return self._metrics

    return JudgedEnv


__getattr__ = on_demand(globals(), JudgedEnv=_environment)


def _metadata(reward: Reward) -> dict[str, Any]:
    verdict, judges = reward.verdict, judge_numbers(reward)
    if isinstance(verdict, Unscored):
        return {"judge": None, "judge_said": verdict.detail, "unscored": str(verdict.reason), "judges": judges}
    return {"judge": verdict.score, "judge_said": verdict.reason, "unscored": "", "judges": judges}
