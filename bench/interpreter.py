"""What judging costs the trainer's own interpreter: a pure-Python loop's speed while 500 judged samples a second flow.

The loop runs in the main thread of a fresh process, submits 125 samples every quarter of a second and collects what is
done, as a trainer would; both count against it. Beside it the same loop alone. Repeats take turns, so that a noisy
neighbour disturbs all of them alike. Two figures: speed lost by the clock, which on a busy machine says little, and the
processor time the process spent on anything but the loop, per second: what a loop with a core of its own would lose.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from referee.config import load
from referee.records import Sample
from referee.referee import Referee
from referee.sim import ProviderSpec, start_server_process
from referee.ticket import Ticket

RATE = 500
EVERY = 0.25
WAYS = ("alone", "thread", "processes")


def samples(name: str, count: int) -> list[Sample]:
    """Rollouts of about 1.2 KB, lengths known, as a trainer has them."""
    body = "The answer weighs the evidence and comes to a conclusion in a few plain sentences. " * 12
    return [
        Sample(
            prompt=f"Question {n % 64}: what follows from the evidence given here?",
            response=f"{name} {n}. {body}",
            group=str(n // 8),
            length=220,
        )
        for n in range(count)
    ]


def spin(rounds: int) -> int:
    """A little pure Python: what a trainer's own code is made of."""
    total, names = 0, {}
    for n in range(rounds):
        total += n * n % 7
        names[n & 63] = total
    return total + len(names)


def loop(way: str, url: str, seconds: float) -> dict[str, float]:
    """Run the loop for so long; its speed, its share of the processor time, and the samples judged meanwhile."""
    with tempfile.TemporaryDirectory() as folder:
        referee = None
        if way != "alone":
            config = {
                "endpoint": {"url": url, "model": "simulated", "key_env": ""},
                "cache": {"path": str(Path(folder) / "cache.sqlite")},
                "ledger": {"dir": str(Path(folder) / "run")},
                "limits": {"concurrency": 512},
                "judge": {"reply": "schema"},
            }
            referee = Referee(load({**config, "runtime": way}))
            referee.score(samples("warm up", 512))
        batches = [samples(f"batch {n}", int(RATE * EVERY)) for n in range(int(seconds / EVERY) + 2)]
        tickets: list[Ticket] = []
        judged = rounds = 0
        own = 0.0
        began, cpu = time.monotonic(), time.process_time()
        due = began
        while True:
            now = time.monotonic()
            if now - began >= seconds:
                break
            if referee is not None and now >= due:
                due += EVERY
                tickets.append(referee.submit(batches.pop()))
                while tickets and tickets[0].done():
                    judged += sum(reward.scored for reward in tickets.pop(0).result())
            before = time.thread_time()
            spin(2000)
            own += time.thread_time() - before
            rounds += 1
        took, used = time.monotonic() - began, time.process_time() - cpu
        if referee is not None:
            judged += sum(ticket.landed() for ticket in tickets)
            for ticket in tickets:
                ticket.cancel()
            referee.close()
    return {"speed": rounds / took, "lost": (used - own) / took, "judged": judged / took}


def run(quick: bool) -> dict[str, Any]:
    """Each way in turn, several times, each in a process of its own."""
    seconds, repeats = (4.0, 3) if quick else (8.0, 7)
    found: dict[str, Any] = {"seconds": seconds, **{way: [] for way in WAYS}}
    with start_server_process(ProviderSpec(judge="constant", latency_median=0.3), seed=1) as server:
        for _ in range(repeats):
            for way in WAYS:
                command = [sys.executable, "-m", "bench.interpreter", way, server.url, str(seconds)]
                done = subprocess.run(command, capture_output=True, text=True, check=True)
                found[way].append(json.loads(done.stdout))
    return found


def report(results: dict[str, Any]) -> list[str]:
    """Lines of markdown."""
    lines = [
        f"A pure-Python loop for {results['seconds']:g} s while {RATE} samples of 1.2 KB a second are judged over "
        "HTTP, cache and ledger (with content) on. Median (min to max) of repeats that took turns.",
        "",
        "| judging in | samples/s | speed lost, by the clock | share of a core taken from the loop |",
        "|---|---|---|---|",
    ]
    alone = [row["lost"] for row in results["alone"]]
    for way in WAYS[1:]:
        pairs = list(zip(results[way], results["alone"], strict=True))
        clock = [1 - row["speed"] / base["speed"] for row, base in pairs]
        # The loop alone spends a little on looking at clocks.
        share = [row["lost"] - statistics.median(alone) for row, _ in pairs]
        judged = statistics.median(row["judged"] for row, _ in pairs)
        lines.append(f"| {way} | {judged:.0f} | {_percent(clock)} | {_percent(share)} |")
    return [*lines, "", "Asked: at most 2 % with processes."]


def _percent(values: list[float]) -> str:
    low, high = min(values) * 100, max(values) * 100
    return f"{statistics.median(values) * 100:.1f} % ({low:.1f} to {high:.1f})"


if __name__ == "__main__":
    sys.stdout.write(json.dumps(loop(sys.argv[1], sys.argv[2], float(sys.argv[3]))))
