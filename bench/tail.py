"""Slow answers and a deadline: what a second request for the slowest twentieth buys, in virtual time.

`limits.hedge` is 0 or 0.05. A batch of 512; latency lognormal, or with one answer in fifty ten times slower.
"""

from __future__ import annotations

from typing import Any

from bench.common import in_virtual_time, percents, rollouts, settings, spread, table
from referee.sim import ProviderSpec

COUNT, CONCURRENCY, DEADLINE = 512, 128, 25.0
LATENCIES: dict[str, dict[str, float]] = {
    "lognormal, sigma 0.5": {"latency_sigma": 0.5},
    "lognormal, sigma 1.0": {"latency_sigma": 1.0},
    "sigma 0.5, 2 % ten times slower": {"latency_sigma": 0.5, "tail_share": 0.02, "tail_factor": 10.0},
}


def one(latency: dict[str, float], hedge: float, deadline: float, seed: int) -> dict[str, float]:
    """One batch."""
    spec = ProviderSpec(latency_median=2.0, **latency)  # type: ignore[arg-type]
    limits = {"concurrency": CONCURRENCY, "hedge": hedge, "deadline": deadline, "attempt_timeout": 120.0}
    config = settings("http://a.test/v1", limits=limits)
    found = in_virtual_time(spec, config, rollouts(COUNT, "tail"), seed, deadline)
    sent = found.provider.stats().received
    return {"seconds": found.makespan, "unscored": COUNT - found.scored, "extra": sent / COUNT - 1}


def run(quick: bool) -> dict[str, Any]:
    """With time enough, to see the makespan; and with a deadline, to see what is lost."""
    seeds = range(1, 3 if quick else 16)
    return {
        name: {
            f"{hedge:g}": {
                "free": [one(latency, hedge, 1e6, seed) for seed in seeds],
                "deadline": [one(latency, hedge, DEADLINE, seed) for seed in seeds],
            }
            for hedge in (0.0, 0.05)
        }
        for name, latency in LATENCIES.items()
    }


def report(results: dict[str, Any]) -> list[str]:
    """Lines of markdown."""
    rows = [
        [
            name,
            hedge,
            spread([r["seconds"] for r in runs["free"]], ".1f"),
            percents([r["extra"] for r in runs["free"]]),
            spread([r["unscored"] for r in runs["deadline"]], ".0f"),
        ]
        for name, hedges in results.items()
        for hedge, runs in hedges.items()
    ]
    seeds = len(next(iter(results.values()))["0"]["free"])
    head = ["latency (median 2 s)", "hedge", "makespan, s", "extra requests", f"unscored at {DEADLINE:g} s"]
    return [
        f"{COUNT} samples, {CONCURRENCY} at once, provider without a limit; virtual time, {seeds} seeds, median "
        "(min to max).",
        "",
        *table(head, rows),
    ]
