"""verifiers and prime-rl: a task whose reward is the judge's. By itself: python <this file>.

For a judge by plugin id, see docs/trainers/verifiers.md.
"""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

from simulated import GOOD, POOR, PROMPT, UNSCORED, simulated_judge

from referee.errors import UnscoredError
from referee.trainers.verifiers import judge_answer, judge_group, talk_of


class Task:
    """In a run: a verifiers.v1.Task, and `helpful` carries its @reward decorator."""

    question = PROMPT

    async def helpful(self, trace: Any) -> float:
        """An answer without a verdict raises; the rollout carries the error and prime-rl leaves it out."""
        talk = talk_of(trace)
        reward = await judge_answer(self.question, talk.answer, reference="4", row={"tools": talk.tools})
        assert reward.value is not None
        return reward.value


class Env:
    """In a run: a verifiers environment whose episode makes all attempts, such as best-of-n."""

    async def finalize(self, task: Any, episode: Any) -> None:
        """All attempts at a task together: each trace gets its reward."""
        await judge_group(task, episode.traces)


class Attempt(SimpleNamespace):
    """In a run: a trace."""

    def record_reward(self, name: str, value: float) -> None:
        """As verifiers keeps it."""
        print("an attempt's reward:", value)

    def record_metric(self, name: str, value: float) -> None:
        """As verifiers keeps it."""


def main() -> None:
    """Three traces, and three attempts of one episode."""

    async def run() -> None:
        for answer in (GOOD, POOR, UNSCORED):
            try:
                print(await Task().helpful(SimpleNamespace(last_reply=answer)))
            except UnscoredError as error:
                print("left out:", error)
        attempts = [Attempt(last_reply=answer) for answer in (GOOD, POOR, UNSCORED)]
        await Env().finalize(SimpleNamespace(), SimpleNamespace(traces=attempts))

    with simulated_judge():
        asyncio.run(run())


if __name__ == "__main__":
    main()
