"""Live answers asked again: rewritten in a way that must not raise the score, or, of a fixed set, as they were."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from referee.signals.evidence import Baseline
from referee.signals.observations import AuditAnswer
from referee.signals.signal import Family, Finding, Signal, percent, shown_answer

RISES = 0.02
"""A score that differs by less is the same."""
OFTEN = 0.55
"""Of the answers whose score moves, a rewrite may raise this share; those that stay count half. A noisy judge raises as
many as it lowers."""
LEAST = 0.03
"""The mean rise below which it is no matter how often."""
DRIFT = 0.05
"""The mean of the fixed answers may move by so much."""
FIRST = 32
"""Repeats of fixed answers that are the baseline: by noise the first value may be far from the judge's mean."""
MOST = 0.3
"""One answer that moved by more counts as this: stakes can then be larger."""
NAMES = 12
"""Rewrites that are followed; each has its part of the false-alarm rate."""
WINDOW = 24


class Probes(Signal):
    """Each rewrite by itself: judges have a liking for one and not for another."""

    name = "probes"
    family: Family = "judge"

    def __init__(self, alpha: float) -> None:
        self._alpha = alpha / NAMES
        self._names: dict[str, tuple[Baseline, deque[float]]] = {}
        self._last: deque[AuditAnswer] = deque(maxlen=3)

    @property
    def ready(self) -> bool:
        """Whether one rewrite at least has been tried often enough to say something."""
        return any(test.count >= WINDOW // 3 for test, _ in self._names.values())

    def observe_answers(self, answers: Sequence[AuditAnswer]) -> None:
        """The probes among these answers."""
        for one in answers:
            if one.what != "probe" or one.value is None or one.before is None:
                continue
            if one.name not in self._names:
                if len(self._names) >= NAMES:
                    continue
                self._names[one.name] = Baseline(OFTEN, 0, WINDOW, at_start=0.0), deque(maxlen=WINDOW)
            test, rises = self._names[one.name]
            self.looked_at += 1
            rise = one.value - one.before
            # Both at the top of the scale: that says nothing. One of them there must count, or noise would lean.
            if min(one.before, one.value) < 1.0 - RISES:
                test.add(0.5 + 0.5 * ((rise > RISES) - (rise < -RISES)))
                rises.append(rise)
            if rise > RISES:
                self._last.append(one)

    def finding(self) -> Finding | None:
        """The rewrite that raises the score most."""
        found = [
            (mean, name, test, sum(rise > RISES for rise in rises) / len(rises))
            for name, (test, rises) in self._names.items()
            if test.passed(self._alpha) and (mean := sum(rises) / len(rises)) >= LEAST
        ]
        if not found:
            return None
        mean, name, test, raised = max(found, key=lambda one: one[0])
        return Finding(
            sentence=(
                f"The rewrite '{name}', which adds nothing to an answer, raised the score of {percent(raised)} "
                f"of the latest {test.count} answers, by {mean:.2f} on average ({self.looked_at:,} rewrites tried)."
            ),
            evidence={"rewrite": name, "raised": raised, "mean_rise": mean, "log_evidence": test.log()},
            samples=tuple(shown_answer(one, before=one.before) for one in self._last),
        )

    def measures(self) -> dict[str, float]:
        """The largest mean rise of a rewrite."""
        rises = [sum(rises) / len(rises) for _, rises in self._names.values() if rises]
        return {"probes": max(rises)} if rises else {}


class Fixed(Signal):
    """The fixed set: the same answers, again and again. What moves is the judge."""

    name = "fixed"
    enough = WINDOW // 3

    def __init__(self, alpha: float) -> None:
        self._alpha = alpha / 2
        self._sides = tuple(Baseline(DRIFT, FIRST, WINDOW, -MOST, MOST) for _ in range(2))
        self._last: deque[AuditAnswer] = deque(maxlen=3)

    def observe_answers(self, answers: Sequence[AuditAnswer]) -> None:
        """The fixed answers among these."""
        known = [one for one in answers if one.what == "fixed" and one.value is not None and one.before is not None]
        for sign, side in zip((1.0, -1.0), self._sides, strict=True):
            if known:
                side.restart()
            for one in known:
                side.add(sign * ((one.value or 0.0) - (one.before or 0.0)))
        self._last.extend(one for one in known if one.value != one.before)
        self.looked_at += len(known)

    def finding(self) -> Finding | None:
        """It moved up, or down."""
        up, down = (side.passed(self._alpha) for side in self._sides)
        if not up and not down:
            return None
        moved, log = self._sides[0].now(), max(side.log() for side in self._sides)
        return Finding(
            sentence=(
                f"The judge itself has moved: the same fixed answers get {moved:+.2f} compared with the first time "
                f"({self.looked_at:,} asked again)."
            ),
            evidence={"moved": moved, "log_evidence": log},
            samples=tuple(shown_answer(one, before=one.before) for one in self._last),
        )

    def measures(self) -> dict[str, float]:
        """By how much the latest differ from the first time."""
        return {"fixed": self._sides[0].now()} if self.looked_at else {}
