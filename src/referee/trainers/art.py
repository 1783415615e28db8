"""OpenPipe ART: `after_each` for `art.gather_trajectory_groups`. A whole group is judged at once.

Not scored: the trajectory leaves its group; a group with fewer than two scored ones is dropped: it teaches nothing.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from referee.records import Message, Reward, Text, Verdict
from referee.trainers.outcome import judge_numbers
from referee.trainers.rows import REFERENCES, first_of, group_name, text_of
from referee.trainers.shared import Judged, Source

ADD = f"the trajectories' metadata one of {', '.join(REFERENCES)}"
MESSAGES = "messages_and_choices"
ADDITIONAL, OWN = Message("additional history of this trajectory"), Message("the trajectory itself")
"""Headings between the conversations of a trajectory that has several."""


def after_each(config: Source) -> Callable[[Any], Awaitable[Any]]:
    """A coroutine function that gives every trajectory of a group its reward, or None to drop the group."""
    judged = Judged(config).needs("ART", can_abstain=True, sees_groups=True)

    async def judge(group: Any) -> Any:
        trajectories = list(group.trajectories)
        conversations = [_conversation(one) for one in trajectories]
        name = group_name(conversations)
        samples = [
            judged.sample(
                *conversation,
                {"tools": getattr(one, "tools", None), **one.metadata},
                ADD,
                group=name,
                rule_score=float(one.reward),
                truncated=_is_cut(one),
            )
            for one, conversation in zip(trajectories, conversations, strict=True)
        ]
        pairs = zip(trajectories, await judged.ascore(samples), strict=True)
        kept = [_rewarded(one, reward) for one, reward in pairs if reward.value is not None]
        if len(kept) < min(2, len(trajectories)):
            return None
        return group.model_copy(update={"trajectories": kept})

    return judge


def _conversation(trajectory: Any) -> tuple[Text, Text]:
    """Prompt and answer: what came before the model's first own message, and the rest. Additional histories come before
    the answer, under headings.

    `trajectory.messages()` would leave out the reasoning, so a choice's own message is taken.
    """
    messages = _messages(trajectory)
    # Without a message of its own, the last one is the answer.
    first = first_of(trajectory.messages_and_choices, lambda entry: hasattr(entry, "message"))
    histories = getattr(trajectory, "additional_histories", None) or ()
    others = [piece for history in histories for piece in (ADDITIONAL, *_messages(history))]
    answer = [*others, *([OWN] if others else []), *messages[first:]]
    return text_of(messages[:first], f"{MESSAGES}[:{first}]"), text_of(answer, f"{MESSAGES}[{first}:]")


def _messages(history: Any) -> list[Any]:
    return [getattr(entry, "message", entry) for entry in history.messages_and_choices]


def _is_cut(trajectory: Any) -> bool:
    entries = trajectory.messages_and_choices
    return bool(entries) and getattr(entries[-1], "finish_reason", "") == "length"


def _rewarded(trajectory: Any, reward: Reward) -> Any:
    """A copy with the reward; what the trajectory had before counted as its rule score."""
    verdict = reward.verdict
    metrics = {"rule_reward": trajectory.reward, "length_penalty": reward.penalty, "judge_scored": reward.scored}
    if isinstance(verdict, Verdict):
        metrics["judge"] = verdict.score
    metrics |= judge_numbers(reward)
    return trajectory.model_copy(update={"reward": reward.value, "metrics": {**trajectory.metrics, **metrics}})
