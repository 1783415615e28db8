"""A rule that reward workers load by its path. It imports nothing of the tests."""

from __future__ import annotations

from typing import Any


def contains(data_source: str, solution_str: str, ground_truth: str, extra_info: dict[str, Any], **_: Any) -> float:
    """1 if the ground truth stands in the response, else 0."""
    return float(ground_truth in solution_str)
