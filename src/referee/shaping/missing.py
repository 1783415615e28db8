"""What an unscored sample becomes, and when there are too many. It never becomes 0 by itself."""

from __future__ import annotations

import statistics
from collections import Counter, deque
from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from referee.config import MissingConfig
from referee.errors import TooManyUnscored
from referee.records import Reason, Reward, Unscored, Verdict

WINDOW = 256
"""Most recent samples that `[missing] abort_above` applies to, as documented there."""
UNCOUNTED = frozenset({Reason.CANCELLED, Reason.ALONE, Reason.UNCERTAIN})
"""Nothing is broken: the caller, the data or the user's own bar left them without a verdict."""


def is_gated(verdict: Verdict | Unscored) -> bool:
    """True of what gates gave: no judge was asked about that sample, so it tells nothing of them."""
    if not isinstance(verdict, Verdict):
        return False
    return verdict.how == "gate" or (verdict.how == "terms" and all(is_gated(part.verdict) for part in verdict.parts))


def fill(rewards: Sequence[Reward], config: MissingConfig) -> list[Reward]:
    """The rewards of one group, with the policy's number for those without one.

    abstain and raise leave None. group_mean is the mean of the siblings' final rewards: it does not move the group's
    baseline and has advantage 0; None if no sibling has a reward.
    """
    if config.policy == "value":
        number, name = config.value, "value"
    elif config.policy == "group_mean":
        number, name = mean([reward.value for reward in rewards if reward.value is not None]), "group_mean"
    else:
        return list(rewards)
    if number is None:
        return list(rewards)
    return [replace(reward, value=number, filled=name) if reward.value is None else reward for reward in rewards]


def mean(values: list[float]) -> float | None:
    """Their mean, None of nothing. Clamped: the mean of equal numbers can round away from them, and a group of equal
    rewards must keep a spread of exactly zero."""
    return min(max(statistics.fmean(values), min(values)), max(values)) if values else None


class UnscoredWatch:
    """Trips when more than `abort_above` of the last `window` samples were unscored; 1 never trips.

    The share is of the full window, even at the start: a few early failures do not trip it. What is in UNCOUNTED does
    not count, nor what no judge was asked about: where rules decide most answers, that would hide a judge that is gone.
    """

    def __init__(self, abort_above: float, window: int = WINDOW) -> None:
        self.abort_above = abort_above
        self.window = window
        self._recent: deque[Unscored | None] = deque()
        self._unscored = 0

    def observe(self, verdict: Verdict | Unscored) -> bool:
        """Count one settled sample. True if tripped."""
        missing = verdict if isinstance(verdict, Unscored) else None
        if not (is_gated(verdict) if missing is None else missing.reason in UNCOUNTED):
            self._recent.append(missing)
            self._unscored += missing is not None
            if len(self._recent) > self.window:
                gone = self._recent.popleft()  # no call within the next line: hooks count from several threads
                self._unscored -= gone is not None
        return self.tripped

    @property
    def tripped(self) -> bool:
        """True while too many of the recent samples are unscored."""
        return self._unscored > self.abort_above * self.window

    def counts(self) -> dict[Reason, int]:
        """Recent unscored samples by reason, most frequent first."""
        return dict(Counter(missing.reason for missing in self._recent if missing is not None).most_common())

    def summary(self) -> str:
        """The counts as text, with the latest detail of the most frequent reason."""
        counts = self.counts()
        words = ", ".join(f"{reason} {count}" for reason, count in counts.items())
        first = next(iter(counts), None)
        for missing in reversed(self._recent):
            if missing is not None and missing.reason is first and missing.detail:
                return f"{words}; last {first}: {missing.detail}"
        return words

    def error(self, rewards: Any = None) -> TooManyUnscored:
        """What to raise when tripped."""
        return TooManyUnscored(
            f"{self._unscored} of the last {len(self._recent)} samples were not scored ({self.summary()}). "
            f"Training on would learn from too few rewards, so the run stops: [missing] abort_above = "
            f"{self.abort_above:g} allows {int(self.abort_above * self.window)} in {self.window}. Fix the cause, or "
            "raise abort_above (1 turns this off).",
            rewards=rewards,
        )

    def __repr__(self) -> str:
        return f"UnscoredWatch({self._unscored} unscored of {len(self._recent)}, abort_above={self.abort_above:g})"
