"""What judging costs the trainer's own interpreter: a pure-Python loop's speed while 500 judged samples a second flow.

The loop runs in the main thread. In slices with judging it also submits 125 samples every quarter of a second and
collects what is done, as a trainer would; both count against it. Slices without judging stand between them, in the same
process, so that a noisy neighbour disturbs both alike. Speed is taken twice. By the clock it also falls when other
programs have the processor. So it is taken again by the time the loop was not waiting for a processor, which the kernel
counts for each thread: the rest of its time is its own work and its wait for the interpreter lock. Slices count only
if other programs used little meanwhile: they also slow down what runs, by the memory that all share.
"""

from __future__ import annotations

import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from bench.common import TICK, cpu_of, percents, table
from referee.config import load
from referee.records import Sample
from referee.referee import Referee
from referee.sim import ProviderSpec, start_server_process
from referee.ticket import Ticket

RATE = 500
EVERY = 0.25
LEAD = 1.0
"""Seconds of judging before a slice counts, so that as much lands in it as is submitted."""
WAYS = ("thread", "processes")
NEIGHBOURS = 0.1
"""Cores that other programs may use during what counts."""
PATIENCE = 10.0
"""Seconds to wait for other programs to be quiet."""
ENOUGH = 5
"""Quiet slices that make a result; with fewer, all are shown."""


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


def waited() -> float:
    """Seconds this thread was ready to run and had no processor. 0 where the kernel does not say."""
    path = Path(f"/proc/self/task/{threading.get_native_id()}/schedstat")
    return int(path.read_text().split()[1]) / 1e9 if path.exists() else 0.0


def busy() -> float:
    """Processor seconds that all programs of this machine have used so far."""
    user, nice, system, _, _, *interrupts = Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]
    return sum(map(int, (user, nice, system, *interrupts))) / TICK


def wait_for_quiet() -> None:
    """Wait until other programs use little, or patience is over."""
    until, used = time.monotonic() + PATIENCE, 1.0
    while used > NEIGHBOURS and time.monotonic() < until:
        before = busy()
        time.sleep(0.5)
        used = (busy() - before) / 0.5


class Trainer:
    """The loop, and the batches it has out."""

    def __init__(self, referee: Referee, pids: list[int]) -> None:
        """`pids`: the processes that judging takes part in."""
        self._referee = referee
        self._pids = pids
        self._tickets: list[Ticket] = []
        self._number = 0
        self._batches: list[list[Sample]] = []
        self.judged = 0

    def prepare(self, seconds: float) -> None:
        """Make the samples that the next slice submits: a trainer's are there already."""
        self._batches = []
        for _ in range(int((LEAD + seconds) / EVERY) + 2):
            self._number += 1
            self._batches.append(samples(f"batch {self._number}", int(RATE * EVERY)))

    def run(self, seconds: float, judging: bool) -> dict[str, float]:
        """Run the loop for so long and measure it."""
        self.judged = rounds = 0
        spun = 0.0
        others = busy() - sum(map(cpu_of, self._pids))
        began, cpu, whole, delay = time.monotonic(), time.thread_time(), time.process_time(), waited()
        due = began
        while (now := time.monotonic()) < began + seconds:
            if judging and now >= due:
                due += EVERY
                self._tickets.append(self._referee.submit(self._batches.pop()))
                self._collect()
            before = time.thread_time()
            spin(2000)
            spun += time.thread_time() - before
            rounds += 1
        took, used, late = time.monotonic() - began, time.thread_time() - cpu, waited() - delay
        return {
            "clock": rounds / took,
            "own": rounds / (took - late),
            "running": rounds / spun,
            "lock": max(0.0, took - late - used) / took,
            "handing": (used - spun) / took,
            "taken": (time.process_time() - whole - spun) / took,
            "judged": self.judged / took,
            "others": (busy() - sum(map(cpu_of, self._pids)) - others) / took,
        }

    def settle(self) -> None:
        """Wait for what is out."""
        for ticket in self._tickets:
            ticket.result()
        self._tickets.clear()

    def _collect(self) -> None:
        while self._tickets and self._tickets[0].done():
            self.judged += sum(reward.scored for reward in self._tickets.pop(0).result())


