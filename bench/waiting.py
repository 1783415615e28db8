"""A training step with a judge: how long it takes, and how long the trainer stands still for the verdicts.

The processor stands in for the accelerator: hashing large blocks, which lets go of the interpreter's lock as kernels
do, with a little pure Python between. Generation, log-probabilities and update take 6 : 2 : 4. Verdicts are needed
before the update. Eight samples finish generation at a time.
"""

from __future__ import annotations

import asyncio
import statistics
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from typing import Any

from bench.common import BlockingClient, bodies, gathered, percents, rollouts, settings, spread, table
from referee import clock
from referee.records import Sample
from referee.referee import Referee
from referee.sim import ProviderSpec, start_server_process

COUNT, GROUP, CAPACITY, LATENCY = 64, 8, 32, 0.1
BLOCK = bytes(256 * 1024)
AT_ONCE = 32

Collect = Callable[[], int]
"""Waits for what is not there yet; how many were scored."""


class Step:
    """One way to judge within a step. `group` is called as samples finish, `generated` after the last."""

    def group(self, samples: list[Sample]) -> None:
        """Some samples are finished."""

    def generated(self, samples: list[Sample]) -> Collect:
        """All are finished; what to call before the update."""
        return lambda: len(samples)


class Blocking(Step):
    """One call after another."""

    def __init__(self, url: str) -> None:
        self._url = url

    def generated(self, samples: list[Sample]) -> Collect:
        client = BlockingClient(self._url)
        found = [client.ask(body) for body in bodies(samples)]
        client.close()
        return lambda: sum(score is not None for score in found)


class Threads(Step):
    """A thread pool started after generation, collected before the update."""

    def __init__(self, url: str) -> None:
        self._url = url

    def generated(self, samples: list[Sample]) -> Collect:
        pool = ThreadPoolExecutor(AT_ONCE)

        def ask(body: bytes) -> int | None:
            client = BlockingClient(self._url)
            try:
                return client.ask(body)
            finally:
                client.close()

        futures = [pool.submit(ask, body) for body in bodies(samples)]

        def collect() -> int:
            scored = sum(future.result() is not None for future in futures)
            pool.shutdown()
            return scored

        return collect


class Gather(Step):
    """The usual asynchronous reward function: asyncio.run(gather(…)) when rewards are asked for."""

    def __init__(self, url: str) -> None:
        self._url = url

    def generated(self, samples: list[Sample]) -> Collect:
        found = asyncio.run(gathered(self._url, bodies(samples), AT_ONCE))
        return lambda: sum(score is not None for score in found)


class After(Step):
    """Ours: submitted once, after generation."""

    def __init__(self, referee: Referee) -> None:
        self._referee = referee

    def generated(self, samples: list[Sample]) -> Collect:
        ticket = self._referee.submit(samples)
        return lambda: sum(reward.scored for reward in ticket.result())


class During(Step):
    """Ours: submitted as groups finish."""

    def __init__(self, referee: Referee) -> None:
        self._referee = referee
        self._tickets: list[Any] = []

    def group(self, samples: list[Sample]) -> None:
        self._tickets.append(self._referee.submit(samples))

    def generated(self, samples: list[Sample]) -> Collect:
        tickets, self._tickets = self._tickets, []
        return lambda: sum(reward.scored for ticket in tickets for reward in ticket.result())


def compute(blocks: int) -> None:
    """So much work, however long it takes."""
    total = 0
    for n in range(blocks):
        total += sha256(BLOCK).digest()[0]
        for m in range(200):
            total += n * m % 7


def step(way: Step, name: str, unit: int) -> dict[str, float]:
    """One training step; seconds in all and seconds not spent computing. `unit`: blocks of a twelfth of the compute."""
    samples = rollouts(COUNT, name)
    computed = 0.0

    def work(blocks: int) -> None:
        nonlocal computed
        before = clock.monotonic()
        compute(blocks)
        computed += clock.monotonic() - before

    began = clock.monotonic()
    groups = COUNT // GROUP
    for n in range(groups):
        work(unit * 6 // groups)
        way.group(samples[n * GROUP : (n + 1) * GROUP])
    collect = way.generated(samples)
    work(unit * 2)
    scored = collect()
    work(unit * 4)
    took = clock.monotonic() - began
    return {"step": took, "blocked": took - computed, "compute": computed, "scored": scored}


def run(quick: bool) -> dict[str, Any]:
    """Every way in turn, several times."""
    seconds, repeats = (1.2, 1) if quick else (3.0, 5)
    began = clock.monotonic()
    compute(400)
    unit = max(8, int(400 * seconds / 12 / (clock.monotonic() - began)))
    rows: dict[str, list[dict[str, float]]] = {}
    spec = ProviderSpec(latency_median=LATENCY, latency_sigma=0.25, capacity=CAPACITY, mode="queue")
    with start_server_process(spec, seed=1) as server:
        url = server.url
        with Referee(settings(url)) as thread, Referee(settings(url, runtime="processes")) as processes:
            ways: dict[str, Step] = {
                "no judge": Step(),
                "blocking calls": Blocking(url),
                f"thread pool of {AT_ONCE}, after generation": Threads(url),
                f"aiohttp gather, {AT_ONCE} at once": Gather(url),
                "ours after generation, thread": After(thread),
                "ours after generation, processes": After(processes),
                "ours during generation, thread": During(thread),
                "ours during generation, processes": During(processes),
            }
            for referee in (thread, processes):
                referee.score(rollouts(COUNT, "warm up"))
            for n in range(repeats):
                for name, way in ways.items():
                    rows.setdefault(name, []).append(step(way, f"{name} {n}", unit))
    return {"seconds": seconds, "rows": rows}


def report(results: dict[str, Any]) -> list[str]:
    """Lines of markdown."""
    rows = results["rows"]
    alone = rows["no judge"]
    lines = []
    for name, found in rows.items():
        slower = [row["compute"] / base["compute"] - 1 for row, base in zip(found, alone, strict=True)]
        lines.append(
            [
                name,
                spread([row["step"] for row in found], ".2f"),
                spread([row["blocked"] * 1e3 for row in found], ".0f"),
                percents([row["blocked"] / row["step"] for row in found]),
                percents(slower) if name != "no judge" else "",
                f"{min(row['scored'] for row in found):.0f} of {COUNT}" if name != "no judge" else "",
            ]
        )
    blocked = statistics.median(row["blocked"] / row["step"] for row in rows["ours during generation, thread"])
    return [
        f"A step of about {results['seconds']:g} s of compute (generation, log-probabilities, update 6 : 2 : 4), "
        f"{COUNT} samples, a judge of {LATENCY * 1e3:.0f} ms that serves {CAPACITY} at once. Median (min to max) of "
        f"{len(alone)} steps that took turns. Compute slower: the same work beside the step without a judge; on a "
        "shared machine its spread is the neighbours'.",
        "",
        *table(["way", "step, s", "blocked, ms", "blocked, share of step", "compute slower", "scored"], lines),
        "",
        f"Blocked with ours during generation: {blocked:.2%} of the step (goal: under 1 %).",
    ]
