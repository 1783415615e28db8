"""kill -9 at random moments of `referee score`, a hundred times: no row is lost, nothing stored is paid again."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.cli.conftest import environment, rows, write_config, write_rollouts
from tests.faults.served import Served

from referee import clock
from referee.cache import SqliteCache
from referee.judging.digest import digest
from referee.sim import ProviderSpec

ROLLOUTS, AT_ONCE, KILLS = 500, 8, 26
PATIENCE = 120.0


def start(folder: Path) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "referee.cli.main", "score", "in.jsonl", "-o", "out.jsonl", "--resume", "-q"]
    return subprocess.Popen(command, cwd=folder, env=environment(), stderr=subprocess.DEVNULL)


def acknowledged(folder: Path) -> dict[int, float]:
    """Rows a reader of the output files can see now: whole lines with a score."""
    found: dict[int, float] = {}
    for name in ("out.jsonl", "out.jsonl.partial"):
        path = folder / name
        for line in path.read_bytes().splitlines(keepends=True) if path.exists() else ():
            if line.endswith(b"\n"):
                row = json.loads(line)
                if row.get("score") is not None:
                    found[row["line"]] = row["score"]
    return found


def stored(folder: Path) -> set[str]:
    """Digests of the responses whose verdicts are in the cache file."""
    cache = SqliteCache(folder / ".referee" / "cache.sqlite")
    try:
        return {entry.facets["response"] for _, entry in cache.entries()}
    finally:
        cache.close()


def wait_for(child: subprocess.Popen[bytes], server: Served, more: int) -> bool:
    """Until so many more requests have come, or the run has ended: True if it still runs."""
    target, until = len(server.arrivals) + more, clock.monotonic() + PATIENCE
    while clock.monotonic() < until:
        if child.poll() is not None:
            return False
        if len(server.arrivals) >= target:
            return True
        clock.pause(0.003)
    raise AssertionError("the run did not get going")


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", range(4))
def test_killed_again_and_again(tmp_path: Path, seed: int) -> None:
    """Every row seen before a kill is in the end result, in order; a verdict in the cache is never asked for again."""
    rng = random.Random(seed)
    spec = ProviderSpec(latency_median=0.02, latency_sigma=0.5, capacity=AT_ONCE, mode="queue")
    with Served(spec, seed) as server:
        write_rollouts(tmp_path / "in.jsonl", ROLLOUTS)
        write_config(tmp_path / "referee.toml", server.url, f"[limits]\nconcurrency = {AT_ONCE}")
        kills = 0
        seen: dict[int, float] = {}
        paid: set[str] = set()
        while kills < KILLS:
            before = len(server.arrivals)
            child = start(tmp_path)
            running = wait_for(child, server, rng.randint(1, ROLLOUTS // KILLS))
            clock.pause(rng.random() * 0.03)
            os.kill(child.pid, signal.SIGKILL)
            child.wait()
            again = paid.intersection(digest(text) for text in server.arrivals[before:])
            assert not again, f"run {kills + 1}: {len(again)} verdicts were in the cache and asked for again"
            if not running:
                break
            kills += 1
            now = acknowledged(tmp_path)
            lost = {line for line, score in seen.items() if now.get(line) != score}
            assert not lost, f"kill {kills}: rows {sorted(lost)[:5]} were there before and are not now"
            seen |= now
            paid = stored(tmp_path)
        before = len(server.arrivals)
        assert start(tmp_path).wait(PATIENCE) == 0
        assert not paid.intersection(digest(text) for text in server.arrivals[before:])
    found = rows(tmp_path / "out.jsonl")
    assert kills >= KILLS - 2, "the run ended too soon to be killed often"
    assert [row["line"] for row in found] == list(range(1, ROLLOUTS + 1))
    assert [row["score"] for row in found] == [n % 10 + 1 for n in range(ROLLOUTS)]
    assert {line: found[line - 1]["score"] for line in seen} == seen
