"""NeMo-Gym: the judge inside a resources server's verify. By itself: python <this file>.

The ready made server: class_name JudgedResourcesServer in referee.trainers.nemo_gym.
"""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

from simulated import GOOD, POOR, PROMPT, UNSCORED, simulated_judge

from referee.errors import UnscoredError
from referee.trainers.nemo_gym import judge_body


async def verify(body: Any) -> dict[str, Any]:
    """In a run: a method of a SimpleResourcesServer that returns BaseVerifyResponse."""
    return {"reward": await judge_body(body)}


def request(answer: str) -> Any:
    """A verify request in the shape of the Responses API."""
    part = SimpleNamespace(type="output_text", text=answer)
    message = SimpleNamespace(type="message", role="assistant", content=[part])
    return SimpleNamespace(
        responses_create_params=SimpleNamespace(input=[{"role": "user", "content": PROMPT}]),
        response=SimpleNamespace(output=[message]),
        expected_answer="4",
    )


def main() -> None:
    """Three requests; the last has no verdict (with NeMo-Gym installed the error is its own JudgeError)."""

    async def run() -> None:
        for answer in (GOOD, POOR, UNSCORED):
            try:
                print(await verify(request(answer)))
            except UnscoredError as error:
                print("no reward:", error)

    with simulated_judge():
        asyncio.run(run())


if __name__ == "__main__":
    main()
