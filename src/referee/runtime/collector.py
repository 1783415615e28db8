"""How often Python looks for rings of objects, in processes that are ours alone.

In a trainer's process this is the trainer's to decide; there judging leaves no rings for it to find.
"""

from __future__ import annotations

import gc

OBJECTS = 50_000
"""Objects made before Python looks. Judging makes many that live a moment, and at Python's own 700 looking through them
takes a tenth of the time."""


def collect_rarely() -> None:
    """Call once what is there to stay has been made."""
    gc.freeze()
    gc.set_threshold(OBJECTS)
