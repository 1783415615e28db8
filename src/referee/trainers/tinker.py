"""tinker-cookbook: a grader for Env.step, and rewards for EnvGroupBuilder.compute_group_rewards. Both pickle.

In a group, an unscored answer gets its siblings' mean, so its advantage is 0. In `step` there is no group: the grader
raises, and a rollout strategy that tolerates errors (MinViableGroup, RetryOnFailure) leaves the trajectory out.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any

from referee.records import Reward, Verdict
from referee.trainers.rows import group_name, text_of, to_sample
from referee.trainers.shared import Judged, Source, number

Metrics = dict[str, float | int]


class Grader:
    """A judge that environments and builders can hold: no connection inside, so they still pickle."""

    def __init__(self, config: Source) -> None:
        self.judged = Judged(config)

    async def grade(
        self, prompt: Any, answer: Any, *, reference: Any = None, tokens: Sequence[int] | None = None
    ) -> float:
        """The reward of one answer, for `Env.step`; raises UnscoredError where there is none."""
        self.judged.needs("tinker-cookbook's step", none=True, groups=False)
        self.judged.expects_reference(reference is not None, "`grade` the known answer as reference=")
        (reward,) = await self.judged.ascore([to_sample(prompt, answer, ids=tokens, reference=reference)])
        return number(reward, "a step")

    async def group(
        self,
        prompt: Any,
        answers: Sequence[Any],
        *,
        reference: Any = None,
        tokens: Sequence[Sequence[int]] | None = None,
    ) -> list[tuple[float, Metrics]]:
        """Rewards and metrics for the answers to one prompt, in order, as compute_group_rewards returns them."""
        self.judged.expects_reference(reference is not None, "the known answer as reference=")
        name = group_name(text_of(prompt), [text_of(answer) for answer in answers])
        samples = [
            to_sample(prompt, answer, ids=tokens[n] if tokens else None, group=name, reference=reference)
            for n, answer in enumerate(answers)
        ]
        rewards = await self.judged.ascore(samples)
        known = [reward.value for reward in rewards if reward.value is not None]
        # Centering takes the mean off again: an unscored answer moves nothing, nor does a group without any score.
        middle = statistics.fmean(known) if known else 0.0
        return [(middle if reward.value is None else reward.value, _metrics(reward)) for reward in rewards]

    async def trajectories(
        self, renderer: Any, prompt: Any, trajectories: Sequence[Any], *, reference: Any = None
    ) -> list[tuple[float, Metrics]]:
        """The same for finished trajectories: the last action of each is read with the policy's renderer."""
        tokens = [list(one.transitions[-1].ac.tokens) if one.transitions else [] for one in trajectories]
        answers = [text_of(renderer.parse_response(ids)[0]) for ids in tokens]
        return await self.group(prompt, answers, reference=reference, tokens=tokens)

    def __repr__(self) -> str:
        return f"Grader({self.judged!r})"


def _metrics(reward: Reward) -> Metrics:
    """The same names for every answer."""
    verdict = reward.verdict
    return {
        "judge_scored": int(reward.scored),
        "judge": verdict.value if isinstance(verdict, Verdict) else 0.0,
        "length_penalty": reward.penalty,
    }
