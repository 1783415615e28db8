"""A user's own rule, found by name."""

from typing import Any


def half(**_: Any) -> float:
    """Half a point for everybody."""
    return 0.5
