"""OpenPipe ART: `after_each` for `art.gather_trajectory_groups`. A whole group is judged at once.

Not scored: the trajectory leaves its group; a group with fewer than two scored ones is dropped: it teaches nothing.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from referee.records import Reward, Sample, Verdict
from referee.trainers.rows import REFERENCES, group_name, has_reference, reference_of, text_of, to_sample
from referee.trainers.shared import Judged, Source


def after_each(config: Source) -> Callable[[Any], Awaitable[Any]]:
    """A coroutine function that gives every trajectory of a group its reward, or None to drop the group."""
    judged = Judged(config).needs("ART", none=True, groups=True)

    async def judge(group: Any) -> Any:
        trajectories = list(group.trajectories)
        judged.expects_reference(
            not trajectories or any(has_reference(one.metadata) for one in trajectories),
            f"the trajectories' metadata one of {', '.join(REFERENCES)}",
        )
        texts = [_texts(one) for one in trajectories]
        name = group_name(texts)
        rewards = await judged.ascore([_sample(*row, name) for row in zip(trajectories, texts, strict=True)])
        pairs = zip(trajectories, rewards, strict=True)
        kept = [_rewarded(one, reward) for one, reward in pairs if reward.value is not None]
        if len(kept) < min(2, len(trajectories)):
            return None
        return group.model_copy(update={"trajectories": kept})

    return judge


def _texts(trajectory: Any) -> tuple[str, str]:
    """Prompt and answer: what came before the model's first own message, and the rest."""
    entries = list(trajectory.messages_and_choices)
    messages = trajectory.messages()
    first = next((place for place, entry in enumerate(entries) if hasattr(entry, "message")), None)
    if first is None:  # no trainable message: the last one is the answer
        first = max(len(messages) - 1, 0)
    return text_of(messages[:first]), text_of(messages[first:])


def _sample(trajectory: Any, texts: tuple[str, str], group: str) -> Sample:
    last = trajectory.messages_and_choices[-1] if trajectory.messages_and_choices else None
    return to_sample(
        *texts,
        group=group,
        reference=reference_of(trajectory.metadata),
        rule_score=float(trajectory.reward),
        truncated=getattr(last, "finish_reason", "") == "length",
    )


def _rewarded(trajectory: Any, reward: Reward) -> Any:
    """A copy with the reward; what the trajectory had before counted as its rule score."""
    verdict = reward.verdict
    metrics = {"rule_reward": trajectory.reward, "length_penalty": reward.penalty, "judge_scored": reward.scored}
    if isinstance(verdict, Verdict):
        metrics["judge"] = verdict.score
    return trajectory.model_copy(update={"reward": reward.value, "metrics": {**trajectory.metrics, **metrics}})
