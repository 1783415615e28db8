"""How many samples a second can be judged at most: worker processes beside the thread runtime, taking turns.

Over real HTTP against a server that sends the same verdict to every request at once, unread, so that the client is what
limits: a judge's own work is done elsewhere. On few cores even this server shares them with the clients, so the
processor time of each part is shown as well. Other programs on the machine take cores away, from two workers more
than from one thread; what they used is measured, and a run counts only if it was little.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

from bench.common import cpu_of, spread, table
from bench.interpreter import NEIGHBOURS, busy, samples, wait_for_quiet
from referee.config import load
from referee.referee import Referee
from referee.runtime.background import new_loop
from referee.sim.replies import constant

WAYS = ("thread", "processes")
TRIES = 5
"""Runs tried for each quiet one that is wanted."""
ENOUGH = 3
"""Quiet runs of each way that make a result; with fewer of either, all runs of both are shown."""


class Fixed(asyncio.Protocol):
    """Answers every whole request with the same bytes."""

    def __init__(self) -> None:
        body = constant()[0]
        head = f"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
        self._answer = head.encode() + body
        self._rest = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client is there."""
        self._write = cast(asyncio.Transport, transport).write

    def data_received(self, data: bytes) -> None:
        """Some bytes of requests, nearly always one whole request."""
        data = self._rest + data
        while (head := data.find(b"\r\n\r\n")) >= 0:
            at = data.index(b"content-length: ", 0, head) + 16
            size = head + 4 + int(data[at : data.index(b"\r\n", at)])
            if len(data) < size:
                break
            self._write(self._answer)
            data = data[size:]
        self._rest = data


async def serve() -> None:
    """Serve on a free port until standard input closes. The first line printed is the URL."""
    loop = asyncio.get_running_loop()
    server = await loop.create_server(Fixed, "127.0.0.1", 0)
    sys.stdout.write(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1/chat/completions\n")
    sys.stdout.flush()
    await loop.run_in_executor(None, sys.stdin.read)
    server.close()


@contextlib.contextmanager
def fixed_server() -> Iterator[tuple[str, int]]:
    """The server in a process of its own: its URL and its process id."""
    command = [sys.executable, "-m", "bench.processes", "serve"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        try:
            yield child.stdout.readline().strip(), child.pid
        finally:
            child.stdin.close()


def measure(way: str, url: str, server: int, count: int) -> dict[str, float]:
    """Judge so many samples once; the rate, microseconds of processor time per sample of each part, and what other
    programs used meanwhile, in cores."""
    with tempfile.TemporaryDirectory() as folder:
        config = {
            "endpoint": {"url": url, "model": "simulated", "key_env": ""},
            "cache": {"path": str(Path(folder) / "cache.sqlite")},
            "ledger": {"dir": str(Path(folder) / "run")},
            "limits": {"concurrency": 128},
            "judge": {"reply": "schema"},
            "runtime": way,
        }
        with Referee(load(config)) as referee:
            referee.score(samples("warm up", 2000))
            given = samples("run", count)
            crew = getattr(referee._runtime, "_crew", None)
            pids = [os.getpid(), server, *(child.process.pid for child in (crew.children if crew else ()))]
            all_before, before = busy(), [cpu_of(pid) for pid in pids]
            began = time.monotonic()
            scored = sum(reward.scored for reward in referee.score(given))
            took = time.monotonic() - began
            used = [cpu_of(pid) - at for pid, at in zip(pids, before, strict=True)]
            others = busy() - all_before - sum(used)
    assert scored == count
    own, served, *judged = (seconds / count * 1e6 for seconds in used)
    return {"rate": count / took, "parent": own, "server": served, "workers": sum(judged), "others": others / took}


def run(quick: bool) -> dict[str, Any]:
    """Both ways in turn, each in a process of its own, until there are enough quiet runs of each."""
    count, wanted = (5000, 3) if quick else (25000, 7)
    found: dict[str, Any] = {"count": count, "cores": os.cpu_count(), **{way: [] for way in WAYS}}
    with fixed_server() as (url, pid):
        for _ in range(TRIES * wanted):
            for way in WAYS:
                if len(_quiet(found[way])) < wanted:
                    wait_for_quiet()
                    command = [sys.executable, "-m", "bench.processes", way, url, str(pid), str(count)]
                    done = subprocess.run(command, capture_output=True, text=True, check=True)
                    found[way].append(json.loads(done.stdout))
    return found


def _quiet(rows: list[dict[str, float]]) -> list[dict[str, float]]:
    return [row for row in rows if row["others"] <= NEIGHBOURS]


def report(results: dict[str, Any]) -> list[str]:
    """Lines of markdown."""
    enough = all(len(_quiet(results[way])) >= ENOUGH for way in WAYS)
    runs = {way: _quiet(results[way]) if enough else results[way] for way in WAYS}
    notes = [f"{way} {len(_quiet(results[way]))} of {len(results[way])} runs" for way in WAYS]
    notes += [] if enough else ["too few, so all runs of both count"]
    rows = [
        [
            way,
            spread([row["rate"] for row in runs[way]], ".0f"),
            *(spread([row[name] for row in runs[way]], ".0f") for name in ("parent", "workers", "server")),
            spread([row["rate"] / 1e6 * _all(row) for row in runs[way]], ".2f"),
        ]
        for way in WAYS
    ]
    middle = {way: {name: statistics.median(row[name] for row in runs[way]) for name in runs[way][0]} for way in WAYS}
    rates = {way: sorted(row["rate"] for row in runs[way]) for way in WAYS}
    alone, several = middle["thread"]["rate"], middle["processes"]["rate"]
    least, most = (rates["processes"][at] / rates["thread"][-1 - at] for at in (0, -1))
    apart = min(1e6 / middle["processes"]["parent"], 2e6 / middle["processes"]["workers"])
    shared = results["cores"] * 1e6 / _all(middle["processes"])
    head = ["judging in", "samples/s", "trainer's process", "workers", "the server", "cores used"]
    return [
        f"{results['count']} samples of 1.2 KB over HTTP on {results['cores']} cores, two workers, cache and ledger "
        "(with content) on; the server sends one fixed verdict. Processor time in microseconds per sample. Median (min "
        f"to max) of the runs in which other programs used less than {NEIGHBOURS:g} cores: {'; '.join(notes)}.",
        "",
        *table(head, rows),
        "",
        f"Measured, processes over thread: {several / alone:.2f} (slowest over fastest {least:.2f}, fastest over "
        f"slowest {most:.2f}); goal: 1.6. By processor time, all three on the same cores can judge {shared:.0f} "
        f"samples/s at most ({shared / alone:.2f} times what the thread does); two workers with a core each, and the "
        f"trainer and the server elsewhere, {apart:.0f} ({apart / alone:.2f}).",
    ]


def _all(row: dict[str, float]) -> float:
    return row["parent"] + row["workers"] + row["server"]


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        with asyncio.Runner(loop_factory=new_loop) as runner:
            runner.run(serve())
    else:
        given_way, given_url, given_server, given_count = sys.argv[1:]
        sys.stdout.write(json.dumps(measure(given_way, given_url, int(given_server), int(given_count))))
