"""What judges of groups did: comparisons, ties, what changed with the order. Counted sample by sample; no files.

A comparison is counted by each sample that it is about, in each order by itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from referee.judging.listwise import IN_CHUNKS
from referee.judging.pairwise import FIRST, TIED, WON
from referee.ledger.criteria import part_rows
from referee.records import Verdict


class Compared(NamedTuple):
    """Counts of one verdict of a judge of groups, or of many."""

    lists: int = 0
    """Verdicts by list."""
    comparisons: int = 0
    """With an answer."""
    missing: int = 0
    tied: int = 0
    first_won: int = 0
    """Of those that are not tied: the response that was shown first won."""
    both: int = 0
    """Pairs with an answer in both orders."""
    changed: int = 0
    """Of those, where the answer changed with the order."""
    orders: int = 0
    """Verdicts in several orders of a list."""
    spread: float = 0.0
    """Their standard deviations over the orders, added up."""
    chunked: int = 0
    """Verdicts on responses of a group that did not fit one request."""

    def plus(self, other: Compared, times: int = 1) -> Compared:
        """The sum; `times` = -1: the difference."""
        return Compared._make([mine + times * theirs for mine, theirs in zip(self, other, strict=True)])

    def metrics(self) -> dict[str, float]:
        """By name. Those of the kind of judge that it was."""
        found: dict[str, float] = {}
        if self.lists:
            found["chunked_share"] = share(self.chunked, self.lists)
        if self.orders:
            found["order_spread"] = share(self.spread, self.orders)
        if self.comparisons or self.missing:
            found |= {
                "comparisons": self.comparisons,
                "comparisons_missing": self.missing,
                "tie_share": share(self.tied, self.comparisons),
                "first_shown_share": share(self.first_won, self.comparisons - self.tied),
                "order_changed_share": share(self.changed, self.both),
            }
        return found


def compared_in(verdict: Verdict) -> Compared:
    """The counts of a verdict that is at hand."""
    return _count(verdict.how, [(part.name, part.text, part.label) for part in verdict.parts], verdict.uncertainty)


def compared(how: str, parts: Iterable[Mapping[str, Any]], uncertainty: float | None) -> Compared:
    """The same of a line of the ledger, or of a row."""
    return _count(how, [(row.name, row.text, row.verdict) for row in part_rows(parts)], uncertainty)


def _count(how: str, sides: Iterable[tuple[str, str, str]], spread: float | None) -> Compared:
    """`sides`: of each part the other one, how it was shown, and won, lost or tied (empty: no answer)."""
    if how == "listwise":
        chunked = any(shown.endswith(IN_CHUNKS) for _, shown, _ in sides)
        return Compared(1, orders=spread is not None, spread=spread or 0.0, chunked=chunked)
    counts = dict.fromkeys(("comparisons", "missing", "tied", "first_won", "both", "changed"), 0)
    before: dict[str, str] = {}
    for name, shown, label in sides:
        if not label:
            counts["missing"] += 1
            continue
        counts["comparisons"] += 1
        counts["tied"] += label == TIED
        counts["first_won"] += label != TIED and (label == WON) == (shown == FIRST)
        if name in before:
            counts["both"] += 1
            counts["changed"] += before[name] != label
        before[name] = label
    return Compared(**counts)


def share(part: float, whole: float) -> float:
    """0 of nothing."""
    return part / whole if whole else 0.0
