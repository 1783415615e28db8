"""verl's own reward managers beside ours, several times over: `verl_managers` does the measuring. Needs verl."""

from __future__ import annotations

import importlib
import json
import statistics
import subprocess
import sys
from typing import Any

from bench.common import spread, table


def run(quick: bool) -> dict[str, Any]:
    """Seconds of each way, repeated."""
    samples, scale, repeats = (256, 50.0, 1) if quick else (1024, 10.0, 7)
    importlib.import_module("verl")  # where it is missing, say so at once
    rows: dict[str, list[float]] = {}
    for seed in range(1, repeats + 1):
        # A process for each: verl's rate_limited manager keeps its semaphore, and with it the first event loop.
        command = [sys.executable, "-m", "bench.verl_batch", str(samples), str(scale), str(seed)]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        for name, seconds in json.loads(done.stdout.splitlines()[-1]).items():
            rows.setdefault(name, []).append(seconds)
    return {"samples": samples, "scale": scale, "rows": rows}


def report(results: dict[str, Any]) -> list[str]:
    """Lines of markdown."""
    rows, scale, count = results["rows"], results["scale"], results["samples"]
    from bench.verl_managers import NAIVE, OPENAI, ratios

    middle = {name: statistics.median(found) for name, found in rows.items()}
    lines = [
        [name, spread(found, ".2f"), f"{middle[NAIVE] / middle[name]:.1f}x", f"{count / middle[name]:,.0f}"]
        for name, found in rows.items()
    ]
    cold, warm, beside = ratios(middle)
    without = "" if OPENAI in rows else " AsyncOpenAI is not installed where this ran, so its row is missing."
    return [
        f"{count} samples, a judge of 2 s with room for 60, time {scale:g} times as fast (seconds as "
        "measured), real verl managers. Median (min to max) of several draws of latencies, each the same for "
        "all. The naive one judges a part, the rest by proportion." + without,
        "",
        *table(["manager", "seconds", "gain", "samples/s"], lines),
        "",
        f"Cold: {cold:.1f} times the naive one (goal: 20), {beside:.2f} times the best of verl's, which are told the "
        f"limit (goal: 1). Warm cache: {warm:.0f} times the naive one (goal: 100).",
    ]


if __name__ == "__main__":
    found = importlib.import_module("bench.verl_managers").measure(
        int(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3])
    )
    sys.stdout.write("\n" + json.dumps(found) + "\n")
