"""SkyRL: an environment of your own whose reward is the judge's. By itself: python <this file>."""

from __future__ import annotations

import importlib.util
from typing import Any

from simulated import GOOD, POOR, PROMPT, UNSCORED, simulated_judge

from referee.trainers.skyrl import judge_answer, judge_groups


def step(prompt: list[dict[str, str]], action: str) -> dict[str, Any]:
    """What `step` of a text environment returns. `judge_answer` waits in SkyRL's thread pool."""
    reward, metadata = judge_answer(prompt, action, reference="4")
    return {"observations": [], "reward": reward, "done": True, "metadata": metadata}


def group_rewards(tokenizer: Any, generator_output: dict[str, Any], uids: list[str]) -> list[float]:
    """In a trainer's postprocess_generator_output: the batch's `rewards`, with all answers to a prompt as a group."""
    prompts = [tokenizer.decode(ids) for ids in generator_output["prompt_token_ids"]]
    answers = [tokenizer.decode(ids, skip_special_tokens=True) for ids in generator_output["response_ids"]]
    lengths = [len(ids) for ids in generator_output["response_ids"]]
    return judge_groups(prompts, answers, uids, lengths=lengths)


class Letters:
    """In a run: the policy's tokenizer. Here a token is a letter."""

    def decode(self, ids: list[int], skip_special_tokens: bool = False) -> str:
        """The text."""
        return "".join(map(chr, ids))


def registered() -> Any:
    """Ours, ready made: `environment.env_class=referee` in a run."""
    from skyrl_gym.envs.registration import make, register

    register(id="referee", entry_point="referee.trainers.skyrl:JudgedEnv")
    return make("referee", env_config={}, extras={"reward_spec": {"ground_truth": "4"}})


def main() -> None:
    """Three answers, a group, and with skyrl_gym installed one more answer through its registry."""
    prompt = [{"role": "user", "content": PROMPT}]
    with simulated_judge('policy = "value"\nvalue = 0.3'):
        for answer in (GOOD, POOR, UNSCORED):
            print(step(prompt, answer))
        batch = {"prompt_token_ids": [[*map(ord, PROMPT)]] * 2, "response_ids": [[*map(ord, GOOD)], [*map(ord, POOR)]]}
        print("a group:", group_rewards(Letters(), batch, ["prompt 1"] * 2))
        if importlib.util.find_spec("skyrl_gym") is not None:
            env = registered()
            env.init(prompt)
            print("JudgedEnv:", env.step(GOOD)["reward"])


if __name__ == "__main__":
    main()
