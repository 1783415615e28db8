"""How well the embedded 135M model tells good answers from the rest, by the form in which it is asked.

`python -m bench.embedded_judge` (needs the packages of `make demo`): the shipped file, and one nothing was tuned on.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from referee import clock
from referee.config import load
from referee.local import demo_rollouts, embedded_config, separation
from referee.local.embedded import read_labelled
from referee.records import Sample
from referee.referee import Referee

HELD_OUT = Path(__file__).parent.parent / "tests" / "local" / "heldout.jsonl"
FORMS: dict[str, dict[str, Any]] = {
    "score from 1 to 10, shipped prompt": {"kind": "score", "reply": "schema", "max_tokens": 96},
    "yes or no, shipped prompt, P(yes)": {"kind": "yes_no", "reply": "text", "max_tokens": 16},
    "agrees with the reference, shipped prompt": {"kind": "reference", "reply": "schema", "max_tokens": 96},
    "examples, is the answer right, P(yes)": embedded_config(references=False)["judge"],
    "examples, does it say the reference, P(yes)": embedded_config()["judge"],
}


def measure(form: dict[str, Any], rollouts: list[tuple[Sample, str]]) -> tuple[float, int, int, float]:
    """Separation, how many of how many the model itself scored, and seconds."""
    config = {**embedded_config(), "judge": form, "cache": {"path": ""}, "missing": {"abort_above": 1.0}}
    if form.get("fences", True):
        config["endpoint"] = {**config["endpoint"], "extra": {}}
    started = clock.monotonic()
    with Referee(load(config)) as referee:
        rewards = referee.submit([sample for sample, _ in rollouts], deadline=600.0).result()
    asked = [(label, r) for (_, label), r in zip(rollouts, rewards, strict=True) if r.settled.origin != "gate"]
    judged = [(label, r.value) for label, r in asked if r.value is not None]
    return separation(judged), len(judged), len(asked), clock.monotonic() - started


def main() -> None:
    """Print the table."""
    files = {"shipped": demo_rollouts(), "held out": read_labelled(HELD_OUT.read_bytes())}
    print("| form | " + " | ".join(f"{name}: separation, scored" for name in files) + " |")
    print("|---|" + "---|" * len(files))
    for name, form in FORMS.items():
        cells = []
        for rollouts in files.values():
            value, scored, asked, seconds = measure(form, rollouts)
            cells.append(f"{value:.2f}, {scored} of {asked} ({seconds:.0f} s)")
        print(f"| {name} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
