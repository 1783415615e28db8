"""SkyRL: an environment of your own whose reward is the judge's. By itself: python <this file>."""

from __future__ import annotations

import importlib.util
from typing import Any

from simulated import GOOD, POOR, PROMPT, UNSCORED, simulated_judge

from referee.trainers.skyrl import judge_answer


def step(prompt: list[dict[str, str]], action: str) -> dict[str, Any]:
    """What `step` of a text environment returns. `judge_answer` waits in SkyRL's thread pool."""
    reward, metadata = judge_answer(prompt, action, reference="4")
    return {"observations": [], "reward": reward, "done": True, "metadata": metadata}


def registered() -> Any:
    """Ours, ready made: `environment.env_class=referee` in a run."""
    from skyrl_gym.envs.registration import make, register

    register(id="referee", entry_point="referee.trainers.skyrl:JudgedEnv")
    return make("referee", env_config={}, extras={"reward_spec": {"ground_truth": "4"}})


def main() -> None:
    """Three answers; with skyrl_gym installed, one more through its registry."""
    prompt = [{"role": "user", "content": PROMPT}]
    with simulated_judge('policy = "value"\nvalue = 0.3'):
        for answer in (GOOD, POOR, UNSCORED):
            print(step(prompt, answer))
        if importlib.util.find_spec("skyrl_gym") is not None:
            env = registered()
            env.init(prompt)
            print("JudgedEnv:", env.step(GOOD)["reward"])


if __name__ == "__main__":
    main()
