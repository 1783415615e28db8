"""OpenRLHF: a file for --reward.remote_url that adds something to the log. By itself: python <this file>."""

from __future__ import annotations

from typing import Any

from referee.trainers import openrlhf


def reward_func(queries: list[str], prompts: list[str], labels: list[Any], **kwargs: Any) -> dict[str, Any]:
    """The judge's reward, and in the log whether the known answer is in the text."""
    result = openrlhf.reward_func(queries, prompts, labels, **kwargs)
    found = float(bool(labels[0]) and str(labels[0]) in queries[0])
    return {**result, "extra_logs": {**result["extra_logs"], "label_found": found}}


def main() -> None:
    """As OpenRLHF calls it: one answer at a time, prompt and answer in one text."""
    from simulated import GOOD, POOR, PROMPT, UNSCORED, simulated_judge

    with simulated_judge('policy = "value"\nvalue = 0.3'):
        for answer in (GOOD, POOR, UNSCORED):
            result = reward_func([f"{PROMPT}{answer}<|im_end|>"], [PROMPT], ["4"])
            print(f"reward {result['rewards'].item():.2f}, score {result['scores'].item():.2f}, {result['extra_logs']}")


if __name__ == "__main__":
    main()
