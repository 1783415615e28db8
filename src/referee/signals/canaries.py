"""Answers whose worth is known: wrong ones that a judge credits, right ones that it does not.

A canary that is credited at the first rounds is a fact about the judge and said at once; that others are credited later
is tested against the share of the first rounds.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence

from referee.signals.asked import Asked
from referee.signals.findings import Family, Finding, percent
from referee.signals.texts import excerpt
from referee.signals.usual import Usual

CREDITED = 0.5
"""A value from here on says that the answer is good."""
FACT, FACT_SHARE = 2, 0.2
"""Credited ones among the first that are said at once: of one name, or if they are more than this share of all."""
FIRST = 24
"""Canaries at the start that say what is usual; a fact is one of these."""
TOLERATED = 0.15
"""Share of wrong canaries credited, or right ones refused, that is no alarm beyond that of the start."""
WINDOW = 24
NAMES = 200
"""Different names that are counted; the user's own canaries may be many."""


class Canaries:
    """All judges' canaries."""

    name = "canaries"
    family: Family = "judge"

    def __init__(self, alpha: float) -> None:
        self._alpha = alpha / 2
        self._sides = {True: _Side(), False: _Side()}
        self.looked_at = 0

    @property
    def ready(self) -> bool:
        """Whether enough canaries were asked."""
        return self.looked_at >= WINDOW

    def hear(self, answers: Sequence[Asked]) -> None:
        """The canaries among these answers."""
        heard = [one for one in answers if one.what == "canary" and one.value is not None and one.wrong is not None]
        self.looked_at += len(heard)
        for wrong, side in self._sides.items():
            mine = [one for one in heard if one.wrong is wrong]
            if mine:
                side.hear(mine, wrong)

    def finding(self) -> Finding | None:
        """Wrong ones credited, or right ones refused."""
        wrong, right = self._sides[True], self._sides[False]
        facts = wrong.facts()
        if wrong.usual.passed(self._alpha) or facts:
            share, then = wrong.usual.now(), wrong.usual.usual
            named = facts or [name for name, _ in wrong.missed.most_common(3)]
            names = ", ".join(f"{name} ({wrong.missed[name]} of {wrong.asked[name]})" for name in named[:3])
            since = f"{FACT} or more among the first {FIRST}" if facts else f"and {percent(then)} at the start"
            compared = {"at_start": then, "log_evidence": wrong.usual.log()} if wrong.usual.ready else {}
            return Finding(
                sentence=(
                    f"The judge credits answers that are known to be wrong: {percent(share)} of the latest "
                    f"{wrong.usual.count}, {since}; {names} ({self.looked_at:,} canaries looked at)."
                ),
                evidence={"credited": share, **compared},
                samples=tuple(wrong.samples),
            )
        if right.usual.passed(self._alpha):
            share, then = right.usual.now(), right.usual.usual
            return Finding(
                sentence=(
                    f"The judge refuses answers that are known to be right: {percent(share)} of the latest "
                    f"{right.usual.count}, and {percent(then)} at the start "
                    f"({self.looked_at:,} canaries looked at)."
                ),
                evidence={"refused": share, "at_start": then, "log_evidence": right.usual.log()},
                samples=tuple(right.samples),
            )
        return None

    def measures(self) -> dict[str, float]:
        """Shares of the latest."""
        found = {}
        if self._sides[True].usual.count:
            found["canaries"] = self._sides[True].usual.now()
        if self._sides[False].usual.count:
            found["canaries_refused"] = self._sides[False].usual.now()
        return found


class _Side:
    """The wrong ones, or the right ones: how many were judged otherwise."""

    def __init__(self) -> None:
        self.usual = Usual(TOLERATED, FIRST, WINDOW)
        self.asked: Counter[str] = Counter()
        self.missed: Counter[str] = Counter()
        """How often each was asked, and judged otherwise."""
        self.samples: deque[dict[str, object]] = deque(maxlen=3)
        self._facts: set[str] = set()

    def hear(self, answers: Sequence[Asked], wrong: bool) -> None:
        learning = not self.usual.ready
        self.usual.restart()
        for one in answers:
            missed = (one.value is not None and one.value >= CREDITED) is wrong
            self.usual.add(float(missed))
            if one.name in self.asked or len(self.asked) < NAMES:
                self.asked[one.name] += 1
                self.missed[one.name] += missed
            if missed:
                shown: dict[str, object] = {"batch": one.batch, "index": one.index, "id": one.id or one.name}
                shown |= {"value": one.value} | ({"text": excerpt(one.text)} if one.text else {})
                self.samples.append(shown)
        many = self.missed.total() >= FACT and self.usual.now() > FACT_SHARE
        if learning:
            self._facts = {name for name, count in self.missed.items() if count >= (1 if many else FACT)}

    def facts(self) -> list[str]:
        """Names that were judged otherwise from the start on, while some still are."""
        still = self.usual.now() > 0
        return sorted(self._facts, key=lambda name: -self.missed[name]) if still else []
