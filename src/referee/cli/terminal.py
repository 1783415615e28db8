"""A terminal for tables with untrusted text: no markup, and characters it cannot encode do not fail."""

from __future__ import annotations

import io
import sys

from rich.console import Console


def terminal() -> Console:
    """Standard output. What its encoding does not have (bars of a history, letters of a rollout) becomes `?`."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")
    return Console(markup=False, emoji=False, highlight=False)
