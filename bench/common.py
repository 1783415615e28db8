"""What several benchmarks share: medians with spread, plain configurations, and the bare clients they compare with."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import os
import random
import statistics
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import aiohttp

from referee import clock, wire
from referee.config import Config, load
from referee.judging import first_round, make_judge
from referee.records import Reward, Sample
from referee.scoring.batch import Batch
from referee.scoring.build import build_scorer
from referee.scoring.local import Scorer
from referee.sim import Provider, ProviderSpec, SimTransport, run_virtual

HEADERS = {"content-type": "application/json"}
TICK = os.sysconf("SC_CLK_TCK")


def spread(values: Sequence[float], form: str = ".1f", unit: str = "") -> str:
    """The median with the least and the most: `5.1 (4.9 to 5.6)`."""
    low, high = min(values), max(values)
    return f"{statistics.median(values):{form}}{unit} ({low:{form}} to {high:{form}})"


def percents(values: Sequence[float]) -> str:
    """Shares as percentages, median with spread."""
    return spread([value * 100 for value in values], ".1f", " %")


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """A table in markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return ["| " + " | ".join(line) + " |" for line in lines]


def settings(url: str, **sections: Any) -> Config:
    """A judge at `url`, without key, cache in memory; further sections as given."""
    endpoint = {"url": url, "model": "simulated", "key_env": ""}
    return load({"endpoint": endpoint, "cache": {"path": ""}, "missing": {"abort_above": 1.0}, **sections}, {})


def rollouts(count: int, name: str, words: int = 8) -> list[Sample]:
    """Different answers to a few questions, in groups of eight."""
    body = "It says a few words more. " * words
    return [
        Sample(prompt=f"Question {n // 8}: what is said here?", response=f"{name} {n}. {body}", group=str(n // 8))
        for n in range(count)
    ]


def bodies(given: Sequence[Sample], config: Config | None = None) -> list[bytes]:
    """The request bodies that we would send, for clients that only send."""
    config = config or settings("http://127.0.0.1:1/v1")
    judge = make_judge(config.judge[0], b"secret")
    encoder = wire.CHAT.encoder(config.endpoint[0])
    return [encoder.encode(ask) for sample in given for ask in first_round(judge, (sample,), "schema")]


@contextlib.contextmanager
def apart() -> Iterator[Callable[[], None]]:
    """A core for the server and the others for this process: a provider is another machine, and one that takes the
    client's core whenever it gets a request is not. Begins on the server's core; the call goes over to the rest."""
    find = getattr(os, "sched_getaffinity", None)
    cores: set[int] = find(0) if find else set()
    if len(cores) < 2:
        yield lambda: None
        return
    last = {max(cores)}
    os.sched_setaffinity(0, last)
    try:
        yield lambda: os.sched_setaffinity(0, cores - last)
    finally:
        os.sched_setaffinity(0, cores)


def cpu_of(pid: int) -> float:
    """Processor seconds a process has used so far."""
    words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(words[11]) + int(words[12])) / TICK


def verdict_in(answer: bytes) -> int:
    """The score in a chat completion, read as a plain script reads it."""
    return int(json.loads(json.loads(answer)["choices"][0]["message"]["content"])["score"])


class BlockingClient:
    """One connection, one call after another: the usual synchronous loop."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._path = parts.path
        self._connection = http.client.HTTPConnection(parts.netloc, timeout=600.0)

    def ask(self, body: bytes) -> int | None:
        """One verdict; None when refused."""
        self._connection.request("POST", self._path, body, HEADERS)
        answer = self._connection.getresponse()
        content = answer.read()
        return verdict_in(content) if answer.status == 200 else None

    def close(self) -> None:
        """Hang up."""
        self._connection.close()


async def gathered(url: str, given: Sequence[bytes], at_once: int) -> list[int | None]:
    """asyncio.gather under a semaphore, with aiohttp: the usual asynchronous reward function. None when refused."""
    gate = asyncio.Semaphore(at_once)
    async with aiohttp.ClientSession() as session:

        async def one(body: bytes) -> int | None:
            async with gate, session.post(url, data=body, headers=HEADERS) as answer:
                content = await answer.read()
                return verdict_in(content) if answer.status == 200 else None

        return list(await asyncio.gather(*(one(body) for body in given)))


class VirtualRun:
    """What a batch in virtual time came to."""

    def __init__(self, provider: Provider) -> None:
        self.provider = provider
        self.landed: list[tuple[float, bool]] = []
        """Second at which each sample ended, and whether it was scored."""
        self.metrics: dict[str, float] = {}

    @property
    def makespan(self) -> float:
        """Seconds from the start to the last sample's end."""
        return max(at for at, _ in self.landed)

    @property
    def scored(self) -> int:
        """Samples that got a verdict."""
        return sum(scored for _, scored in self.landed)

    def steady(self) -> float:
        """Samples per second from the fifth to the nine tenths of all that were scored: no start, no drain."""
        times = sorted(at for at, scored in self.landed if scored)
        first, last = len(times) // 5, len(times) * 9 // 10
        return (last - first) / (times[last] - times[first])


def in_virtual_time(
    spec: ProviderSpec,
    config: Config,
    given: Sequence[Sample],
    seed: int,
    deadline: float = 1e6,
    prepare: Callable[[Scorer], None] = lambda _: None,
) -> VirtualRun:
    """Score one batch with the whole pipeline against a simulated provider, both on a virtual clock."""
    run = VirtualRun(Provider(spec, seed))

    def deliver(rewards: list[Reward], error: object, done: bool) -> None:
        run.landed += [(clock.now(), reward.scored) for reward in rewards]

    async def main() -> None:
        scorer = build_scorer(config, SimTransport(run.provider), random.Random(seed), b"secret")
        prepare(scorer)
        await scorer.run(Batch("b", given, config, deadline, deliver))
        run.metrics = scorer.metrics()
        await scorer.aclose()

    run_virtual(main())
    return run
