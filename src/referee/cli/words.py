"""Numbers in sentences."""

from __future__ import annotations


def counted(number: float, noun: str, several: str = "") -> str:
    """1 sample, 2 samples; 1 batch, 2 batches."""
    return f"{number:.0f} {noun if number == 1 else several or f'{noun}s'}"
