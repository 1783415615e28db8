"""What is credited is worth less by another account: answers that mention everything are less often right than their
siblings, answers at the top have lower rule scores. Needs that, and that more answers are credited than at the start.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from statistics import fmean
from typing import Any

from referee.signals.evidence import Baseline
from referee.signals.rounds import BASELINE, WINDOW, Item, Round
from referee.signals.signal import Family, Finding, Signal, percent, shown_sample

SURE = 3.0
"""Standard errors by which more answers than at the start must be credited."""
ENOUGH = 1.5
"""As much as two of eight that are credited tell; groups that tell less count for less."""
LATEST = 32
"""Groups with both kinds that the sentence is about."""

Judged = Callable[[Item], tuple[bool, float] | None]
"""Whether an answer is credited, and what it is worth in [0, 1] by the other account. None: nothing is known."""


class Divergence(Signal):
    """One account against another."""

    def __init__(self, name: str, family: Family, alpha: float, judged: Judged, words: tuple[str, str]) -> None:
        """`words`: what credited answers are called, and what their worth is."""
        self.name, self.family, self._alpha, self._judged, self._words = name, family, alpha, judged, words
        self._below = Baseline(0.0, 0, LATEST, -1.0, 1.0, at_start=0.0)
        self._start: list[bool] = []
        self._recent: deque[bool] = deque(maxlen=WINDOW)
        self._least: deque[dict[str, Any]] = deque(maxlen=3)

    @property
    def ready(self) -> bool:
        """Whether there was enough to compare with the start."""
        return self._below.ready and len(self._recent) == WINDOW

    def observe(self, round_: Round) -> None:
        """One round."""
        known = {id(item): found for item in round_.items if (found := self._judged(item)) is not None}
        if not known:
            return
        self.looked_at += len(known)
        self._below.restart()
        recent = self._recent if len(self._start) >= BASELINE else self._start
        recent.extend(credited for credited, _ in known.values())
        for group in round_.groups:
            judged = [known[id(item)] for item in group if id(item) in known]
            those = [worth for credited, worth in judged if credited]
            others = [worth for credited, worth in judged if not credited]
            if those and others:
                pairs = len(those) * len(others) / (len(those) + len(others))  # 1 / variance, but for a factor
                self._below.add(fmean(others) - fmean(those), min(1.0, pairs / ENOUGH))
        shown = [item for item in round_.items if known.get(id(item), (False,))[0]]
        shown.sort(key=lambda item: known[id(item)][1])
        self._least.extend(shown_sample(item.observed) for item in shown[:3])

    def _shares(self) -> tuple[float, float]:
        return sum(self._recent) / max(1, len(self._recent)), sum(self._start) / max(1, len(self._start))

    def finding(self) -> Finding | None:
        """More is credited, and it is worth less."""
        if not self.ready or not self._below.passed(self._alpha):
            return None
        now, then = self._shares()
        if now - then < SURE * math.sqrt(max(then * (1 - then), 0.01) * (1 / WINDOW + 1 / len(self._start))):
            return None
        credited, worth = self._words
        return Finding(
            share=max(0.0, now - then),
            sentence=(
                f"{percent(now)} of the latest {WINDOW} answers {credited} ({percent(then)} at the start), but {worth} "
                f"of these is {self._below.now():.2f} below their siblings' ({self.looked_at:,} answers looked at)."
            ),
            evidence={
                "share": now,
                "share_at_start": then,
                "below_siblings": self._below.now(),
                "log_evidence": self._below.log(),
            },
            samples=tuple(self._least),
        )

    def measures(self) -> dict[str, float]:
        """The share that is credited, and how far that is below its siblings."""
        if not self.looked_at:
            return {}
        now, then = self._shares()
        credited = now if self._recent else then
        return {f"{self.name}_credited": credited, f"{self.name}_below": self._below.now()}


def criteria_of(item: Item) -> tuple[bool, float] | None:
    """Credited: passes all criteria that ask whether something is there. Worth: the share passed of the others."""
    there = [passed for passed, presence in item.observed.criteria if presence and passed is not None]
    right = [passed for passed, presence in item.observed.criteria if not presence and passed is not None]
    return (all(there), sum(right) / len(right)) if there and right else None


class Rules:
    """Credited: among the highest scores. Worth: the rule score, between the least and the most there was so far."""

    TOP = 0.9

    def __init__(self) -> None:
        self._low, self._high = math.inf, -math.inf

    def __call__(self, item: Item) -> tuple[bool, float] | None:
        """None until rule scores differ."""
        rule = item.observed.rule
        self._low, self._high = min(self._low, rule), max(self._high, rule)
        if not self._high > self._low:
            return None
        return item.value >= self.TOP, (rule - self._low) / (self._high - self._low)
