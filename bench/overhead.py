"""What the pipeline costs around the transport: CPU per judged sample, uncached and from a warm cache.

Two ways, in one run. With a transport that answers at once in process, everything but HTTP is measured: plan, guard,
key, cache, admission, encode, read, cache write, ledger, shaping, hand-over. And over real HTTP, beside a
bare aiohttp client sending the same bodies.
"""

from __future__ import annotations

import asyncio
import logging
import random
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import uvloop

from bench.common import apart
from referee import clock, wire
from referee.config import Config, load
from referee.engine import Response
from referee.judging import first_round, make_judge
from referee.records import Sample
from referee.scoring.batch import Batch
from referee.scoring.build import build_scorer
from referee.scoring.local import Scorer
from referee.sim import ProviderSpec, start_server_process
from referee.trainers.record import without_record
from referee.trainers.shared import Judged


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
        await scorer.aclose()
        fresh = build_scorer(config, InstantTransport(), random.Random(1), b"secret")
        disk = await score(fresh, config, samples(count, "run"))
        await fresh.aclose()
    return {"uncached": cold / count * 1e6, "memory hit": warm / count * 1e6, "disk hit": disk / count * 1e6}


async def over_http(url: str, count: int, concurrency: int) -> dict[str, float]:
    """The full pipeline over HTTP, and bare aiohttp with the same bodies at the same concurrency."""
    with tempfile.TemporaryDirectory() as folder:
        config = config_for(url, folder, concurrency)
        scorer = build_scorer(config, rng=random.Random(1), secret=b"secret")
        await score(scorer, config, samples(concurrency, "warm up"))
        ours = await score(scorer, config, samples(count, "http"))
        await scorer.aclose()
    judge = make_judge(config.judge[0], b"secret")
    encoder = wire.CHAT.encoder(config.endpoint[0])
    bodies = [encoder.encode(ask) for s in samples(count, "http") for ask in first_round(judge, (s,), "schema")]
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


def hook(url: str, count: int, kept: bool) -> float:
    """CPU microseconds per sample that a trainer's hook judges over HTTP, in batches of 256, with a record or not."""
    with tempfile.TemporaryDirectory() as folder:
        config = config_for(url, folder, 64)
        judged = Judged(config if kept else without_record(config))
        judged.score(samples(256, "warm up"))
        given = samples(count, "hook")
        before = clock.cpu()
        for start in range(0, count, 256):
            judged.score(given[start : start + 256])
        judged.close()  # what waits to be written is part of it
        return (clock.cpu() - before) / count * 1e6


def hooks(count: int, rounds: int) -> list[dict[str, float]]:
    """The two in turn, each first in every other round."""
    rows = []
    logging.getLogger("referee.trainers").setLevel(logging.WARNING)  # no start lines between the figures
    with apart() as go_over, start_server_process(ProviderSpec(), seed=1) as server:
        go_over()
        for turn in range(rounds):
            found = {kept: hook(server.url, count, kept) for kept in ((True, False), (False, True))[turn % 2]}
            rows.append({"without a record": found[False], "with the record": found[True]})
    return rows


def run(quick: bool) -> dict[str, Any]:
    """Medians over repeats; the machine may be noisy, so all of one kind are in one run."""
    count, repeats = (2000, 3) if quick else (5000, 5)
    results: dict[str, Any] = {"count": count, "pipeline": [], "http": {}}
    for _ in range(repeats):
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            results["pipeline"].append(runner.run(pipeline(count, 64)))
    for concurrency in (64, 512):
        with apart() as go_over, start_server_process(ProviderSpec(), seed=1) as server:
            go_over()
            rows = []
            for _ in range(repeats):
                with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                    rows.append(runner.run(over_http(server.url, count, concurrency)))
            results["http"][str(concurrency)] = rows
    results["hook"] = hooks(count, 2 * repeats)
    return results


def _middle(rows: list[dict[str, float]], name: str) -> str:
    found = sorted(row[name] for row in rows)
    return f"{found[len(found) // 2]:.0f} ({found[0]:.0f} to {found[-1]:.0f})"


def report(results: dict[str, Any]) -> list[str]:
    """Lines of markdown."""
    rows = results["pipeline"]
    lines = [
        f"{results['count']} samples of 1.2 KB, SQLite cache and ledger (with content) on, uvloop; CPU microseconds "
        "per sample of the whole process, median (min to max).",
        "",
        "| everything but HTTP | µs CPU |",
        "|---|---|",
        *(f"| {name} | {_middle(rows, name)} |" for name in rows[0]),
        "",
        "| over real HTTP, near-zero-latency server | in flight | µs CPU |",
        "|---|---|---|",
    ]
    for concurrency, found in results["http"].items():
        lines += [f"| {name} | {concurrency} | {_middle(found, name)} |" for name in found[0]]
    if hooked := results.get("hook"):
        more = sorted(row["with the record"] - row["without a record"] for row in hooked)
        lines += [
            "",
            f"A trainer's hook over the same server, batches of 256, 64 in flight, {len(hooked)} rounds in turn; "
            f"the record costs {more[len(more) // 2]:.0f} µs ({more[0]:.0f} to {more[-1]:.0f}) a sample:",
            "",
            "| hook | µs CPU |",
            "|---|---|",
            *(f"| {name} | {_middle(hooked, name)} |" for name in hooked[0]),
        ]
    return lines
