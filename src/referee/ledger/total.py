"""The line that says how long a run will be, where somebody knows. Data only."""

from __future__ import annotations

from referee.ledger.base import BaseLine


class TotalLine(BaseLine, frozen=True, kw_only=True, omit_defaults=True, gc=False, tag="total"):
    """How much there will be to judge, by all processes together. The last one counts."""

    samples: int = 0
    """0: not known."""
    steps: int = 0
    """Training steps; 0: not known."""
    resumed: bool = False
    """Samples that earlier starts in this folder have judged are part of it."""
