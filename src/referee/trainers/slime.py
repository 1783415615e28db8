"""slime and its fork miles: `--custom-rm-path referee.trainers.slime.custom_rm`, for single answers and groups.

Not scored: the answer is taken out of the loss (`remove_sample`) and kept out of its group's baseline. With
--group-rm that needs nothing more: the answer's number is its siblings' mean. Without it, add
`--custom-reward-post-process-path referee.trainers.slime.post_process`.

A generate function may return several samples for one rollout: segments, not siblings. Each is judged by itself. One
that calls tools leaves its conversation in `metadata["messages"]`; without that the judge sees `response` as one text.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from referee.errors import ConfigError
from referee.records import Sample
from referee.trainers.outcome import values, why
from referee.trainers.rows import holds, split, text_of, with_reference
from referee.trainers.shared import Judged, from_environment

MARK = "referee_unscored"
"""Key in a sample's metadata that says why it has no score."""
CENTERED = ("grpo", "gspo", "cispo", "reinforce_plus_plus_baseline")
SCALED = ("grpo", "gspo", "cispo")
"""Advantage estimators for which slime centers and scales rewards in a group."""
POST_PROCESS = "referee.trainers.slime.post_process"


async def custom_rm(args: Any, sample: Any, **_: Any) -> Any:
    """slime's reward: a number for one sample, a list for a list of them. `remove_sample` marks what has no score."""
    judged, several = from_environment(), isinstance(sample, Sequence)
    samples = list(sample) if several else [sample]
    # Without --group-rm a list is what the generate function returned for one rollout.
    grouped = several and getattr(args, "group_rm", True)
    if not grouped:
        _check_separate(args, judged)
    elif any(isinstance(one, Sequence) for one in samples):
        raise ConfigError(
            "the generate function returned several samples for one rollout, and with --group-rm slime cannot take "
            "rewards for them. Leave --group-rm out: each is then judged by itself, without a length penalty. Add "
            f"--custom-reward-post-process-path {POST_PROCESS} for answers that are not scored.",
            setting="group_rm",
        )
    rewards = await judged.ascore([_sample(judged, one) for one in samples])
    for one, reward in zip(samples, rewards, strict=True):
        if reward.value is None:
            one.remove_sample = True
            one.metadata = {**(one.metadata or {}), MARK: why(reward)}
    given = values(rewards)
    # NaN is never trained on: post_process replaces it, and it shows at once where that is missing.
    found = _filled(given) if grouped else [math.nan if value is None else value for value in given]
    return found if several else found[0]


def _check_separate(args: Any, judged: Judged) -> None:
    """Refuse settings that cannot be kept for samples by themselves."""
    if judged.config.missing.policy == "abstain" and getattr(args, "custom_reward_post_process_path", None) is None:
        raise ConfigError(
            "slime takes unscored answers out of the loss, but not out of the group's baseline. Add --group-rm, or "
            f'--custom-reward-post-process-path {POST_PROCESS}, or set [missing] policy = "value".',
            setting="missing.policy",
        )
    judged.needs("slime's single custom_rm", can_abstain=True, sees_groups=False, instead="--group-rm")


def post_process(args: Any, samples: Sequence[Any]) -> tuple[list[float], list[float]]:
    """slime's own reward normalisation, over scored samples only; an unscored one gets 0 as its advantage.

    Returns raw rewards (an unscored one shows its siblings' mean) and normalised ones.
    """
    flat = [one for item in samples for one in (item if isinstance(item, Sequence) else [item])]
    raw = [None if MARK in (sample.metadata or {}) else _value(args, sample) for sample in flat]
    groups: dict[Any, list[int]] = {}
    size = getattr(args, "n_samples_per_prompt", 1) or 1
    for place, sample in enumerate(flat):
        name = sample.group_index if sample.group_index is not None else -1 - place // size
        groups.setdefault(name, []).append(place)
    shown, final = [0.0] * len(flat), [0.0] * len(flat)
    for places in groups.values():
        for place, number in zip(places, _filled([raw[place] for place in places]), strict=True):
            shown[place] = number
        for place, number in zip(places, _normalised([raw[place] for place in places], args), strict=True):
            final[place] = number
    return shown, final


def keep_scored(args: Any, samples: Sequence[Any], **_: Any) -> bool:
    """For --dynamic-sampling-filter-path: keep a group in which at least two answers are scored."""
    rollouts = [item if isinstance(item, Sequence) else [item] for item in samples]
    scored = sum(any(MARK not in (segment.metadata or {}) for segment in rollout) for rollout in rollouts)
    return scored >= min(2, len(samples))


def _sample(judged: Judged, sample: Any) -> Sample:
    metadata = sample.metadata if isinstance(sample.metadata, Mapping) else {}
    media = getattr(sample, "multimodal_inputs", None)
    row = with_reference({**(media if isinstance(media, Mapping) else {}), **metadata}, sample.label)
    prompt, response = sample.prompt, sample.response
    if holds(metadata.get("messages")):
        prompt, response = split(metadata["messages"], text_of(prompt, "prompt"), 'metadata["messages"]')
    return judged.sample(
        prompt,
        response,
        row,
        "a column with the known answer, and name it with --label-key",
        length=sample.response_length,
        id="" if sample.index is None else sample.index,
        group="" if sample.group_index is None else sample.group_index,
        truncated=getattr(getattr(sample, "status", None), "value", "") == "truncated",
    )


def _value(args: Any, sample: Any) -> float:
    reward = sample.get_reward_value(args) if hasattr(sample, "get_reward_value") else sample.reward
    return float(reward)


def _filled(numbers: list[float | None]) -> list[float]:
    """Numbers for all: the mean of the others for one that has none. Where none has one, all alike (and masked)."""
    known = [number for number in numbers if number is not None]
    middle = statistics.fmean(known) if known else 0.0
    return [middle if number is None else number for number in numbers]


def _normalised(numbers: list[float | None], args: Any) -> list[float]:
    """As slime does it, without those that have no number."""
    known = [number for number in numbers if number is not None]
    estimator = getattr(args, "advantage_estimator", "")
    if not known or estimator not in CENTERED or not getattr(args, "rewards_normalization", True):
        return [0.0 if number is None else number for number in numbers]
    middle, spread = statistics.fmean(known), 1.0
    if estimator in SCALED and getattr(args, "grpo_std_normalization", True):
        spread = (statistics.stdev(known) if len(known) > 1 else 0.0) + 1e-6
    return [0.0 if number is None else (number - middle) / spread for number in numbers]
