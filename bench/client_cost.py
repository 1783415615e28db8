"""What a judged sample costs the client's processor, and how many a second one core can judge: ours beside others.

The server answers every request alike and at once, in a process and on a core of its own; its cost is in the table, so
that it can be seen not to be the limit. Ours is the full pipeline: prompt, guard, key, cache, admission, HTTP, strict
reading, ledger. The others send, receive and decode. Clients that are not installed here are named as not measured.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import ssl
import statistics
import subprocess
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import uvloop

from bench.clients import CLIENTS
from bench.common import HEADERS, apart, bodies, cpu_of, spread, table
from bench.overhead import config_for, samples, score
from bench.tls_server import tls_server
from referee import clock
from referee.engine import TransportFault
from referee.engine.transport import HttpTransport
from referee.scoring.build import build_scorer
from referee.sim import ProviderSpec, start_server_process

Row = dict[str, float]
AGAINST = "AsyncOpenAI + semaphore"
WHOLE, IN_MEMORY = "ours, whole pipeline", "ours, cache in memory only"


async def ours(
    url: str, tls: ssl.SSLContext | None, count: int, at_once: int, stored: bool = True
) -> tuple[float, float]:
    """The whole pipeline; processor and wall seconds. Not `stored`: the cache is in memory only."""
    with tempfile.TemporaryDirectory() as folder:
        config = config_for(url, folder, at_once, stored)
        transport = HttpTransport(tls=tls)
        scorer = build_scorer(config, transport, random.Random(1), b"secret")
        await score(scorer, config, samples(at_once, "warm up"))
        given = samples(count, "cost")
        began = clock.monotonic()
        used = await score(scorer, config, given)
        took = clock.monotonic() - began
        await scorer.aclose()
        await transport.close()
    return used, took


async def floor(url: str, tls: ssl.SSLContext | None, count: int, at_once: int) -> tuple[float, float]:
    """Our transport alone: nothing is planned, read or kept."""
    transport = HttpTransport(tls=tls)

    async def post(body: bytes) -> None:
        try:
            answer = await transport.post(url, HEADERS, body, 60.0)
        except TransportFault as fault:
            if fault.kind != "repeated":  # these servers answer all alike, which the first such answers show
                raise
            answer = await transport.post(url, HEADERS, body, 60.0)
        msgspec.json.decode(answer.body)

    found = await _drive(post, bodies(samples(count, "cost")), at_once)
    await transport.close()
    return found


async def bare_aiohttp(url: str, tls: ssl.SSLContext | None, count: int, at_once: int) -> tuple[float, float]:
    """aiohttp alone, its connection limit lifted."""
    connector = aiohttp.TCPConnector(limit=0, ssl=tls or True)
    async with aiohttp.ClientSession(connector=connector) as session:

        async def post(body: bytes) -> None:
            async with session.post(url, data=body, headers=HEADERS) as answer:
                msgspec.json.decode(await answer.read())

        return await _drive(post, bodies(samples(count, "cost")), at_once)


async def _drive(post: Callable[[bytes], Awaitable[None]], given: list[bytes], at_once: int) -> tuple[float, float]:
    async def worker(queue: list[bytes]) -> None:
        while queue:
            await post(queue.pop())

    await asyncio.gather(*(worker([given[0]]) for _ in range(at_once)))
    queue = list(given)
    cpu, wall = clock.cpu(), clock.monotonic()
    await asyncio.gather(*(worker(queue) for _ in range(at_once)))
    return clock.cpu() - cpu, clock.monotonic() - wall


def _in_loop(work: Callable[[], Any], count: int, server: int) -> Row:
    before = cpu_of(server)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        used, took = runner.run(work())
    return {"cpu_us": used / count * 1e6, "per_s": count / took, "server_us": (cpu_of(server) - before) / count * 1e6}


def _other(name: str, url: str, count: int, at_once: int) -> Row | str:
    """Another client in the first interpreter that has it, or why there is none."""
    why = "BENCH_PYTHON is not set"
    for python in filter(None, os.environ.get("BENCH_PYTHON", "").split(os.pathsep)):
        command = [python, str(Path(__file__).with_name("clients.py")), name, url, str(count), str(at_once)]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=120)
        except (OSError, subprocess.TimeoutExpired) as error:
            why = type(error).__name__
            continue
        if done.returncode:
            why = next((line for line in reversed(done.stderr.splitlines()) if "Error" in line), "it failed")[:160]
            continue
        found = json.loads(done.stdout.strip().splitlines()[-1])
        if found["done"] != count:
            return f"{found['done']} of {count} answered"
        return {"cpu_us": found["cpu"] / count * 1e6, "per_s": count / found["wall"]}
    return why


def run(quick: bool) -> dict[str, Any]:
    """Everything in turn, so that a noisy neighbour disturbs all alike."""
    count, repeats, others, levels = (1000, 1, 0, (64,)) if quick else (5000, 5, 300, (64, 512))
    rows: dict[str, list[Row]] = {}
    missing: dict[str, str] = {}
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        go_over = stack.enter_context(apart())
        plain = stack.enter_context(start_server_process(ProviderSpec(judge="constant"), seed=1))
        secure = stack.enter_context(tls_server(folder))
        go_over()
        for _ in range(repeats):
            for at_once in levels:
                for kind, url, pid, tls in (("plain", plain.url, plain.pid, None), ("TLS", *secure)):

                    def note(
                        name: str, work: Callable[[], Any], at: str = f"{kind} | {at_once}", pid: int = pid
                    ) -> None:
                        rows.setdefault(f"{name} | {at}", []).append(_in_loop(work, count, pid))

                    given: Any = (url, tls, count, at_once)
                    note(WHOLE, lambda given=given: ours(*given))  # type: ignore[misc]
                    if tls is None:
                        note(IN_MEMORY, lambda given=given: ours(*given, stored=False))  # type: ignore[misc]
                    note("our transport alone", lambda given=given: floor(*given))  # type: ignore[misc]
                    note("aiohttp alone", lambda given=given: bare_aiohttp(*given))  # type: ignore[misc]
        for at_once in levels:
            for name in CLIENTS:
                for _ in range(min(repeats, 2)):
                    found = _other(name, plain.url, others, at_once) if others else "not in a quick run"
                    if isinstance(found, str):
                        missing[f"{name} | plain | {at_once}"] = found
                        break
                    rows.setdefault(f"{name} | plain | {at_once}", []).append(found)
    return {"count": count, "others": others, "rows": rows, "missing": missing}


def report(results: dict[str, Any]) -> list[str]:
    """Lines of markdown."""
    middle = {name: statistics.median(r["cpu_us"] for r in rows) for name, rows in results["rows"].items()}
    lines = []
    for name, rows in results["rows"].items():
        client, kind, at_once = name.split(" | ")
        base = middle.get(f"{WHOLE} | {kind} | {at_once}")
        server = spread([r["server_us"] for r in rows], ".0f") if "server_us" in rows[0] else ""
        lines.append(
            [
                client,
                kind,
                at_once,
                spread([r["cpu_us"] for r in rows], ",.0f"),
                f"{middle[name] / base:.1f}" if base else "",
                spread([r["per_s"] for r in rows], ",.0f"),
                server,
            ]
        )
    head = ["client", "kind", "in flight", "µs CPU per sample", "times ours", "samples/s", "server's µs CPU"]
    said = [
        f"{results['count']:,} samples of 1.2 KB ({results['others']} for the clients that run in their own "
        "interpreter: no more than that are in flight, and making the client once is counted), server answers at "
        "once; whole process, uvloop for what is ours and for bare aiohttp; median (min to max). Ours keeps a "
        "SQLite cache and a ledger with content; the others keep nothing. Samples/s is by "
        "the clock on a machine shared with the server and others; the processor time tells more.",
        "",
        *table(head, lines),
    ]
    for at_once in ("64", "512"):
        mine, light, theirs = (middle.get(f"{name} | plain | {at_once}") for name in (WHOLE, IN_MEMORY, AGAINST))
        if mine and theirs:
            stored = f", {theirs / light:.0f} times with the cache in memory only" if light else ""
            said += ["", f"At {at_once} in flight {AGAINST} costs {theirs / mine:.0f} times what ours costs{stored}."]
    if results["missing"]:
        gone = "; ".join(f"{name.replace(' | ', ', ')}: {why}" for name, why in results["missing"].items())
        said += ["", f"Not measured: {gone}."]
    return said
