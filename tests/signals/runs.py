"""Runs of judged samples for the tests of signals: groups of eight, quality and noise, and what a test adds."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from referee.signals import Alarm, Observation, Watch

WORDS = (
    "river engine market theorem vaccine contract bridge protein signal treaty crystal filter budget neuron glacier "
    "matrix compiler orbit enzyme harvest voltage membrane reactor pigment archive turbine molecule mortgage lattice"
)

Answer = dict[str, Any]
Make = Callable[[random.Random, int, Answer], None]
"""Changes an answer (its `words`, `value` and any field of Observation) of a step."""


def step_of(rng: random.Random, step: int, make: Make, groups: int = 8, size: int = 8) -> list[Observation]:
    """One step's samples."""
    found = []
    for group in range(groups):
        hard = rng.gauss(0, 0.1)
        for _ in range(size):
            quality = 0.5 + hard + rng.gauss(0, 0.15)
            answer: Answer = {"words": rng.choices(WORDS.split(), k=rng.randint(15, 25)), "value": quality}
            make(rng, step, answer)
            words = answer.pop("words")
            value = answer.pop("value")
            fields = {
                "step": step,
                "batch": str(step),
                "index": len(found),
                "prompt_key": f"{step}-{group}",
                "prompt": "Explain this.",
                "response": " ".join(words),
                "value": None if value is None else min(1.0, max(0.0, value)),
                "model": "judge",
                "latency_s": 1.0,
            }
            found.append(Observation(**(fields | answer)))
    return found


def watched(
    make: Make, steps: int = 30, seed: int = 1, watch: Watch | None = None, groups: int = 8
) -> tuple[Watch, list[Alarm]]:
    """A watch that has seen a run, and its alarms."""
    rng, watch = random.Random(seed), watch or Watch()
    alarms: list[Alarm] = []
    for step in range(steps):
        alarms += watch.observe(step_of(rng, step, make, groups))
    return watch, alarms


def began(alarms: list[Alarm]) -> set[str]:
    """The signals that became alarms."""
    return {alarm.signal for alarm in alarms if not alarm.over}


def nothing(rng: random.Random, step: int, answer: Answer) -> None:
    """An honest run that stays as it is."""
