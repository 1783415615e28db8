"""What the pipeline costs around the transport: CPU per judged sample, uncached and from a warm cache.

Two ways, in one run. With a transport that answers at once in process, everything but HTTP is measured: plan, guard,
key, cache, admission, encode, classify, read, cache write, ledger, shaping, hand-over. And over real HTTP, beside a
bare aiohttp client sending the same bodies. Where the installed referee is compiled, its sources are measured too, as
they are.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import uvloop

from bench.common import apart, as_it_is, spread, table
from referee import clock, wire
from referee.batch import Batch
from referee.build import build_scorer
from referee.config import Config, load
from referee.engine import Response
from referee.judging import make_judge
from referee.records import Sample
from referee.scorer import Scorer
from referee.sim import ProviderSpec, start_server_process
from referee.version import compiled


class InstantTransport:
    """Answers every request at once with a valid verdict."""

    async def post(self, url: str, headers: Mapping[str, str], body: bytes, timeout: float) -> Response:
        return Response(200, {"content-type": "application/json"}, REPLY)

    async def close(self) -> None:
        return None


REPLY = msgspec.json.encode(
    {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "model": "simulated",
        "choices": [
            {
                "index": 0,
                "finish_reason": "stop",
                "message": {
                    "role": "assistant",
                    "content": '{"reason": "It answers the question plainly.", "score": 7}',
                },
            }
        ],
        "usage": {"prompt_tokens": 420, "completion_tokens": 20, "total_tokens": 440},
    }
)


def samples(count: int, name: str) -> list[Sample]:
    """Rollouts of about 1.2 KB."""
    body = "The answer weighs the evidence and comes to a conclusion in a few plain sentences. " * 12
    return [
        Sample(
            prompt=f"Question {n % 64}: what follows from the evidence given here?",
            response=f"{name} {n}. {body}",
            group=str(n // 8),
        )
        for n in range(count)
    ]


def config_for(url: str, folder: str, concurrency: int, stored: bool = True) -> Config:
    """Cache and ledger in `folder`; not `stored`: the cache in memory only."""
    return load(
        {
            "endpoint": {"url": url, "model": "simulated", "key_env": ""},
            "cache": {"path": str(Path(folder) / "cache.sqlite") if stored else ""},
            "ledger": {"dir": str(Path(folder) / "run")},
            "limits": {"concurrency": concurrency},
            "judge": {"reply": "schema"},
        }
    )


async def score(scorer: Scorer, config: Config, given: list[Sample]) -> float:
    """CPU seconds of the whole process to score `given`."""
    batch = Batch("b", given, config, 600.0, lambda rewards, error, done: None)
    before = clock.cpu()
    await scorer.run(batch)
    return clock.cpu() - before


async def pipeline(count: int, concurrency: int) -> dict[str, float]:
    """Everything but HTTP, then the same samples again from the cache."""
    with tempfile.TemporaryDirectory() as folder:
        config = config_for("http://127.0.0.1:1/v1", folder, concurrency)
        scorer = build_scorer(config, InstantTransport(), random.Random(1), b"secret")
        await score(scorer, config, samples(200, "warm up"))
        cold = await score(scorer, config, samples(count, "run"))
        warm = await score(scorer, config, samples(count, "run"))
        await scorer.close()
        fresh = build_scorer(config, InstantTransport(), random.Random(1), b"secret")
        disk = await score(fresh, config, samples(count, "run"))
        await fresh.close()
    return {"uncached": cold / count * 1e6, "memory hit": warm / count * 1e6, "disk hit": disk / count * 1e6}


async def over_http(url: str, count: int, concurrency: int) -> dict[str, float]:
    """The full pipeline over HTTP, and bare aiohttp with the same bodies at the same concurrency."""
    with tempfile.TemporaryDirectory() as folder:
        config = config_for(url, folder, concurrency)
        scorer = build_scorer(config, rng=random.Random(1), secret=b"secret")
        await score(scorer, config, samples(concurrency, "warm up"))
        ours = await score(scorer, config, samples(count, "http"))
        await scorer.close()
    judge = make_judge(config.judge, b"secret")
    bodies = [wire.encode(config.endpoint[0], judge.plan(s, "schema")) for s in samples(count, "http")]  # type: ignore[arg-type]
    bare = await bare_aiohttp(url, bodies, concurrency)
    return {"ours": ours / count * 1e6, "bare aiohttp": bare / count * 1e6}


async def bare_aiohttp(url: str, bodies: list[bytes], concurrency: int) -> float:
    """CPU seconds to post the bodies and decode the answers, nothing else."""
    headers = {"content-type": "application/json"}
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:

        async def worker(queue: list[bytes]) -> None:
            while queue:
                async with session.post(url, data=queue.pop(), headers=headers) as answer:
                    msgspec.json.decode(await answer.read())

        await asyncio.gather(*(worker([bodies[0]]) for _ in range(concurrency)))
        queue = list(bodies)
        before = clock.cpu()
        await asyncio.gather(*(worker(queue) for _ in range(concurrency)))
        return clock.cpu() - before


def once(count: int) -> dict[str, dict[str, float]]:
    """Both ways, once."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        found = {"pipeline": runner.run(pipeline(count, 64))}
    for concurrency in (64, 512):
        with apart() as go_over, start_server_process(ProviderSpec(), seed=1) as server:
            go_over()
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                found[str(concurrency)] = runner.run(over_http(server.url, count, concurrency))
    return found


def run(quick: bool) -> dict[str, Any]:
    """All in turn, each time in a process of its own: the machine may be noisy, so they are in one run."""
    count, repeats = (2000, 3) if quick else (5000, 7)
    builds = {"compiled": True, "not compiled": False} if compiled() else {"not compiled": False}
    results: dict[str, Any] = {"count": count, "builds": {name: [] for name in builds}}
    for _ in range(repeats):
        for name, built in builds.items():
            results["builds"][name].append(as_it_is(["-m", "bench.overhead", str(count)], built))
    return results


def report(results: dict[str, Any]) -> list[str]:
    """Lines of markdown."""
    builds = results["builds"]
    rows = []
    for part, words in (
        ("pipeline", "without HTTP"),
        ("64", "over HTTP, 64 in flight"),
        ("512", "over HTTP, 512 in flight"),
    ):
        for name in next(iter(builds.values()))[0][part]:
            figures = [spread([run[part][name] for run in runs], ".0f") for runs in builds.values()]
            rows.append([words, name, *(figures[:1] if name == "bare aiohttp" else figures)])
    width = 2 + len(builds)
    return [
        f"{results['count']} samples of 1.2 KB, SQLite cache and ledger (with content) on, uvloop; CPU microseconds "
        "per sample of the whole process, median (min to max). The server answers at once.",
        "",
        *table(["", "", *builds], [[*row, *[""] * (width - len(row))] for row in rows]),
    ]


if __name__ == "__main__":
    sys.stdout.write(json.dumps(once(int(sys.argv[1]))))
