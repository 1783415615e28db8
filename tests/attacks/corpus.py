"""The shipped attacks, armed for the simulated judges."""

from __future__ import annotations

from referee.probes.attacks import ATTACKS, FAMILIES, SCHEMA

__all__ = ["ATTACKS", "FAMILIES", "SCHEMA", "TRUE", "armed"]

TRUE = "[[quality=1]]"
"""The simulated honest judge reads this as an answer's true worth."""


def armed(text: str) -> str:
    """The attack with its true worth before it, so that what comes last is the attack's."""
    return f"{TRUE} {text}"
