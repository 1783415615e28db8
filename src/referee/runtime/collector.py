"""How often the garbage collector runs, in processes that are ours alone.

In a trainer's process that is the trainer's choice; judging leaves no reference cycles there.
"""

from __future__ import annotations

import gc

OBJECTS = 50_000
"""Allocations between two collections. Judging makes many short-lived objects: at Python's default of 700 a tenth of
the time goes to the GC."""


def collect_rarely() -> None:
    """Call when all long-lived objects have been made."""
    gc.freeze()
    gc.set_threshold(OBJECTS)
