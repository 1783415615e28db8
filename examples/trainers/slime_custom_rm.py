"""slime and miles: custom_rm for one sample and for a group. By itself: python <this file>.

In a run: --custom-rm-path referee.trainers.slime.custom_rm --group-rm, with REFEREE_CONFIG in Ray's environment.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from simulated import GOOD, POOR, PROMPT, UNSCORED, simulated_judge

from referee.trainers.slime import POST_PROCESS, custom_rm, post_process


@dataclass
class Sample:
    """The fields of slime's Sample that rewards are about."""

    response: str
    index: int
    prompt: str = PROMPT
    label: str | None = "4"
    group_index: int = 0
    response_length: int = 5
    reward: Any = None
    remove_sample: bool = False
    metadata: dict[str, Any] = field(default_factory=dict)


ARGS = SimpleNamespace(
    custom_reward_post_process_path=POST_PROCESS,
    advantage_estimator="grpo",
    rewards_normalization=True,
    grpo_std_normalization=True,
    n_samples_per_prompt=3,
)


def samples() -> list[Sample]:
    """One group; its last answer cannot be scored."""
    return [Sample(text, n) for n, text in enumerate((GOOD, POOR, UNSCORED))]


async def one_by_one(group: list[Sample]) -> None:
    """Without --group-rm slime asks for each sample by itself."""
    for sample, reward in zip(group, await asyncio.gather(*(custom_rm(ARGS, one) for one in group)), strict=True):
        sample.reward = reward


def main() -> None:
    """Both ways: the unscored answer leaves the loss and the baseline."""
    with simulated_judge():
        group = samples()
        print("group:", asyncio.run(custom_rm(ARGS, group)), "removed:", [one.remove_sample for one in group])
        group = samples()
        asyncio.run(one_by_one(group))
        raw, advantages = post_process(ARGS, group)
        print("single:", raw, "normalised:", [round(number, 3) for number in advantages])


if __name__ == "__main__":
    main()
