"""Verdicts to rewards: length penalty, combination, missing policy. Pure arithmetic."""

from referee.shaping.combine import joined, needs_group, shape_group, weighted, whole
from referee.shaping.length import check_lengths, count_tokens, length_penalty, median
from referee.shaping.missing import UnscoredWatch, fill, is_gated

__all__ = [
    "UnscoredWatch",
    "check_lengths",
    "count_tokens",
    "fill",
    "is_gated",
    "joined",
    "length_penalty",
    "median",
    "needs_group",
    "shape_group",
    "weighted",
    "whole",
]
