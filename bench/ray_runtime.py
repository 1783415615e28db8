"""What Ray costs per sample: the runtime beside a bare actor call of the same size, and from 1,000 samples to 100,000.

The samples are settled by a gate, so nothing but the way there and back is measured. The bare call hands an actor the
same bytes and gets 200 for each sample back. Overhead: what the Ray runtime takes beyond the thread runtime.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from referee.config import load
from referee.records import Sample
from referee.referee import Referee

BATCH = 256
AT_ONCE = 4
"""Batches under way at once, in the runs that keep the line busy."""
TICK = os.sysconf("SC_CLK_TCK")
CONFIG = {"endpoint": {"url": "http://127.0.0.1:9/v1", "model": "m", "key_env": ""}, "cache": {"path": ""}}


def cpu_of(pid: int) -> float:
    """Processor seconds a process has used so far."""
    words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(words[11]) + int(words[12])) / TICK


def samples(count: int, start: int = 0) -> list[Sample]:
    """Rollouts of 4 KB that a gate settles."""
    text = "x" * 3500
    return [
        Sample(prompt=f"{n} {text[:500]}", response=f"{n} {text}", truncated=True, id=str(n))
        for n in range(start, start + count)
    ]


def one_after_another(work: Callable[[], Any], repeats: int) -> float:
    """Median microseconds per sample of one batch at a time."""
    found = []
    for _ in range(repeats):
        began = time.perf_counter()
        work()
        found.append((time.perf_counter() - began) / BATCH * 1e6)
    return statistics.median(found)


def busy(start: Callable[[], Any], finish: Callable[[Any], Any], batches: int, pids: list[int]) -> tuple[float, float]:
    """Wall and processor microseconds per sample while several batches are under way."""
    before = [cpu_of(pid) for pid in pids]
    began = time.perf_counter()
    out = [start() for _ in range(AT_ONCE)]
    for number in range(batches):
        finish(out.pop(0))
        if number + AT_ONCE < batches:
            out.append(start())
    wall = time.perf_counter() - began
    used = sum(cpu_of(pid) - at for pid, at in zip(pids, before, strict=True))
    return wall / (batches * BATCH) * 1e6, used / (batches * BATCH) * 1e6


def run(quick: bool) -> dict[str, Any]:
    """All of it on a cluster of this machine."""
    try:
        import ray
    except ImportError:
        return {"missing": "Ray is not installed here"}
    from referee.runtime.ray import look, shutdown

    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    ray.init(address="local", num_cpus=2, include_dashboard=False, log_to_driver=False)

    @ray.remote(num_cpus=0)
    class Bare:
        async def call(self, items: list[bytes]) -> list[bytes]:
            return [item[:200] for item in items]

        async def pid(self) -> int:
            return os.getpid()

    repeats, batches = (15, 60) if quick else (60, 400)
    sizes = (1_000, 10_000) if quick else (1_000, 10_000, 100_000)
    given = samples(BATCH)
    items = [msgspec.msgpack.encode(sample) for sample in given]
    actor = Bare.remote()
    bare_pid = ray.get(actor.pid.remote())
    config = load({**CONFIG, "runtime": "ray"})
    found: dict[str, Any] = {"bytes": sum(map(len, items)) // BATCH, "grown": {}}
    with Referee(config) as far, Referee(load(CONFIG)) as near:
        ways: dict[str, tuple[Callable[[], Any], Callable[[Any], Any]]] = {
            "bare": (lambda: actor.call.remote(items), ray.get),
            "ray": (lambda: far.submit(given), lambda ticket: ticket.result(60)),
            "thread": (lambda: near.submit(given), lambda ticket: ticket.result(60)),
        }
        for start, finish in ways.values():
            for _ in range(5):
                finish(start())
        engine = int((look(config)[0][1] or {})["pid"])
        pids = {"bare": [os.getpid(), bare_pid], "ray": [os.getpid(), engine], "thread": [os.getpid()]}
        rows: dict[str, list[tuple[float, float, float]]] = {way: [] for way in ways}
        for _ in range(3 if quick else 5):
            for way, (start, finish) in ways.items():
                alone = one_after_another(lambda s=start, f=finish: f(s()), repeats)  # type: ignore[misc]
                rows[way].append((alone, *busy(start, finish, batches, pids[way])))
        for way, measured in rows.items():
            found[way] = [statistics.median(column) for column in zip(*measured, strict=True)]
        for size in sizes:
            many = samples(size)
            cpu, began = sum(map(cpu_of, pids["ray"])), time.perf_counter()
            far.score(many, timeout=600)
            wall = (time.perf_counter() - began) / size * 1e6
            found["grown"][str(size)] = [wall, (sum(map(cpu_of, pids["ray"])) - cpu) / size * 1e6]
    shutdown(config)
    ray.shutdown()
    return found


def report(results: dict[str, Any]) -> list[str]:
    """Lines of markdown."""
    if "missing" in results:
        return [f"Not measured: {results['missing']}."]
    lines = [
        f"Batches of {BATCH} samples of {results['bytes']} bytes that a gate settles; microseconds per sample.",
        "",
        f"| way | wall, one batch at a time | wall, {AT_ONCE} batches under way | processor, client and actor |",
        "|---|---|---|---|",
    ]
    names = {"bare": "bare actor call", "ray": "Ray runtime", "thread": "thread runtime"}
    for way, name in names.items():
        lines.append("| " + " | ".join([name, *(f"{value:.1f}" for value in results[way])]) + " |")
    ratios = [
        (far - near) / bare for far, near, bare in zip(*(results[w] for w in ("ray", "thread", "bare")), strict=True)
    ]
    lines += [
        "",
        f"Overhead through Ray over the bare call: {ratios[0]:.1f} one batch at a time, {ratios[1]:.1f} with the line "
        f"busy, {ratios[2]:.1f} in processor time; goal: 3.",
        "",
        "| samples in one batch | wall | processor |",
        "|---|---|---|",
        *(f"| {int(size):,} | {wall:.1f} | {cpu:.1f} |" for size, (wall, cpu) in results["grown"].items()),
    ]
    return lines


if __name__ == "__main__":
    import sys

    print("\n".join(report(run("--quick" in sys.argv))))
