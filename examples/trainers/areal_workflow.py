"""AReaL: the judge inside a workflow of your own. By itself: python <this file>.

The ready made one, for single turns: workflow="referee.trainers.areal.JudgedWorkflow".
"""

from __future__ import annotations

import asyncio
from typing import Any

from simulated import GOOD, POOR, PROMPT, UNSCORED, simulated_judge

from referee.trainers.areal import Rejected, judge_episode
from referee.trainers.shared import Judged


class MyWorkflow:
    """In a run it inherits from areal.api.workflow_api.RolloutWorkflow, and `engine` generates."""

    def __init__(self, config: str) -> None:
        self.judged = Judged(config)

    async def arun_episode(self, engine: Any, data: dict[str, Any]) -> dict[str, Any] | None:
        """Generate, judge, and give None for a trajectory without a reward: AReaL rejects it."""
        answer = await engine(data["messages"])
        try:
            reward = await judge_episode(self.judged, data["messages"], answer, row=data)
        except Rejected:
            return None
        return {"answer": answer, "rewards": reward}


def main() -> None:
    """Three episodes at once; the last one's answer cannot be scored."""

    async def run(config: str) -> list[Any]:
        workflow = MyWorkflow(config)
        data = {"messages": [{"role": "user", "content": PROMPT}], "answer": "4"}

        async def episode(text: str) -> Any:
            async def engine(messages: Any) -> str:
                return text

            return await workflow.arun_episode(engine, data)

        return await asyncio.gather(*(episode(text) for text in (GOOD, POOR, UNSCORED)))

    with simulated_judge() as config:
        print(asyncio.run(run(str(config))))


if __name__ == "__main__":
    main()
