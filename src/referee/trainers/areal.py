"""AReaL: `JudgedWorkflow`, the single-turn RLVR workflow with the judge as its reward, on AReaL's own event loop.

    workflow="referee.trainers.areal.JudgedWorkflow", workflow_kwargs={"config": "referee.toml", "gconfig": …}

Not scored: the episode returns None and AReaL rejects the trajectory. AReaL's plain `reward_fn` is not offered on
purpose: it runs in a process pool that gives up after 15 s, asks again up to three times and then returns 0.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from typing import Any

from referee.errors import UnscoredError
from referee.trainers.on_demand import on_demand
from referee.trainers.outcome import values, why
from referee.trainers.rows import REFERENCES
from referee.trainers.shared import Judged, Source, from_environment
from referee.trainers.siblings import siblings

ADD = f"the row one of {', '.join(REFERENCES)}"
GROUPS = "judge_group in a workflow of your own that generates all answers of a prompt in one episode"


class Rejected(Exception):
    """This trajectory has no reward."""


async def judge_episode(
    judged: Judged,
    prompt: Any,
    answer: Any,
    ids: Sequence[int] | None = None,
    row: Mapping[str, Any] | None = None,
    *,
    truncated: bool = False,
) -> float:
    """The reward of one answer, text or messages; raises Rejected where there is none. For workflows of your own.

    `row`: the row of the dataset, for the known answer, `tools`, and columns that a template shows.
    """
    judged.needs("AReaL's workflow", can_abstain=True, sees_groups=False, instead=GROUPS)
    (reward,) = await judged.ascore([judged.sample(prompt, answer, row or {}, ADD, ids=ids, truncated=truncated)])
    if reward.value is None:
        raise Rejected(why(reward))
    return reward.value


async def judge_group(
    judged: Judged,
    prompt: Any,
    answers: Sequence[Any],
    ids: Sequence[Sequence[int]] | None = None,
    row: Mapping[str, Any] | None = None,
    *,
    truncated: Sequence[bool] | None = None,
) -> list[float | None]:
    """The rewards of all answers to one prompt; None where there is none: leave that trajectory out."""
    rewards = await judged.ascore(siblings(judged, prompt, answers, row or {}, ADD, ids=ids, truncated=truncated))
    return values(rewards)


def _no_reward_here(*_: Any, **__: Any) -> float:
    raise UnscoredError("JudgedWorkflow asks the judge itself; this function is never called.")


def _workflow() -> type:
    base = importlib.import_module("areal.workflow.rlvr").RLVRWorkflow

    class JudgedWorkflow(base):  # type: ignore[misc, valid-type]
        """RLVRWorkflow with a judge. `config`: as everywhere; without it, what REFEREE_CONFIG names."""

        def __init__(self, config: Source | None = None, **settings: Any) -> None:
            settings.setdefault("reward_fn", _no_reward_here)
            super().__init__(**settings)
            self.judged = (from_environment() if config is None else Judged(config)).needs(
                "AReaL's workflow", can_abstain=True, sees_groups=False, instead=GROUPS
            )

        async def _compute_rewards(self, resp: Any, prompt_str: str, task_data: dict[str, Any]) -> float:
            answer = self.tokenizer.decode(resp.output_tokens, skip_special_tokens=True)
            cut = getattr(resp, "stop_reason", "") == "length"
            prompt = task_data.get("messages", prompt_str)
            return await judge_episode(self.judged, prompt, answer, resp.output_tokens, task_data, truncated=cut)

        async def arun_episode(self, engine: Any, data: dict[str, Any]) -> Any:
            try:
                return await super().arun_episode(engine, data)
            except Rejected:
                return None

    return JudgedWorkflow


__getattr__ = on_demand(globals(), JudgedWorkflow=_workflow)
