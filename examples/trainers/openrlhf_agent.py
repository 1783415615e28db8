"""OpenRLHF's agent mode: many answers wait for the judge at once, none in a thread. By itself: python <this file>."""

from __future__ import annotations

import asyncio
from typing import Any

from simulated import GOOD, POOR, PROMPT, simulated_judge

from referee.trainers.openrlhf import JudgedAgent


async def episode(answer: str) -> float:
    """As OpenRLHF's executor drives one agent."""
    agent = JudgedAgent()
    states: dict[str, Any] = await agent.reset({"observation": PROMPT, "label": "4"})
    result = await agent.step({**states, "observation_text": PROMPT, "action_text": answer, "sampling_params": None})
    assert result["done"]
    return float(result["rewards"].item())


def main() -> None:
    """Two hundred episodes on one loop."""

    async def all_of_them() -> list[float]:
        return await asyncio.gather(*(episode(f"{answer} ({n})") for n in range(100) for answer in (GOOD, POOR)))

    with simulated_judge('policy = "value"\nvalue = 0.3'):
        rewards = asyncio.run(all_of_them())
        print(f"{len(rewards)} episodes, mean reward {sum(rewards) / len(rewards):.2f}")


if __name__ == "__main__":
    main()
