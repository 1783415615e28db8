"""How near the ideal a client comes that is told nothing: every kind of provider, in virtual time, several seeds.

The whole pipeline runs against the simulated provider; only the limit differs: ours, fixed numbers as users write
them, and additive increase with multiplicative decrease as inspect_ai does it, rebuilt here from its description.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable
from typing import Any

from bench.common import in_virtual_time, percents, rollouts, settings, spread, table
from referee.limits.limit import Outcome, Stamp
from referee.scoring.local import Scorer
from referee.sim import ProviderSpec

CAPACITY, MEDIAN, SIGMA = 60, 2.0, 0.4
MEAN = MEDIAN * math.exp(SIGMA * SIGMA / 2)
RPM, TPM = 600, 120_000


class Aimd:
    """Doubles until the first refusal, then adds 5 % per clean round and cuts by a fifth, once in 15 s."""

    def __init__(self, start: int = 20, least: int = 10, most: int = 100) -> None:
        self.limit = start
        self._least, self._most = least, most
        self._fast, self._clean, self._peak, self._cut = True, 0, 0, -math.inf

    def admit(self, now: float, in_flight: int) -> Stamp:
        """Note how full it gets: a round that did not need the limit teaches nothing."""
        self._peak = max(self._peak, in_flight)
        return Stamp(0)

    def release(
        self, stamp: Stamp, outcome: Outcome, now: float, in_flight: int, latency: float, tokens_out: int
    ) -> None:
        """Cut on a refusal, grow after a clean round, wait out a cut's 15 s."""
        if now - self._cut < 15.0:
            return
        if outcome == "throttled":
            self.limit = max(self._least, int(self.limit * 0.8))
            self._fast, self._clean, self._peak, self._cut = False, 0, 0, now
        elif outcome == "overloaded":
            self._clean = 0
        elif outcome == "ok":
            self._clean += 1
            if self._clean >= max(self.limit, 4):
                if self._peak >= 0.8 * self.limit:
                    more = self.limit if self._fast else max(1, math.ceil(self.limit * 0.05))
                    self.limit = min(self._most, self.limit + more)
                self._clean = self._peak = 0

    def caused_refusal(self, in_flight: int) -> bool:
        """It has no opinion."""
        return False

    def is_stale(self, stamp: Stamp) -> bool:
        """Nor of this."""
        return False


def _spec(**more: Any) -> ProviderSpec:
    return ProviderSpec(latency_median=MEDIAN, latency_sigma=SIGMA, retry_after="none", **more)


PROVIDERS: dict[str, ProviderSpec] = {
    "refuses above 60": _spec(capacity=CAPACITY),
    "queues above 60": _spec(capacity=CAPACITY, mode="queue"),
    "degrades above 60": _spec(capacity=CAPACITY, mode="degrade"),
    "refuses; 60, then 20 after 20 s, then 60 after 60 s": _spec(
        capacity=CAPACITY, schedule=((20.0, 20), (60.0, CAPACITY))
    ),
    f"{RPM} requests a minute, headers": _spec(rpm=RPM),
    f"{RPM} requests a minute, no headers": _spec(rpm=RPM, rate_headers=False),
    f"{TPM:,} tokens a minute, headers": _spec(tpm=TPM),
    f"{TPM:,} tokens a minute, no headers": _spec(tpm=TPM, rate_headers=False),
}
CLIENTS: dict[str, tuple[int | str, Callable[[], Any] | None]] = {
    "ours, told nothing": ("auto", None),
    "AIMD as in inspect_ai": ("auto", Aimd),
    "fixed 10": (10, None),
    "fixed 60": (60, None),
    "fixed 256": (256, None),
}


def ideal(spec: ProviderSpec, count: int, tokens: float, last: float = MEAN) -> float:
    """Seconds that nobody can beat: the work over the capacity, or whole minutes of the rate and one answer."""
    if spec.rpm or spec.tpm:
        used, allowed = (count, spec.rpm) if spec.rpm else (tokens, spec.tpm)
        assert allowed is not None
        return (math.ceil(used / allowed) - 1) * 60.0 + last
    work, at, capacity = count * MEAN, 0.0, CAPACITY
    for when, after in spec.schedule:
        if work <= (when - at) * capacity:
            break
        work -= (when - at) * capacity
        at, capacity = when, after
    return at + work / capacity


def one(
    spec: ProviderSpec, client: tuple[int | str, Callable[[], Any] | None], count: int, seed: int
) -> dict[str, float]:
    """One run: its time, the ideal, and what was refused."""
    concurrency, limit = client
    config = settings(
        "http://a.test/v1",
        limits={"concurrency": concurrency, "deadline": 1e6},
        judge={"max_tokens": 64},
    )

    def prepare(scorer: Scorer) -> None:
        if limit is not None:
            for endpoint in scorer.engine.endpoints:
                endpoint.limiter = limit()

    found = in_virtual_time(spec, config, rollouts(count, "limits"), seed, prepare=prepare)
    stats = found.provider.stats()
    best = ideal(spec, count, stats.tokens_in + stats.tokens_out)
    row = {"seconds": found.makespan, "ideal": best, "share": best / found.makespan, "scored": found.scored}
    row["refused"] = stats.refused / stats.received
    if spec.capacity and not spec.schedule:
        row["steady"] = found.steady() * MEAN / CAPACITY
    whole = int(found.makespan // 60) - 1
    if (spec.rpm or spec.tpm) and whole > 0:
        per_minute = spec.rpm or (spec.tpm or 0) * count / (stats.tokens_in + stats.tokens_out)
        landed = sum(60.0 <= at < 60.0 * (whole + 1) for at, _ in found.landed)
        row["steady"] = landed / (per_minute * whole)
    return row


def run(quick: bool) -> dict[str, Any]:
    """Every provider with every client."""
    count, seeds = (400, (1,)) if quick else (1600, (1, 2, 3))
    rows = {
        provider: {name: [one(spec, client, count, seed) for seed in seeds] for name, client in CLIENTS.items()}
        for provider, spec in PROVIDERS.items()
    }
    return {"count": count, "seeds": len(seeds), "rows": rows}


def report(results: dict[str, Any]) -> list[str]:
    """Lines of markdown."""
    rows = []
    for provider, clients in results["rows"].items():
        for name, runs in clients.items():
            steady = percents([r["steady"] for r in runs]) if "steady" in runs[0] else ""
            rows.append(
                [
                    provider,
                    name,
                    spread([r["share"] for r in runs], ".2f"),
                    steady,
                    percents([r["refused"] for r in runs]),
                    f"{min(r['scored'] for r in runs):.0f}",
                ]
            )
    shares = [
        statistics.median(r["share"] for r in clients["ours, told nothing"]) for clients in results["rows"].values()
    ]
    head = ["provider", "limit", "share of ideal, start and drain included", "steady state", "refused", "scored"]
    return [
        f"{results['count']} samples at once, latency lognormal (median {MEDIAN:g} s, sigma {SIGMA:g}), no "
        f"Retry-After; virtual time, {results['seeds']} seeds, median (min to max). Ideal: work over capacity, or "
        "whole minutes of the rate; no client can beat it (a sample of latencies can, by a little). Steady state: "
        "samples/s from a fifth to nine tenths of the batch, over capacity / mean latency; for a rate, samples in the "
        "whole minutes after the first, over the rate.",
        "",
        *table(head, rows),
        "",
        f"Ours over all providers: {min(shares):.2f} of the ideal at the least (median of seeds), with one setting.",
    ]
