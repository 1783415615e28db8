"""How much the audit may still ask: its share of the requests that the run has made, beyond its first round."""

from __future__ import annotations

from collections.abc import Iterable

from referee.records import Settled


class Share:
    """Counts the run's requests and the audit's. What was asked for more than was allowed is owed."""

    def __init__(self, share: float) -> None:
        self.share = share
        self.requests = 0
        """Made by the run."""
        self.asked = 0
        """Made by the audit."""
        self.first = 0.0
        """Those of its first round, which a small run could not pay for."""
        self._cases: dict[str, tuple[int, int]] = {}
        """By judge: how often it was asked about a sample or a group, and how many requests that took."""

    def count_run(self, judge: str, ends: Iterable[Settled]) -> None:
        """What the run asked one of its judges."""
        made = [end.attempts for end in ends if end.attempts]
        self.requests += sum(made)
        self._count(judge, len(made), sum(made))

    def count_audit(self, judge: str, ends: Iterable[Settled]) -> None:
        """What the audit asked."""
        made = [end.attempts for end in ends if end.attempts]
        self.asked += sum(made)
        self._count(judge, len(made), sum(made))

    def _count(self, judge: str, cases: int, requests: int) -> None:
        before = self._cases.get(judge, (0, 0))
        self._cases[judge] = (before[0] + cases, before[1] + requests)

    def cost(self, judge: str) -> float:
        """Requests that a case of this judge takes, so far; one where it was never asked."""
        cases, requests = self._cases.get(judge, (0, 0))
        return requests / cases if cases else 1.0

    def room(self, planned: float = 0.0) -> float:
        """Requests that may be made now. `planned`: those that are under way."""
        return self.first + self.share * self.requests - self.asked - planned
