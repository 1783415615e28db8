"""tinker-cookbook: a grader that environments and group builders can hold. By itself: python <this file>."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

from simulated import GOOD, POOR, PROMPT, UNSCORED, simulated_judge

from referee.trainers.tinker import Grader


@dataclass(frozen=True)
class GroupBuilder:
    """In a run it inherits from tinker_cookbook.rl.types.EnvGroupBuilder and is pickled; the grader goes with it."""

    question: str
    answer: str
    grader: Grader
    renderer: Any = None

    async def compute_group_rewards(self, trajectories: list[Any], envs: list[Any]) -> Any:
        """One reward and its metrics for each trajectory of the group."""
        return await self.grader.trajectories(self.renderer, self.question, trajectories, reference=self.answer)


class Renderer:
    """Stands for the policy's renderer: tokens to a message."""

    texts = (GOOD, POOR, UNSCORED)

    def parse_response(self, tokens: list[int]) -> tuple[dict[str, str], bool]:
        """The message, and whether it ended well."""
        return {"role": "assistant", "content": self.texts[tokens[0]]}, True


@dataclass
class Action:
    """What a trajectory holds of an answer."""

    tokens: list[int]


@dataclass
class Transition:
    """One step of it."""

    ac: Action


@dataclass
class Trajectory:
    """All of them."""

    transitions: list[Transition]


def main() -> None:
    """A group of three: the one without a score gets its siblings' mean, so its advantage is 0."""
    with simulated_judge() as config:
        builder = GroupBuilder(PROMPT, "4", Grader(config), Renderer())
        group = [Trajectory([Transition(Action([n]))]) for n in range(3)]
        for reward, metrics in asyncio.run(builder.compute_group_rewards(group, [])):
            print(f"{reward:.2f}", metrics)


if __name__ == "__main__":
    main()
