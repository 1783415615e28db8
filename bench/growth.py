"""Many samples through `referee score`: does memory stay flat, and what does a sample cost?"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import msgspec

from referee import clock
from referee.sim import ProviderSpec, start_server_process

MARKS = (10_000, 25_000, 50_000, 75_000, 100_000)


def write_rollouts(path: Path, count: int) -> None:
    """Groups of eight, about 600 bytes a line."""
    with path.open("wb") as stream:
        for n in range(count):
            row = {
                "id": str(n),
                "group": str(n // 8),
                "prompt": f"Question {n // 8}?",
                "response": f"Answer {n}. " + "Words. " * 70,
            }
            stream.write(msgspec.json.encode(row) + b"\n")


def resident(pid: int) -> float:
    """Megabytes of memory a process holds."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1]) / 1024
    return 0.0


def run(quick: bool) -> dict[str, Any]:
    """One run of the command, memory read as its output grows."""
    total = 20_000 if quick else MARKS[-1]
    with tempfile.TemporaryDirectory() as folder, start_server_process(ProviderSpec(), seed=1) as server:
        home = Path(folder)
        write_rollouts(home / "rollouts.jsonl", total)
        (home / "referee.toml").write_text(
            f'[endpoint]\nurl = "{server.url}"\nmodel = "simulated"\nkey_env = ""\n[shaping.length]\nenable = true\n'
        )
        command = [sys.executable, "-m", "referee.cli.main", "score", "rollouts.jsonl", "-o", "rewards.jsonl", "-q"]
        started = clock.monotonic()
        child = subprocess.Popen(command, cwd=home)
        memory: dict[int, float] = {}
        partial = home / "rewards.jsonl.partial"
        while child.poll() is None:
            done = _lines(partial)
            memory[done] = resident(child.pid)
            clock.pause(0.2)
        took = clock.monotonic() - started
        again = clock.monotonic()
        subprocess.run([*command, "--resume"], cwd=home, check=True)
        resumed = clock.monotonic() - again
        rows = _lines(home / "rewards.jsonl")
        cache = (home / ".referee" / "cache.sqlite").stat().st_size
    marks = [m for m in MARKS if m <= total]
    at = {m: max((v for k, v in memory.items() if k <= m), default=0.0) for m in marks}
    return {
        "samples": total,
        "rows": rows,
        "seconds": took,
        "resume_seconds": resumed,
        "cache_bytes": cache,
        "peak_mb_up_to": at,
        "peak_mb": max(memory.values()),
    }


class _Counter:
    """Counts lines of a growing file without reading it twice."""

    def __init__(self) -> None:
        self.offset = 0
        self.lines = 0


_counters: dict[Path, _Counter] = {}


def _lines(path: Path) -> int:
    counter = _counters.setdefault(path, _Counter())
    if path.exists():
        with path.open("rb") as stream:
            stream.seek(counter.offset)
            data = stream.read()
        counter.offset += len(data)
        counter.lines += data.count(b"\n")
    return counter.lines


def report(results: dict[str, Any]) -> list[str]:
    """Lines of markdown."""
    at = {int(k): v for k, v in results["peak_mb_up_to"].items()}
    lines = [
        f"`referee score` on {results['samples']:,} rollouts (groups of 8, length penalty on, cache and ledger on), "
        f"near-zero-latency provider: {results['seconds']:.0f} s, {results['rows']:,} rewards; resuming the "
        f"finished run: {results['resume_seconds']:.1f} s; cache on disk {results['cache_bytes'] / 1e6:.0f} MB.",
        "",
        "| rewards written | most memory so far, MB |",
        "|---|---|",
        *(f"| {mark:,} | {mb:.0f} |" for mark, mb in at.items()),
    ]
    return lines
