"""What `import referee` costs a trainer: CPU milliseconds above an empty interpreter."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

PROGRAM = "import time; a = time.process_time(); import referee; print(time.process_time() - a)"


def run(quick: bool) -> dict[str, Any]:
    """The least of several fresh interpreters."""
    times = [
        float(subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True).stdout)
        for _ in range(5 if quick else 15)
    ]
    return {"milliseconds": sorted(1000 * t for t in times)}


def report(results: dict[str, Any]) -> list[str]:
    """Lines of markdown."""
    found = results["milliseconds"]
    return [f"`import referee`: {found[len(found) // 2]:.0f} ms of CPU (min {found[0]:.0f}), {len(found)} starts."]
