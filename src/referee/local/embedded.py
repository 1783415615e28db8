"""The embedded judge as a configuration, the rollouts the demo judges with it, and how well it tells them apart."""

from __future__ import annotations

from collections.abc import Iterable
from importlib import resources
from typing import Any

import msgspec

from referee.local.server import SLOTS
from referee.records import Sample

HONESTY = "It is tiny and a poor judge: its opinions are for trying the pipeline, not for training."

GOOD = "good"
"""The label of rollouts that deserve a high score. All others (bad, attack, empty, cut) do not."""


class _Labelled(msgspec.Struct):
    label: str


def embedded_config(url: str, model: str, references: bool = True) -> dict[str, Any]:
    """A mapping for `referee.config.load`: how to ask this model so that its answers mean something.

    Asked for a score it calls nearly everything a 10. Shown examples and asked whether the answer says the reference,
    its probability of "yes" separates good from bad. Without `references` it is asked whether the answer is right,
    which it hardly knows (docs/design/embedded-judge.md).
    """
    prompt = "prompt.txt" if references else "prompt_plain.txt"
    return {
        "judge": {
            "kind": "yes_no",
            "fences": False,
            "prompt_file": str(resources.files("referee.local").joinpath(prompt)),
            "reply": "text",
            "max_tokens": 4,
        },
        "endpoint": {
            "url": url,
            "model": model,
            "name": "embedded",
            "key_env": "",
            "price_in": 0.0,
            "price_out": 0.0,
            # After its word the model would go on with another example.
            "extra": {"stop": ["\n"]},
        },
        "limits": {"concurrency": SLOTS},
    }


def demo_rollouts() -> list[tuple[Sample, str]]:
    """The shipped rollouts, each with the label it was written under. The judge never sees the label."""
    data = resources.files("referee.local").joinpath("demo_rollouts.jsonl").read_bytes()
    return read_labelled(data)


def read_labelled(data: bytes) -> list[tuple[Sample, str]]:
    """Rollouts with a `label` on every line."""
    lines = [line for line in data.splitlines() if line.strip()]
    return [(msgspec.json.decode(x, type=Sample), msgspec.json.decode(x, type=_Labelled).label) for x in lines]


def separation(scored: Iterable[tuple[str, float]]) -> float:
    """How often a good rollout scores above another one (ties count half): 1 always, 0.5 by chance."""
    given = list(scored)
    good = [value for label, value in given if label == GOOD]
    rest = [value for label, value in given if label != GOOD]
    if not good or not rest:
        return 0.5
    wins = sum((one > other) + 0.5 * (one == other) for one in good for other in rest)
    return wins / (len(good) * len(rest))
