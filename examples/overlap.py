"""A training step that does not wait for its judge. Runs by itself: the judge is the simulated provider.

With your own judge, replace the mapping by the path of a referee.toml.
"""

from __future__ import annotations

import time

from referee import Referee, Sample
from referee.sim import ProviderSpec, start_server_process


def generate(step: int) -> list[Sample]:
    """Stands for the rollout phase: four answers to each of eight prompts."""
    return [
        Sample(
            prompt=f"Question {n // 4}?", response=f"Answer {n} of step {step}.", group=f"{step}-{n // 4}", step=step
        )
        for n in range(32)
    ]


def log_probabilities() -> None:
    """Stands for the work a GPU has between generation and advantages."""
    time.sleep(0.4)


def main() -> None:
    """Three steps; judging a step takes longer than one call, and the trainer hardly waits for it."""
    judge = ProviderSpec(latency_median=0.2, latency_sigma=0.3, capacity=64)
    with start_server_process(judge) as server:
        config = {"endpoint": {"url": server.url, "model": "simulated", "key_env": ""}, "cache": {"path": ""}}
        with Referee.from_config(config) as referee:
            for step in range(3):
                ticket = referee.submit(generate(step))
                log_probabilities()
                scored = [reward.value for reward in ticket.result() if reward.value is not None]
                mean = sum(scored) / len(scored)  # a sample without a score is no zero
                waited = f"waited {ticket.waited_s:.3f} s"
                print(f"step {step}: {len(scored)} of {len(ticket)} scored, mean {mean:.2f}, {waited}")


if __name__ == "__main__":
    main()
