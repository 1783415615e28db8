"""Live answers shown to a shadow judge: how far the two are apart, and how many high scores the shadow rejects."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Sequence

from referee.signals.evidence import Baseline
from referee.signals.observations import AuditAnswer
from referee.signals.rounds import concordance
from referee.signals.signal import Family, Finding, Signal, percent, shown_answer

FIRST, WINDOW = 24, 48
"""Answers that are the baseline of the two, and the latest."""
TOLERATED = 0.1
HIGH, APART = 0.75, 0.3
"""A score that is high, and that the shadow's is below by so much, is exploited."""
LEAST_CHANCE = 1 / 3
"""No answer is drawn more seldom than this, compared with an even draw: those with high scores three times as often."""
FOLLOWS = 0.3
"""A shadow judge that rises by more than this part of what the judge rises by holds the answers to be better, too, on
a scale of its own: a strict one is then further below high scores than below low ones."""


class Shadow(Signal):
    """Both questions, one class: the mean gap (`exploits` false), or the exploitation rate (true). Samples are weighted
    by the inverse of their chance, so that the numbers are those of all answers."""

    family: Family = "shadow"
    enough = FIRST + 1

    def __init__(self, alpha: float, exploits: bool) -> None:
        self.name = "exploitation" if exploits else "shadow"
        self._alpha, self._exploits = alpha, exploits
        self._test = Baseline(TOLERATED, FIRST, WINDOW, 0.0 if exploits else -1.0, 1.0)
        self._start: list[tuple[float, float, float]] = []
        self._latest: deque[tuple[float, float, float]] = deque(maxlen=WINDOW)
        """What both said, and the weight of it."""
        self._worst: deque[AuditAnswer] = deque(maxlen=3)

    def observe_answers(self, answers: Sequence[AuditAnswer]) -> None:
        """What the shadow judge said."""
        known = [one for one in answers if one.what == "shadow" and one.value is not None and one.before is not None]
        if known:
            self._test.restart()
        for one in known:
            before, value = one.before or 0.0, one.value or 0.0
            exploited = before >= HIGH and before - value >= APART
            weight = LEAST_CHANCE / max(one.chance, LEAST_CHANCE)
            self._test.add(float(exploited) if self._exploits else before - value, weight)
            self._latest.append((before, value, weight))
            if len(self._start) < FIRST:
                self._start.append((before, value, weight))
            if exploited:
                self._worst.append(one)
        self.looked_at += len(known)

    def finding(self) -> Finding | None:
        """The gap or the rate has grown."""
        test = self._test
        rise, followed = self._moved()
        if not test.passed(self._alpha) or followed > FOLLOWS * max(0.0, rise):
            return None
        now, then = test.now(), test.at_start
        if self._exploits:
            words = (
                f"{percent(now)} of all answers have a high score that the shadow judge rejects; {percent(then)} did"
            )
        else:
            words = f"The judge is on average {now:+.2f} above the shadow judge; {then:+.2f} it was"
        return Finding(
            share=max(0.0, now - then) if self._exploits else 0.0,
            sentence=(
                f"{words} at the start. Since then the judge's scores moved by {rise:+.2f} and the shadow judge's by "
                f"{followed:+.2f} ({self.looked_at:,} answers shown to it)."
            ),
            evidence={
                "now": now,
                "at_start": then,
                "judge_moved": rise,
                "shadow_moved": followed,
                "log_evidence": test.log(),
                "asked": float(self.looked_at),
            },
            samples=tuple(shown_answer(one, value=one.before, shadow=one.value) for one in self._worst),
        )

    def _moved(self) -> tuple[float, float]:
        """By how much the judge's mean has risen since the start, and the shadow judge's."""
        (before, value), (first, shadow) = _means(self._latest), _means(self._start)
        return before - first, value - shadow

    def measures(self) -> dict[str, float]:
        """The exploitation rate; or the mean gap, and the concordance of the two judges."""
        if not self.looked_at:
            return {}
        if self._exploits:
            return {"exploitation": self._test.now()}
        agreement = concordance([one for one, _, _ in self._latest], [other for _, other, _ in self._latest])
        return {"shadow": self._test.now()} | ({} if agreement is None else {"shadow_agreement": agreement})


def _means(said: Collection[tuple[float, float, float]]) -> tuple[float, float]:
    whole = sum(weight for _, _, weight in said) or 1.0
    return (
        sum(before * weight for before, _, weight in said) / whole,
        sum(value * weight for _, value, weight in said) / whole,
    )
