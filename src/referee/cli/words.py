"""Numbers in sentences."""

from __future__ import annotations


def counted(number: float, noun: str) -> str:
    """1 sample, 2 samples."""
    return f"{number:.0f} {noun}{'' if number == 1 else 's'}"
