"""What `import referee` costs a trainer: CPU milliseconds above an empty interpreter."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

PROGRAM = "import time; a = time.process_time(); {}; print(time.process_time() - a)"
STATEMENTS = ("import referee", "from referee import Referee", "import asyncio, logging, msgspec, sqlite3")


def run(quick: bool) -> dict[str, Any]:
    """The least of several fresh interpreters."""
    repeats = 5 if quick else 15
    return {statement: sorted(_once(statement) for _ in range(repeats)) for statement in STATEMENTS}


def _once(statement: str) -> float:
    command = [sys.executable, "-c", PROGRAM.format(statement)]
    return 1000 * float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def report(results: dict[str, Any]) -> list[str]:
    """Lines of markdown."""
    lines = ["CPU milliseconds in fresh interpreters; the last row is what everything of this kind needs anyway.", ""]
    lines += ["| statement | median (min) |", "|---|---|"]
    return lines + [f"| `{name}` | {found[len(found) // 2]:.0f} ({found[0]:.0f}) |" for name, found in results.items()]
