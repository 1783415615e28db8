"""How many samples a second can be judged at most: worker processes beside the thread runtime, taking turns.

Over real HTTP against a server that answers at once, so that the client is what limits. On few cores the server and the
clients share them; so the processor time of each part is shown as well, from which follows what more cores would carry.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from bench.interpreter import samples
from referee.config import load
from referee.referee import Referee
from referee.sim import ProviderSpec, start_server_process

WAYS = ("thread", "processes")
TICK = os.sysconf("SC_CLK_TCK")


def cpu_of(pid: int) -> float:
    """Processor seconds a process has used so far."""
    words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(words[11]) + int(words[12])) / TICK


def measure(way: str, url: str, server: int, count: int) -> dict[str, float]:
    """Judge so many samples once; the rate, and microseconds of processor time per sample of each part."""
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
            referee.score(samples("warm up", 1000))
            given = samples("run", count)
            crew = getattr(referee._runtime, "_crew", None)
            workers = [child.process.pid for child in crew.children] if crew else []
            before = [cpu_of(pid) for pid in (os.getpid(), server, *workers)]
            began = time.monotonic()
            scored = sum(reward.scored for reward in referee.score(given))
            took = time.monotonic() - began
            used = [cpu_of(pid) - at for pid, at in zip((os.getpid(), server, *workers), before, strict=True)]
    assert scored == count
    own, served, *judged = (seconds / count * 1e6 for seconds in used)
    return {"rate": count / took, "parent": own, "server": served, "workers": sum(judged)}


def run(quick: bool) -> dict[str, Any]:
    """Both ways in turn, several times, each in a process of its own."""
    count, repeats = (4000, 3) if quick else (15000, 7)
    found: dict[str, Any] = {"count": count, "cores": os.cpu_count(), **{way: [] for way in WAYS}}
    with start_server_process(ProviderSpec(judge="constant"), seed=1) as server:
        for _ in range(repeats):
            for way in WAYS:
                command = [sys.executable, "-m", "bench.processes", way, server.url, str(server.pid), str(count)]
                done = subprocess.run(command, capture_output=True, text=True, check=True)
                found[way].append(json.loads(done.stdout))
    return found


def report(results: dict[str, Any]) -> list[str]:
    """Lines of markdown."""
    lines = [
        f"{results['count']} samples of 1.2 KB over HTTP on {results['cores']} cores, two workers, cache and ledger "
        "(with content) on. Median (min to max) of repeats that took turns; processor time in microseconds per sample.",
        "",
        "| judging in | samples/s | trainer's process | workers | the simulated server |",
        "|---|---|---|---|---|",
    ]
    middle: dict[str, dict[str, float]] = {}
    for way in WAYS:
        rows = results[way]
        middle[way] = {name: statistics.median(row[name] for row in rows) for name in rows[0]}
        rates = [row["rate"] for row in rows]
        lines.append(
            f"| {way} | {middle[way]['rate']:.0f} ({min(rates):.0f} to {max(rates):.0f}) | {middle[way]['parent']:.0f} "
            f"| {middle[way]['workers']:.0f} | {middle[way]['server']:.0f} |"
        )
    pairs = zip(results["processes"], results["thread"], strict=True)
    ratios = sorted(row["rate"] / base["rate"] for row, base in pairs)
    alone = 1e6 / middle["thread"]["parent"]
    spread = min(1e6 / middle["processes"]["parent"], 2e6 / middle["processes"]["workers"])
    everything = sum(middle["processes"][name] for name in ("parent", "workers", "server"))
    shared = results["cores"] * 1e6 / everything
    return [
        *lines,
        "",
        f"Measured, processes over thread: {statistics.median(ratios):.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f}); "
        f"asked: 1.6. By processor time, one interpreter carries {alone:.0f} samples/s; two workers with a core each "
        f"carry {spread:.0f} ({spread / alone:.2f} times as many); with the server on the same {results['cores']} "
        f"cores at most {shared:.0f} ({shared / alone:.2f}).",
    ]


if __name__ == "__main__":
    given_way, given_url, given_server, given_count = sys.argv[1:]
    sys.stdout.write(json.dumps(measure(given_way, given_url, int(given_server), int(given_count))))
