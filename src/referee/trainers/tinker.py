"""tinker-cookbook: a grader for Env.step, and rewards for EnvGroupBuilder.compute_group_rewards. Both pickle.

In a group, an unscored answer gets its siblings' mean, so its advantage is 0. In `step` there is no group: the grader
raises, and a rollout strategy that tolerates errors (MinViableGroup, RetryOnFailure) leaves the trajectory out.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from referee.records import Media, Message, Reward, Text, Verdict
from referee.trainers.outcome import judge_numbers, number
from referee.trainers.rows import field, holds, text_of, with_reference
from referee.trainers.shared import Judged, Source
from referee.trainers.siblings import siblings

Metrics = dict[str, float | int]
UNPARSED = "unparsed_tool_calls"


class Grader:
    """A judge that environments and builders can hold: no connection inside, so they still pickle."""

    def __init__(self, config: Source) -> None:
        self.judged = Judged(config)

    async def grade(
        self,
        prompt: Any,
        answer: Any,
        *,
        reference: Any = None,
        tokens: Sequence[int] | None = None,
        row: Mapping[str, Any] | None = None,
    ) -> float:
        """The reward of one answer, for `Env.step` or a tool environment's `reward_fn`; or UnscoredError.

        `answer`: text, or the messages of an episode. `row`: columns that a template shows, and `tools`.
        """
        instead = "Grader.group or Grader.trajectories in compute_group_rewards"
        self.judged.needs("tinker-cookbook's step", can_abstain=True, sees_groups=False, instead=instead)
        add = "`grade` the known answer as reference="
        sample = self.judged.sample(_read(prompt), _read(answer), with_reference(row, reference), add, ids=tokens)
        (reward,) = await self.judged.ascore([sample])
        return number(reward, "a step")

    async def group(
        self,
        prompt: Any,
        answers: Sequence[Any],
        *,
        reference: Any = None,
        tokens: Sequence[Sequence[int]] | None = None,
        row: Mapping[str, Any] | None = None,
    ) -> list[tuple[float, Metrics]]:
        """Rewards and metrics for the answers to one prompt, in order, as compute_group_rewards returns them."""
        row, add = with_reference(row, reference), "the known answer as reference="
        samples = siblings(self.judged, _read(prompt), [_read(answer) for answer in answers], row, add, ids=tokens)
        rewards = await self.judged.ascore(samples)
        known = [reward.value for reward in rewards if reward.value is not None]
        # Centering takes the mean off again: an unscored answer moves nothing, nor does a group without any score.
        middle = statistics.fmean(known) if known else 0.0
        return [(middle if reward.value is None else reward.value, _metrics(reward)) for reward in rewards]

    async def trajectories(
        self,
        renderer: Any,
        prompt: Any,
        trajectories: Sequence[Any],
        *,
        reference: Any = None,
        row: Mapping[str, Any] | None = None,
    ) -> list[tuple[float, Metrics]]:
        """The same for finished trajectories: actions are read with the policy's renderer, and what the environment
        put between them with its tokenizer."""
        tokens = [[token for step in one.transitions for token in step.ac.tokens] for one in trajectories]
        answers = [_episode(renderer, one.transitions) for one in trajectories]
        return await self.group(prompt, answers, reference=reference, tokens=tokens, row=row)

    def __repr__(self) -> str:
        return f"Grader({self.judged!r})"


def _episode(renderer: Any, transitions: Sequence[Any]) -> Text:
    """The messages of an episode: what the policy did, and between two actions what it was shown."""
    found: list[Any] = []
    for n, step in enumerate(transitions):
        if n:
            found.append(_shown(renderer, transitions[n - 1], step))
        found.append(renderer.parse_response(list(step.ac.tokens))[0])
    return text_of(_read(found))


def _shown(renderer: Any, before: Any, now: Any) -> Message:
    """What an observation adds to the one before and the action; all of it where it does not begin with them."""
    known, seen = [*_tokens(before.ob), *before.ac.tokens], _tokens(now.ob)
    added = seen[len(known) :] if seen[: len(known)] == known else seen
    pictures = [chunk for chunk in now.ob.chunks[len(before.ob.chunks) :] if not hasattr(chunk, "tokens")]
    media = tuple([Media(str(getattr(chunk, "type", "image"))) for chunk in pictures])
    return Message("environment", renderer.tokenizer.decode(added), media=media)


def _tokens(observation: Any) -> list[int]:
    return [token for chunk in observation.chunks for token in getattr(chunk, "tokens", ())]


def _read(value: Any) -> Any:
    """tinker keeps calls that it could not parse apart; they are calls all the same."""
    if not isinstance(value, Sequence) or isinstance(value, str):
        return _message(value)
    return [_message(item) for item in value]


def _message(item: Any) -> Any:
    if not isinstance(item, Mapping) or not holds(item.get(UNPARSED)):
        return item
    raw = [{"name": "", "arguments": field(call, "raw_text")} for call in item[UNPARSED]]
    rest = {name: value for name, value in item.items() if name != UNPARSED}
    return {**rest, "tool_calls": [*(item.get("tool_calls") or ()), *raw]}


def _metrics(reward: Reward) -> Metrics:
    """The same names for every answer."""
    verdict = reward.verdict
    return {
        "judge_scored": int(reward.scored),
        "judge": verdict.value if isinstance(verdict, Verdict) else 0.0,
        "length_penalty": reward.penalty,
        **judge_numbers(reward),
    }
