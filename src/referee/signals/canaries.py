"""Answers whose worth is known: wrong ones that a judge credits, right ones that it does not.

A canary that is credited at the first rounds is a fact about the judge and said at once; that others are credited later
is tested against the share of the first rounds.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence

from referee.signals.evidence import Baseline
from referee.signals.observations import AuditAnswer
from referee.signals.signal import Family, Finding, Signal, percent, shown_answer

CREDITED = 0.5
"""A value from here on says that the answer is good."""
FACT, FACT_SHARE = 2, 0.2
"""Credited ones among the first that are said at once: of one name, or if they are more than this share of all."""
FIRST = 24
"""Canaries at the start that are the baseline; a fact is one of these."""
TOLERATED = 0.15
"""Share of wrong canaries credited, or right ones refused, that is no alarm beyond that of the start."""
WINDOW = 24
NAMES = 200
"""Different names that are counted; the user's own canaries may be many."""


class Canaries(Signal):
    """All judges' canaries."""

    name = "canaries"
    enough = WINDOW
    family: Family = "judge"

    def __init__(self, alpha: float) -> None:
        self._alpha = alpha / 2
        self._sides = {True: _Side(), False: _Side()}

    def observe_answers(self, answers: Sequence[AuditAnswer]) -> None:
        """The canaries among these answers."""
        known = [one for one in answers if one.what == "canary" and one.value is not None and one.wrong is not None]
        self.looked_at += len(known)
        for wrong, side in self._sides.items():
            mine = [one for one in known if one.wrong is wrong]
            if mine:
                side.add(mine, wrong)

    def finding(self) -> Finding | None:
        """Wrong ones credited, or right ones refused."""
        wrong, right = self._sides[True], self._sides[False]
        facts = wrong.facts()
        if wrong.baseline.passed(self._alpha) or facts:
            share, then = wrong.baseline.now(), wrong.baseline.at_start
            named = facts or [name for name, _ in wrong.missed.most_common(3)]
            names = ", ".join(f"{name} ({wrong.missed[name]} of {wrong.asked[name]})" for name in named[:3])
            since = f"{FACT} or more among the first {FIRST}" if facts else f"and {percent(then)} at the start"
            compared = {"at_start": then, "log_evidence": wrong.baseline.log()} if wrong.baseline.ready else {}
            return Finding(
                sentence=(
                    f"The judge credits answers that are known to be wrong: {percent(share)} of the latest "
                    f"{wrong.baseline.count}, {since}; {names} ({self.looked_at:,} canaries looked at)."
                ),
                evidence={"credited": share, **compared},
                samples=tuple(wrong.samples),
            )
        if right.baseline.passed(self._alpha):
            share, then = right.baseline.now(), right.baseline.at_start
            return Finding(
                sentence=(
                    f"The judge refuses answers that are known to be right: {percent(share)} of the latest "
                    f"{right.baseline.count}, and {percent(then)} at the start "
                    f"({self.looked_at:,} canaries looked at)."
                ),
                evidence={"refused": share, "at_start": then, "log_evidence": right.baseline.log()},
                samples=tuple(right.samples),
            )
        return None

    def measures(self) -> dict[str, float]:
        """Shares of the latest."""
        found = {}
        if self._sides[True].baseline.count:
            found["canaries"] = self._sides[True].baseline.now()
        if self._sides[False].baseline.count:
            found["canaries_refused"] = self._sides[False].baseline.now()
        return found


class _Side:
    """The wrong ones, or the right ones: how many were judged otherwise."""

    def __init__(self) -> None:
        self.baseline = Baseline(TOLERATED, FIRST, WINDOW)
        self.asked: Counter[str] = Counter()
        self.missed: Counter[str] = Counter()
        """How often each was asked, and judged otherwise."""
        self.samples: deque[dict[str, object]] = deque(maxlen=3)
        self._facts: set[str] = set()

    def add(self, answers: Sequence[AuditAnswer], wrong: bool) -> None:
        learning = not self.baseline.ready
        self.baseline.restart()
        for one in answers:
            missed = (one.value is not None and one.value >= CREDITED) is wrong
            self.baseline.add(float(missed))
            if one.name in self.asked or len(self.asked) < NAMES:
                self.asked[one.name] += 1
                self.missed[one.name] += missed
            if missed:
                self.samples.append(shown_answer(one) | {"id": one.id or one.name})
        many = self.missed.total() >= FACT and self.baseline.now() > FACT_SHARE
        if learning:
            self._facts = {name for name, count in self.missed.items() if count >= (1 if many else FACT)}

    def facts(self) -> list[str]:
        """Names that were judged otherwise from the start on, while some still are."""
        still = self.baseline.now() > 0
        return sorted(self._facts, key=lambda name: -self.missed[name]) if still else []
