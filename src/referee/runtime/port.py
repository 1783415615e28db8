"""What a place to run must offer. Same behaviour everywhere; tests/contracts holds every runtime to it."""

from __future__ import annotations

from typing import Any, Protocol

from referee.ledger import Tally
from referee.scoring.batch import Batch


class Runtime(Protocol):
    """Hosts a Scorer somewhere and feeds it batches."""

    def start(self) -> None:
        """Bring up now what the first batch would, and raise what it would raise."""

    def submit(self, batch: Batch) -> None:
        """Start judging. Returns at once, unless the place is the caller's own thread."""

    def cancel(self, batch: Batch) -> None:
        """Stop judging a batch; what has no end becomes unscored (cancelled)."""

    def trouble(self, blocking: bool) -> str:
        """Why work submitted here can no longer finish, or "". Raises WrongContext where blocking would deadlock."""

    def record(self, line: Any) -> None:
        """Add a line to the ledger."""

    def metrics(self) -> dict[str, float]:
        """Counts so far."""

    def tally(self) -> Tally | None:
        """What they are counted by; None before the first batch."""

    def close(self, seconds: float) -> None:
        """Finish cleanly within about this long. Safe to call twice."""
