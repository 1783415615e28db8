"""Answers whose score is known in advance, and changes of answers that must not raise it. Pure: data and functions."""

from referee.probes.attacks import ATTACKS, FAMILIES, VERSION
from referee.probes.rewrites import REWRITES, Rewrite, rewritten

__all__ = ["ATTACKS", "FAMILIES", "REWRITES", "VERSION", "Rewrite", "rewritten"]
