"""What the HTTP service adds to a sample: a server process with a warm cache, a bare aiohttp client at a fixed rate.

Requests leave on a schedule, whether or not earlier ones are back, so a slow answer is not hidden by waiting for it.
The same batches are also scored by a Referee in process; the difference is what HTTP adds. All figures are per sample.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import uvloop

from bench.overhead import samples
from referee import clock
from referee.config import load
from referee.records import Sample
from referee.referee import Referee
from referee.sim import ProviderSpec, start_server_process

BATCH = 64
RATE = 1000
"""Samples per second offered."""
POOL = 4096
"""Different samples; all are in the memory cache when the clock starts."""


def settings(url: str) -> dict[str, Any]:
    """A judge that answers at once, everything in memory."""
    endpoint = {"url": url, "model": "simulated", "key_env": ""}
    return {"endpoint": endpoint, "cache": {"path": ""}, "judge": {"reply": "schema"}}


def start_serve(
    folder: Path, port: int = 0, env: Mapping[str, str] = {}, log: str = "log.txt"
) -> tuple[subprocess.Popen[str], str]:
    """`referee serve` with the referee.toml in `folder`, in a process of its own; and its URL, once it listens."""
    command = [sys.executable, "-m", "referee.cli.main", "serve", "--port", str(port)]
    with (folder / log).open("a") as errors:
        child = subprocess.Popen(
            command, cwd=folder, env={**os.environ, **env}, stdout=subprocess.PIPE, stderr=errors, text=True
        )
    assert child.stdout is not None
    url = next((word for word in child.stdout.readline().split() if word.startswith("http")), "")
    if not url:
        raise RuntimeError(f"the service did not start:\n{(folder / log).read_text()[-2000:]}")
    return child, url


@contextlib.contextmanager
def service(url: str) -> Iterator[str]:
    """`referee serve` in a process of its own; gives its URL."""
    with tempfile.TemporaryDirectory() as folder:
        lines = [
            f"[{name}]\n" + "\n".join(f"{k} = {json.dumps(v)}" for k, v in keys.items())
            for name, keys in settings(url).items()
        ]
        (Path(folder) / "referee.toml").write_text("\n".join(lines) + "\n")
        child, found = start_serve(Path(folder))
        try:
            yield found
        finally:
            child.terminate()
            child.communicate(timeout=30)


def bodies(given: list[Sample], size: int) -> list[bytes]:
    """The pool as request bodies of `size` samples."""
    rows = [{"prompt": s.prompt, "response": s.response, "group": s.group} for s in given]
    return [msgspec.json.encode({"samples": rows[n : n + size]}) for n in range(0, len(rows), size)]


async def post(session: aiohttp.ClientSession, url: str, body: bytes) -> bytes:
    """One request, to its last byte."""
    async with session.post(f"{url}/v1/score", data=body, headers={"content-type": "application/json"}) as answer:
        assert answer.status == 200, await answer.text()
        return await answer.read()


async def processor(session: aiohttp.ClientSession, url: str) -> float:
    """Processor seconds the server has used."""
    async with session.get(f"{url}/metrics") as answer:
        found = re.search(r"^process_cpu_seconds_total (\S+)", await answer.text(), re.M)
        assert found is not None
        return float(found[1])


async def at_rate(url: str, pool: list[bytes], size: int, rate: float, seconds: float) -> dict[str, Any]:
    """Offer `rate` samples per second in batches of `size`; milliseconds per sample of each request."""
    took: list[float] = []
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:

        async def one(number: int) -> None:
            began = clock.monotonic()
            await post(session, url, pool[number % len(pool)])
            took.append((clock.monotonic() - began) * 1e3 / size)

        for number in range(len(pool)):  # fill the cache
            await post(session, url, pool[number])
        took.clear()
        used, begun = await processor(session, url), clock.monotonic()
        tasks = []
        for number in range(int(rate * seconds / size)):
            await clock.sleep(begun + number * size / rate - clock.monotonic())
            tasks.append(asyncio.create_task(one(number)))
        await asyncio.gather(*tasks)
        elapsed = clock.monotonic() - begun
        used = await processor(session, url) - used
    return {
        **quantiles(took),
        "achieved": len(took) * size / elapsed,
        "cpu_share": used / elapsed,
        "cpu_us_per_sample": used * 1e6 / (len(took) * size),
    }


async def flat_out(url: str, pool: list[bytes], size: int, seconds: float, workers: int = 4) -> dict[str, Any]:
    """As many as go through with a few callers that each wait for their answer."""
    done = 0
    async with aiohttp.ClientSession() as session:
        used, begun = await processor(session, url), clock.monotonic()

        async def caller(first: int) -> None:
            nonlocal done
            number = first
            while clock.monotonic() < begun + seconds:
                await post(session, url, pool[number % len(pool)])
                done += size
                number += workers

        await asyncio.gather(*(caller(n) for n in range(workers)))
        elapsed = clock.monotonic() - begun
        used = await processor(session, url) - used
    return {"per_s": done / elapsed, "cpu_share": used / elapsed, "cpu_us_per_sample": used * 1e6 / done}


async def in_process(url: str, given: list[Sample], size: int, rate: float, seconds: float) -> dict[str, Any]:
    """The same batches at the same rate by a Referee in this process."""
    took: list[float] = []
    batches = [given[n : n + size] for n in range(0, len(given), size)]
    with Referee(load(settings(url))) as referee:
        for batch in batches:
            await referee.ascore(batch)
        begun = clock.monotonic()
        for number in range(int(rate * seconds / size)):
            await clock.sleep(begun + number * size / rate - clock.monotonic())
            before = clock.monotonic()
            await referee.ascore(batches[number % len(batches)])
            took.append((clock.monotonic() - before) * 1e3 / size)
    return quantiles(took)


def quantiles(values: list[float]) -> dict[str, float]:
    """The middle, and what 95 % and 99 % do not exceed."""
    found = sorted(values)
    return {f"p{share}": found[min(len(found) - 1, len(found) * share // 100)] for share in (50, 95, 99)}


def run(quick: bool) -> dict[str, Any]:
    """Batches of 64 at 1,000 samples per second, single samples at 200, and as fast as it goes."""
    seconds = 4.0 if quick else 20.0
    given = samples(POOL, "serve")
    results: dict[str, Any] = {"batch": BATCH, "rate": RATE, "seconds": seconds}
    with (
        start_server_process(ProviderSpec(), seed=1) as judge,
        service(judge.url) as url,
        asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
    ):
        results["http"] = runner.run(at_rate(url, bodies(given, BATCH), BATCH, RATE, seconds))
        results["direct"] = runner.run(in_process(judge.url, given, BATCH, RATE, seconds))
        results["single"] = runner.run(at_rate(url, bodies(given[:1024], 1), 1, 200, seconds))
        results["flat_out"] = runner.run(flat_out(url, bodies(given, BATCH), BATCH, seconds))
    return results


def report(results: dict[str, Any]) -> list[str]:
    """Lines of markdown."""
    http, direct, single, flat = results["http"], results["direct"], results["single"], results["flat_out"]
    rows = [
        (f"over HTTP, batches of {results['batch']}", results["rate"], http),
        ("a Referee in process, the same batches", results["rate"], direct),
        ("over HTTP, one sample per request", 200, single),
    ]
    return [
        f"`referee serve` in a process of its own, warm cache, samples of 1.2 KB, {results['seconds']:g} s each. "
        "Milliseconds per sample, from sending a request to the last byte of its answer, over the size of the batch.",
        "",
        "| | offered per s | p50 | p95 | p99 | server's share of a core |",
        "|---|---|---|---|---|---|",
        *(
            f"| {name} | {rate} | {row['p50']:.3f} | {row['p95']:.3f} | {row['p99']:.3f} | "
            f"{format(row['cpu_share'], '.0%') if 'cpu_share' in row else ''} |"
            for name, rate, row in rows
        ),
        "",
        f"So HTTP adds {http['p50'] - direct['p50']:.3f} ms (p50) and {http['p95'] - direct['p95']:.3f} ms (p95) per "
        f"sample in batches of {results['batch']}. Flat out, 4 callers get {flat['per_s']:.0f} samples per second at "
        f"{flat['cpu_us_per_sample']:.0f} µs of the server's processor each ({flat['cpu_share']:.0%} of a core).",
    ]


if __name__ == "__main__":
    print("\n".join(report(run("--quick" in sys.argv))))
