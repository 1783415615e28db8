"""A job of its own: a process with a Referee that judges what it is told to, then says what came of it.

    python -m tests.redis.worker CONFIG LEASE

Standard output: "ready", then a line of JSON for each line "NAME COUNT" on standard input, and one more at its end.
"""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from typing import Any

from referee import Sample
from referee.referee import Referee

LONG = 600.0
"""Seconds a lock may outlive its owner here: a machine that stands still must not look like a dead owner."""


class _Listener(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


def samples(count: int, name: str) -> list[Sample]:
    """Samples whose right score the simulated judge reads in the response."""
    return [Sample(prompt="p", response=f"[[quality={n % 10 + 1}]] {name} {n}", id=str(n)) for n in range(count)]


def main() -> None:
    """Judge and report."""
    from referee.cache import redis

    redis.LOCK_TTL_S = float(sys.argv[2])
    listener = _Listener()
    logging.getLogger("referee").addHandler(listener)
    with Referee.from_config(json.loads(sys.argv[1])) as referee:
        print("ready", flush=True)
        for line in sys.stdin:
            name, count = line.split()
            rewards = referee.score(samples(int(count), name))
            print(json.dumps([getattr(r.verdict, "score", str(r.verdict)) for r in rewards]), flush=True)
        metrics = referee.metrics()
    print(json.dumps({"warnings": listener.lines, "metrics": metrics}), flush=True)


class Job:
    """The process, seen from the test."""

    def __init__(self, config: dict[str, Any], lease: float = LONG) -> None:
        self.child = subprocess.Popen(
            [sys.executable, "-m", "tests.redis.worker", json.dumps(config), str(lease)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.child.stdin is not None
        assert self.child.stdout is not None
        self._in, self._out = self.child.stdin, self.child.stdout
        self._counts: list[int] = []
        assert self._out.readline() == "ready\n"

    def go(self, count: int, name: str = "n") -> None:
        """Start judging so many samples."""
        self._counts.append(count)
        self._in.write(f"{name} {count}\n")
        self._in.flush()

    def check(self) -> None:
        """Wait for the next rewards: all of them are there and right."""
        assert json.loads(self._out.readline()) == [n % 10 + 1 for n in range(self._counts.pop(0))]

    def end(self) -> dict[str, Any]:
        """Wait for its end, and hear what it has to say."""
        out, _ = self.child.communicate(timeout=300)
        found: dict[str, Any] = json.loads(out)
        return found

    def kill(self) -> None:
        """End it, whatever it is doing."""
        self.child.kill()
        self.child.communicate()


if __name__ == "__main__":
    main()