def slices(way: str, url: str, server: int, seconds: float, count: int) -> list[dict[str, dict[str, float]]]:
    """Slices with judging, each between two without."""
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        config = {
            "endpoint": {"url": url, "model": "simulated", "key_env": ""},
            "cache": {"path": str(folder / "cache.sqlite")},
            "ledger": {"dir": str(folder / "run")},
            "limits": {"concurrency": 512},
            "judge": {"reply": "schema"},
        }
        referee = stack.enter_context(Referee(load({**config, "runtime": way})))
        referee.score(samples("warm up", 512))
        crew = getattr(referee._runtime, "_crew", None)
        workers = [child.process.pid for child in (crew.children if crew else ())]
        trainer = Trainer(referee, [os.getpid(), server, *workers])
        found = []
        for _ in range(count):
            trainer.prepare(seconds)
            wait_for_quiet()
            before = trainer.run(seconds, False)
            trainer.run(LEAD, True)
            judging = trainer.run(seconds, True)
            trainer.settle()
            found.append({"before": before, "judging": judging, "after": trainer.run(seconds, False)})
    return found


def run(quick: bool) -> dict[str, Any]:
    """Each way in turn, several times, each in a process of its own."""
    seconds, count, repeats = (1.0, 3, 2) if quick else (2.0, 6, 4)
    found: dict[str, Any] = {"seconds": seconds, **{way: [] for way in WAYS}}
    with start_server_process(ProviderSpec(judge="constant", latency_median=0.3), seed=1) as server:
        for _ in range(repeats):
            for way in WAYS:
                given = (way, server.url, str(server.pid), str(seconds), str(count))
                command = [sys.executable, "-m", "bench.interpreter", *given]
                done = subprocess.run(command, capture_output=True, text=True, check=True)
                found[way] += json.loads(done.stdout)
    return found


def _quiet(rows: dict[str, dict[str, float]]) -> bool:
    return all(row["others"] <= NEIGHBOURS for row in rows.values())


def report(results: dict[str, Any]) -> list[str]:
    """Lines of markdown."""
    rows, notes = [], []
    for way in WAYS:
        quiet = [found for found in results[way] if _quiet(found)]
        counted = quiet if len(quiet) >= ENOUGH else results[way]
        notes.append(
            f"{way} {len(quiet)} of {len(results[way])} slices" + ("" if counted is quiet else ", so all count")
        )

        def lost(name: str, counted: list[dict[str, dict[str, float]]] = counted) -> list[float]:
            return [1 - 2 * f["judging"][name] / (f["before"][name] + f["after"][name]) for f in counted]

        def more(name: str, counted: list[dict[str, dict[str, float]]] = counted) -> list[float]:
            return [f["judging"][name] - (f["before"][name] + f["after"][name]) / 2 for f in counted]

        judged = statistics.median(found["judging"]["judged"] for found in counted)
        held = [lock + handing for lock, handing in zip(more("lock"), more("handing"), strict=True)]
        parts = (held, more("lock"), lost("own"), lost("running"), more("taken"))
        rows.append([way, f"{judged:.0f}", *map(_quartiles, parts), percents(lost("clock"))])
    head = [
        "judging in",
        "samples/s",
        "time lost to judging",
        "of it waiting for the interpreter lock",
        "speed lost",
        "of it running slower",
        "core used beside the loop",
        "lost by the clock (min to max)",
    ]
    return [
        f"A pure-Python loop while {RATE} samples of 1.2 KB a second are judged over HTTP, cache and ledger (with "
        f"content) on, beside the same loop in the same process without judging, in slices of {results['seconds']:g} "
        f"s. Median (quartiles) of those in which other programs used less than {NEIGHBOURS:g} cores: "
        f"{'; '.join(notes)}. Time lost: waiting for the interpreter lock, submitting and collecting. Speed lost: in "
        "the time the loop was not waiting for a processor; besides that time it holds how fast the loop ran while it "
        "ran, which neighbours change too. By the clock the workers and the simulated server on the same cores count.",
        "",
        *table(head, rows),
        "",
        "Asked: at most 2 % with processes.",
    ]


def _quartiles(values: list[float]) -> str:
    low, middle, high = statistics.quantiles(values, n=4)
    return f"{middle * 100:.1f} % ({low * 100:.1f} to {high * 100:.1f})"


if __name__ == "__main__":
    given_way, given_url, given_server, given_seconds, given_count = sys.argv[1:]
    sys.stdout.write(
        json.dumps(slices(given_way, given_url, int(given_server), float(given_seconds), int(given_count)))
    )
