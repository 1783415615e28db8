"""OpenPipe ART: groups are judged as they finish. By itself: python <this file>."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

from simulated import GOOD, POOR, PROMPT, UNSCORED, simulated_judge

from referee.trainers.art import after_each


async def gather(groups: Any, config: str) -> Any:
    """A step's rollouts, each group judged as soon as it is complete."""
    import art

    return await art.gather_trajectory_groups(groups, after_each=after_each(config))


@dataclass
class Trajectory:
    """The part of art.Trajectory that rewards are about."""

    text: str
    reward: float = 0.0
    metrics: dict[str, Any] = field(default_factory=dict)
    metadata: dict[str, Any] = field(default_factory=dict)

    @property
    def messages_and_choices(self) -> list[Any]:
        """What the user said, and the model's choice."""
        said = SimpleNamespace(role="assistant", content=self.text)
        return [{"role": "user", "content": PROMPT}, SimpleNamespace(message=said)]

    def model_copy(self, update: dict[str, Any]) -> Trajectory:
        """As pydantic copies."""
        return replace(self, **update)


@dataclass
class Group:
    """The part of art.TrajectoryGroup that rewards are about."""

    trajectories: list[Trajectory]

    def model_copy(self, update: dict[str, Any]) -> Group:
        """As pydantic copies."""
        return replace(self, **update)


def main() -> None:
    """A group of three: the one without a score leaves it."""
    with simulated_judge() as config:
        group: Any = Group([Trajectory(text) for text in (GOOD, POOR, UNSCORED)])
        judged = asyncio.run(after_each(config)(group))
        print([(one.text, one.reward) for one in judged.trajectories])
        print("only one scored:", asyncio.run(after_each(config)(Group([Trajectory(GOOD), Trajectory(UNSCORED)]))))


if __name__ == "__main__":
    main()
