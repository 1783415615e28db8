"""Many samples through `referee score`: does memory stay flat, and what does a sample cost?"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import msgspec

from bench.common import cpu_of, table
from referee import clock
from referee.sim import ProviderSpec, start_server_process

MARKS = (10_000, 25_000, 50_000, 75_000, 100_000, 250_000, 500_000, 1_000_000)


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
    """One run of the command for each size."""
    sizes = (1_000, 4_000) if quick else (1_000, 10_000, 100_000)
    if os.environ.get("REFEREE_BENCH_MILLION") == "1":
        sizes = (*sizes, 1_000_000)
    return {"sizes": [once(size) for size in sizes]}


def once(total: int) -> dict[str, Any]:
    """One run of the command, memory read as its output grows; then the finished run resumed."""
    with (
        tempfile.TemporaryDirectory() as folder,
        start_server_process(ProviderSpec(judge="constant"), seed=1) as server,
    ):
        home = Path(folder)
        write_rollouts(home / "rollouts.jsonl", total)
        (home / "referee.toml").write_text(
            f'[endpoint]\nurl = "{server.url}"\nmodel = "simulated"\nkey_env = ""\n[shaping.length]\nenable = true\n'
        )
        command = [sys.executable, "-m", "referee.cli.main", "score", "rollouts.jsonl", "-o", "rewards.jsonl", "-q"]
        started = clock.monotonic()
        child = subprocess.Popen(command, cwd=home)
        memory: dict[int, float] = {}
        cpu = 0.0
        partial = home / "rewards.jsonl.partial"
        counter = _Counter(partial)
        while child.poll() is None:
            done = counter.lines()
            memory[done] = max(memory.get(done, 0.0), resident(child.pid))
            cpu = cpu_of(child.pid)
            clock.pause(0.2 if total > 5_000 else 0.02)
        took = clock.monotonic() - started
        again = clock.monotonic()
        subprocess.run([*command, "--resume"], cwd=home, check=True)
        resumed = clock.monotonic() - again
        rows = _Counter(home / "rewards.jsonl").lines()
        cache = (home / ".referee" / "cache.sqlite").stat().st_size
    marks = [m for m in MARKS if m <= total]
    at = {m: max((v for k, v in memory.items() if k <= m), default=0.0) for m in marks}
    return {
        "samples": total,
        "rows": rows,
        "seconds": took,
        "cpu_seconds": cpu,
        "resume_seconds": resumed,
        "cache_bytes": cache,
        "peak_mb_up_to": at,
        "peak_mb": max(memory.values()),
    }


class _Counter:
    """Counts lines of a growing file without reading it twice."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = self._lines = 0

    def lines(self) -> int:
        """Lines so far."""
        if self._path.exists():
            with self._path.open("rb") as stream:
                stream.seek(self._offset)
                data = stream.read()
            self._offset += len(data)
            self._lines += data.count(b"\n")
        return self._lines


def report(results: dict[str, Any]) -> list[str]:
    """Lines of markdown."""
    sizes = results["sizes"]
    at = {int(k): v for k, v in sizes[-1]["peak_mb_up_to"].items()}
    rows = [
        [
            f"{one['samples']:,}",
            f"{one['rows']:,}",
            f"{one['seconds']:.1f}",
            f"{one['cpu_seconds'] / one['samples'] * 1e6:,.0f}",
            f"{one['peak_mb']:.0f}",
            f"{one['cache_bytes'] / 1e6:.1f}",
            f"{one['resume_seconds']:.1f}",
        ]
        for one in sizes
    ]
    head = ["rollouts", "rewards", "seconds", "µs CPU per sample", "most memory, MB", "cache on disk, MB", "resume, s"]
    lines = [
        "`referee score` (groups of 8, length penalty on, cache and ledger on), near-zero-latency provider, one run "
        "each. Time and processor time include the start of the command, about a second; resume: the finished run "
        "once more. A million: set REFEREE_BENCH_MILLION=1.",
        "",
        *table(head, rows),
    ]
    if at:
        lines += ["", "Most memory so far in the largest run:", ""]
        lines += table(["rewards written", "MB"], [[f"{mark:,}", f"{mb:.0f}"] for mark, mb in at.items()])
    return lines
