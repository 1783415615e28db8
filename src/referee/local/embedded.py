"""Configuration of the embedded judge, the demo's rollouts, and how well it separates them."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from referee.config import LocalConfig
from referee.records import Sample
from referee.rollouts import read_rollouts

DISCLAIMER = "It is tiny and a poor judge: its opinions are for trying the pipeline, not for training."

NAME = "embedded"

ATTEMPT_TIMEOUT = 120.0
"""Seconds. The first call of each slot prefills all the examples, which is slow on a busy CPU."""

HERE = Path(__file__).parent
ROLLOUTS = HERE / "demo_rollouts.jsonl"
RUBRICS = HERE / "rubric_rollouts.jsonl"

GOOD = frozenset({"good"})
POOR = frozenset({"bad", "attack", "empty", "echo", "truncated"})
BETWEEN = frozenset({"mediocre", "long"})
"""Right, but too short or far too long. Judged and shown, but excluded from `separation`."""


class _Labelled(msgspec.Struct):
    label: str


def embedded_config(references: bool = True) -> dict[str, Any]:
    """A mapping for `referee.config.load`: the question this model can answer.

    Asked for a score it gives nearly everything a 10. With few-shot examples and the question whether the answer agrees
    with the reference, P(yes) separates good from bad. Without `references` it is asked whether the answer is right,
    which it hardly knows (`referee docs design/embedded-judge`).
    """
    prompt = "prompt.txt" if references else "prompt_plain.txt"
    return {
        "judge": {
            "kind": "yes_no",
            "fences": False,
            "prompt_file": str(HERE / prompt),
            "reply": "text",
            "max_tokens": 4,
            "ask_again": 0,  # at temperature 0 the same question gets the same answer
        },
        "endpoint": {
            "provider": "local",
            "name": NAME,
            # Otherwise the model continues with another example.
            "extra": {"stop": ["\n"]},
        },
        "limits": {"concurrency": LocalConfig().slots, "attempt_timeout": ATTEMPT_TIMEOUT},
    }


def demo_rollouts() -> list[tuple[Sample, str]]:
    """The shipped rollouts and their labels, which the judge never sees."""
    return read_labelled(ROLLOUTS.read_bytes())


def ruled_rollouts() -> list[Sample]:
    """The shipped rollouts with rubrics, those of them that have criteria a rule decides, and only these criteria: the
    embedded model cannot judge the others (`referee docs design/embedded-judge`)."""
    read = [sample for _, sample in read_rollouts(RUBRICS, rubric="by_phrase") if isinstance(sample, Sample)]
    kept = [replace(sample, rubric=tuple(each for each in sample.rubric if each.check)) for sample in read]
    return [sample for sample in kept if sample.rubric]


def read_labelled(data: bytes) -> list[tuple[Sample, str]]:
    """Rollouts with a `label` on every line."""
    lines = [line for line in data.splitlines() if line.strip()]
    return [(msgspec.json.decode(x, type=Sample), msgspec.json.decode(x, type=_Labelled).label) for x in lines]


def separation(scored: Iterable[tuple[str, float]]) -> float:
    """AUC of (label, score) pairs: how often a good rollout scores above a poor one, ties counting half.

    0.5 where there is nothing to compare.
    """
    given = list(scored)
    good = [value for label, value in given if label in GOOD]
    poor = [value for label, value in given if label in POOR]
    if not good or not poor:
        return 0.5
    wins = sum((one > other) + 0.5 * (one == other) for one in good for other in poor)
    return wins / (len(good) * len(poor))
