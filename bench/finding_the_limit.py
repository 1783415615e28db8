"""1024 samples, 30 % of them repeated, on a provider good for 60 at once that does not say so: how near is the ideal?

The provider is a real HTTP server in a process and on a core of its own, time scaled down. Ideal: the work that the
distinct requests were, by the provider's own count, divided by its capacity: no client can beat it.
"""

from __future__ import annotations

import random
from typing import Any

from bench.common import apart
from referee import clock
from referee.config import load
from referee.records import Sample
from referee.referee import Referee
from referee.sim import ProviderSpec, start_server_process

SAMPLES, REPEATED, CAPACITY = 1024, 0.30, 60
MEDIAN, SIGMA, SCALES = 2.0, 0.25, (10.0, 50.0)


def measure(mode: str, seed: int, told: bool, scale: float) -> dict[str, Any]:
    """One run against a fresh provider. `told`: the client is given the capacity, which nobody has in life."""
    rng = random.Random(seed)
    distinct = round(SAMPLES * (1 - REPEATED))
    given = [Sample(prompt="What is said here?", response=text) for text in _bodies(rng, distinct)]
    spec = ProviderSpec(
        latency_median=MEDIAN,
        latency_sigma=SIGMA,
        capacity=CAPACITY,
        mode=mode,  # type: ignore[arg-type]
        retry_after="none",
        time_scale=scale,
    )
    with apart() as go_over, start_server_process(spec, seed=seed) as server:
        go_over()
        config = load(
            {
                "endpoint": {"url": server.url, "model": "simulated", "key_env": ""},
                "cache": {"path": ""},
                "limits": {"concurrency": CAPACITY if told else "auto"},
            }
        )
        with Referee(config) as referee:
            referee.score([Sample(prompt="Are you there?", response="Yes.")])
            before = server.stats().work
            started = clock.monotonic()
            rewards = referee.score(given)
            took = clock.monotonic() - started
        seen = server.stats()
    answered = seen.answered - 1
    ideal = (seen.work - before) * distinct / answered / CAPACITY / scale
    return {
        "ratio": ideal / took,
        "seconds": took,
        "ideal_seconds": ideal,
        "scored": sum(reward.scored for reward in rewards),
        "distinct": distinct,
        "received": seen.received - 1,
        "answered": answered,
        "refused": seen.received - seen.answered,
    }


def _bodies(rng: random.Random, distinct: int) -> list[str]:
    bodies = [f"Answer number {n}. " + "It says a few words more. " * 8 for n in range(distinct)]
    bodies += [rng.choice(bodies) for _ in range(SAMPLES - distinct)]
    rng.shuffle(bodies)
    return bodies


def run(quick: bool) -> dict[str, Any]:
    """Both kinds of provider, several seeds."""
    seeds = range(1, 4 if quick else 8)
    return {
        f"{mode} | {scale:g}x | {'told' if told else 'not told'}": [measure(mode, seed, told, scale) for seed in seeds]
        for mode in ("refuse", "queue")
        for scale in SCALES
        for told in (False, True)
    }


def report(results: dict[str, Any]) -> list[str]:
    """Lines of markdown."""
    lines = [
        f"{SAMPLES} samples, {REPEATED:.0%} repeated, lognormal latency (median {MEDIAN:g} s, sigma {SIGMA:g}), "
        f"capacity {CAPACITY}, over real HTTP with time scaled down. Ideal = distinct work / capacity; a client that "
        "is told the capacity does not reach it either: a batch drains with its slowest calls. At 50 times the "
        "batch takes half a second, and the processor, not the provider, sets the pace.",
        "",
        "| provider above capacity | time | limit | share of ideal (median, min to max) | paid / distinct | refused |",
        "|---|---|---|---|---|---|",
    ]
    for mode, runs in results.items():
        ratios = sorted(r["ratio"] for r in runs)
        middle = ratios[len(ratios) // 2]
        paid = "/".join(str(v) for v in (max(r["answered"] for r in runs), runs[0]["distinct"]))
        refused = max(r["refused"] / r["received"] for r in runs)
        lines.append(
            f"| {mode} | {middle:.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f}) | {paid} | at most {refused:.1%} |"
        )
    return lines
