"""verifiers and prime-rl: a task whose reward is the judge's. By itself: python <this file>.

For a judge by plugin id, see docs/trainers/verifiers.md.
"""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

from simulated import GOOD, POOR, PROMPT, UNSCORED, simulated_judge

from referee.errors import UnscoredError
from referee.trainers.verifiers import judge_answer, talk_of


class Task:
    """In a run: a verifiers.v1.Task, and `helpful` carries its @reward decorator."""

    question = PROMPT

    async def helpful(self, trace: Any) -> float:
        """An answer without a verdict raises; the rollout carries the error and prime-rl leaves it out."""
        talk = talk_of(trace)
        reward = await judge_answer(self.question, talk.answer, reference="4", row={"tools": talk.tools})
        assert reward.value is not None
        return reward.value


def main() -> None:
    """Three traces."""

    async def run() -> None:
        for answer in (GOOD, POOR, UNSCORED):
            try:
                print(await Task().helpful(SimpleNamespace(last_reply=answer)))
            except UnscoredError as error:
                print("left out:", error)

    with simulated_judge():
        asyncio.run(run())


if __name__ == "__main__":
    main()
