"""Runs of the command, each forked from one process that has imported it: it costs milliseconds, not the import.

A run is a process like any other, with its own streams, environment, folder, status and interpreter exit.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

Done = subprocess.CompletedProcess[str]


class Forks:
    """The process, and how to run the command in it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._child = subprocess.Popen(
            [sys.executable, "-m", "tests.cli.forked"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )

    def run(self, args: tuple[str, ...], cwd: Path, env: dict[str, str], stdin: str | None, timeout: float) -> Done:
        """`referee` with these arguments, to its end."""
        paths = [self._folder / name for name in ("stdin", "stdout", "stderr")]
        paths[0].write_text(stdin or "")
        job = {"args": args, "cwd": str(cwd), "env": env, "streams": [str(path) for path in paths]}
        assert self._child.stdin is not None
        self._child.stdin.write(json.dumps(job).encode() + b"\n")
        self._child.stdin.flush()
        pid = int(self._line(timeout))
        try:
            status = int(self._line(timeout))
        except TimeoutError:
            os.kill(pid, signal.SIGKILL)
            self._line(timeout)
            raise
        return subprocess.CompletedProcess(["referee", *args], status, *(path.read_text() for path in paths[1:]))

    def _line(self, timeout: float) -> bytes:
        assert self._child.stdout is not None
        ready, _, _ = select.select([self._child.stdout], [], [], timeout)
        line = self._child.stdout.readline() if ready else b""
        if not line:
            raise TimeoutError(f"nothing was heard of the command for {timeout:g} s")
        return line

    def close(self) -> None:
        """End the process."""
        self._child.communicate()


def _job() -> dict[str, Any] | None:
    """Forks for each line that comes, and says its process id and status. Returns in a fork, or None at the end."""
    while line := os.read(0, 1 << 20):
        while not line.endswith(b"\n"):
            line += os.read(0, 1 << 20)
        pid = os.fork()
        if not pid:
            found: dict[str, Any] = json.loads(line)
            return found
        os.write(1, b"%d\n" % pid)
        os.write(1, b"%d\n" % os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
    return None


if __name__ == "__main__":
    from referee.cli.main import main

    job = _job()
    if job is not None:
        os.chdir(job["cwd"])
        os.environ.clear()
        os.environ.update(job["env"])
        for number, path in enumerate(job["streams"]):
            os.dup2(os.open(path, os.O_RDONLY if not number else os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), number)
        sys.argv = ["referee", *job["args"]]
        main()
