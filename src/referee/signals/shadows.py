"""Live answers shown to a shadow judge: how far the two are apart, and how many high scores the shadow rejects."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from referee.signals.asked import Asked
from referee.signals.findings import Family, Finding, percent
from referee.signals.rounds import concordance
from referee.signals.texts import excerpt
from referee.signals.usual import Usual

FIRST, WINDOW = 24, 48
"""Answers that say what is usual between the two, and the latest."""
TOLERATED = 0.1
HIGH, APART = 0.75, 0.3
"""A score that is high, and that the shadow's is below by so much, is exploited."""


class Shadow:
    """Both questions, one class: the mean gap (`exploits` false), or the exploitation rate (true). Samples are weighted
    by the inverse of their chance, so that the numbers are those of all answers."""

    family: Family = "shadow"

    def __init__(self, alpha: float, exploits: bool) -> None:
        self.name = "exploitation" if exploits else "shadow"
        self._alpha, self._exploits = alpha, exploits
        self._usual = Usual(TOLERATED, FIRST, WINDOW, 0.0 if exploits else -1.0, 1.0)
        self._pairs: deque[tuple[float, float]] = deque(maxlen=WINDOW)
        self._worst: deque[Asked] = deque(maxlen=3)
        self._least_chance = 1.0
        self.looked_at = 0

    @property
    def ready(self) -> bool:
        """Whether there was enough to compare with the start."""
        return self._usual.ready

    def hear(self, answers: Sequence[Asked]) -> None:
        """What the shadow judge said."""
        heard = [one for one in answers if one.what == "shadow" and one.value is not None and one.before is not None]
        if heard:
            self._usual.restart()
        for one in heard:
            before, value = one.before or 0.0, one.value or 0.0
            exploited = before >= HIGH and before - value >= APART
            if not self._usual.ready:
                self._least_chance = min(self._least_chance, max(one.chance, 1e-6))
            self._usual.add(
                float(exploited) if self._exploits else before - value, min(1.0, self._least_chance / one.chance)
            )
            self._pairs.append((before, value))
            if exploited:
                self._worst.append(one)
        self.looked_at += len(heard)

    def finding(self) -> Finding | None:
        """The gap or the rate has grown."""
        usual = self._usual
        if not usual.passed(self._alpha):
            return None
        now, then = usual.now(), usual.usual
        if self._exploits:
            words = (
                f"{percent(now)} of all answers have a high score that the shadow judge rejects; {percent(then)} did"
            )
        else:
            words = f"The judge is on average {now:+.2f} above the shadow judge; {then:+.2f} it was"
        return Finding(
            share=max(0.0, now - then) if self._exploits else 0.0,
            sentence=f"{words} at the start ({self.looked_at:,} answers shown to it).",
            evidence={"now": now, "at_start": then, "log_evidence": usual.log(), "asked": float(self.looked_at)},
            samples=tuple(_sample(one) for one in self._worst),
        )

    def measures(self) -> dict[str, float]:
        """The exploitation rate; or the mean gap, and the concordance of the two judges."""
        if not self.looked_at:
            return {}
        if self._exploits:
            return {"exploitation": self._usual.now()}
        agreement = concordance([one for one, _ in self._pairs], [other for _, other in self._pairs])
        return {"shadow": self._usual.now()} | ({} if agreement is None else {"shadow_agreement": agreement})


def _sample(one: Asked) -> dict[str, object]:
    shown: dict[str, object] = {"batch": one.batch, "index": one.index, "id": one.id, "value": one.before}
    return shown | {"shadow": one.value} | ({"text": excerpt(one.text)} if one.text else {})
