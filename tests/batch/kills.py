"""kill -9 of `referee score --batch` at random moments, against a simulated provider in another process that keeps the
bill: `python -m tests.batch.kills --kills 60`.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from msgspec import Struct
from tests.cli.conftest import environment, rows, write_config

from referee import clock
from referee.sim import BatchSpec, ProviderSpec, ServerProcess, Stats, start_server_process

ROLLOUTS, AT_ONCE = 200, 24
PATIENCE_S = 120.0
PRICE_IN, PRICE_OUT = 2.0, 8.0
BATCH = BatchSpec(validate_s=0.05, process_s=0.4, error_share=0.05, expire_share=0.03, lost_answers=0.25)


class Outcome(Struct):
    """What came of one run that was killed again and again."""

    kills: int
    rows: list[dict[str, Any]]
    seen: Stats
    open_left: int

    @property
    def cost(self) -> float:
        """US dollars, by the rows."""
        return sum(row.get("cost", 0.0) for row in self.rows)

    @property
    def bill(self) -> float:
        """US dollars, by the provider: half of its list prices."""
        return (self.seen.tokens_in * PRICE_IN + self.seen.tokens_out * PRICE_OUT) / 2e6

    def check(self, faults: bool) -> None:
        """Every row once and in order, with the right score; every item paid once; rows and bill agree."""
        assert [row["line"] for row in self.rows] == list(range(1, ROLLOUTS + 1))
        unscored = [row for row in self.rows if "score" not in row]
        assert len(unscored) <= (ROLLOUTS // 10 if faults else 0), unscored[:3]
        assert all(row["score"] == score_of(row["line"] - 1) for row in self.rows if "score" in row)
        if not faults:
            assert self.seen.max_repeats == 1
            assert self.seen.answered == self.seen.distinct == len({text_of(n) for n in range(ROLLOUTS)})
        assert abs(self.cost - self.bill) < 1e-9, (self.cost, self.bill)


def text_of(number: int) -> str:
    """Some rollouts are there twice: the second shares the verdict of the first."""
    return f"[[quality={score_of(number)}]] {number - 1 if number % 10 == 9 else number}"


def score_of(number: int) -> int:
    """What the simulated judge gives."""
    return (number - 1 if number % 10 == 9 else number) % 10 + 1


def killed_run(folder: Path, provider: str, seed: int, most: int, faults: bool = False) -> Outcome:
    """One run to its end, killed up to `most` times on the way. `faults`: also replies without a verdict, which are
    asked for again with the same bytes."""
    rng = random.Random(seed)
    with (folder / "in.jsonl").open("w") as stream:
        for n in range(ROLLOUTS):
            row = {"id": f"r{n}", "prompt": "p", "response": text_of(n)}
            stream.write(json.dumps(row) + "\n")
    api = "anthropic" if provider == "anthropic" else "chat"
    spec = ProviderSpec(api=api, batch=BATCH, faults={"no_verdict": 0.1} if faults else {})
    with start_server_process(spec, seed) as server:
        endpoint = {"provider": provider, "price_in": PRICE_IN, "price_out": PRICE_OUT}
        more = f"[batch]\npoll = 0.2\nmax_open = {AT_ONCE}\n[missing]\nabort_above = 1.0"
        write_config(folder / "referee.toml", server.url, more, **endpoint)
        kills = 0
        while True:
            child = _start(folder)
            # Every other kill comes as soon as the provider has created a batch: its id may not be on disk yet.
            created = server.stats().batches if kills % 2 else None
            if kills < most and not _ended(child, rng.uniform(0.4, 1.0 + 0.25 * rng.randrange(8)), server, created):
                os.kill(child.pid, signal.SIGKILL)
                child.communicate()
                kills += 1
                continue
            _, said = child.communicate(timeout=PATIENCE_S)
            assert child.returncode in (0, 3), said.decode()
            break
        listed = subprocess.run(
            [sys.executable, "-m", "referee.cli.main", "batches", "list", "out.jsonl"],
            cwd=folder,
            env=environment(),
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        still_open = sum(f"  {state}  " in line for line in listed.splitlines() for state in ("intended", "running"))
        return Outcome(kills, rows(folder / "out.jsonl"), server.stats(), still_open)


def _start(folder: Path) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "referee.cli.main", "score", "in.jsonl", "-o", "out.jsonl", "--batch", "--resume"]
    return subprocess.Popen([*command, "-q"], cwd=folder, env=environment(), stderr=subprocess.PIPE)


def _ended(child: subprocess.Popen[bytes], seconds: float, server: ServerProcess, created: int | None) -> bool:
    """Wait for the child's end, or for that long; with `created`, for more batches than that at the provider."""
    until = clock.monotonic() + (seconds if created is None else PATIENCE_S)
    while clock.monotonic() < until:
        if child.poll() is not None:
            return True
        if created is not None and server.stats().batches > created:
            return False
        clock.pause(0.002)
    return False


def main() -> None:
    """Kill as often as asked, over as many runs as that takes, and say what came of it."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--kills", type=int, default=60)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    kills, seed, dollars, runs = 0, given.seed, 0.0, 0
    while kills < given.kills:
        provider, faults = ("openai", "anthropic")[runs % 2], runs % 4 >= 2
        with tempfile.TemporaryDirectory() as folder:
            found = killed_run(Path(folder), provider, seed, min(15, given.kills - kills), faults)
        found.check(faults)
        runs, seed, kills, dollars = runs + 1, seed + 1, kills + found.kills, dollars + found.bill
        print(
            f"{provider}{', faults' if faults else ''}: {found.kills} kills, {found.seen.batches} batches, "
            f"{found.seen.answered} items billed, rows ${found.cost:.6f}, bill ${found.bill:.6f}",
            flush=True,
        )
    print(f"{kills} kills in {runs} runs: every row once, every item paid once, ${dollars:.4f} billed and in the rows")


if __name__ == "__main__":
    main()
