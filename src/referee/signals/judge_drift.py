"""The judge and its server, as live samples show them: another one answers, more is unscored, it is slower, scores
jump. These say nothing about the policy; they are warnings."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from statistics import fmean, median, pstdev, pvariance

from referee.signals.evidence import Baseline
from referee.signals.observations import Observation
from referee.signals.rounds import BASELINE, WINDOW, Round
from referee.signals.signal import Finding, Signal, percent, shown_sample

STEADY = 2 * WINDOW
"""Answers after which another judge is no news."""
KNOWN = 64
"""Models, providers and fingerprints that are remembered."""
UNSCORED = 0.1
SLOW, SLOW_SHARE, QUICK_S = 3.0, 0.3, 0.5
"""Multiple of the median latency of the start, how many answers may take longer, and the seconds within which none is
slow: where a judge takes milliseconds, several times that is the load of the machine."""
JUMP, JUMP_SPREAD, JUMP_SURE = 0.2, 0.1, 6.0
"""Jumps of the mean score and of the spread among siblings that are said, and in standard errors."""
BEFORE = 4
"""Rounds that a jump is measured against."""
LEAST_GROUPS = 8
LATE_ROUNDS = 8
"""Rounds in a row of earlier steps that are taken for late batches; with more, the run has gone back to them."""


class JudgeChanged(Signal):
    """Another model, provider or fingerprint than at the start: a fact, said at once."""

    name = "judge_changed"
    enough = BASELINE

    def __init__(self) -> None:
        self._known: set[tuple[str, str]] = set()
        self._change: tuple[str, str, Observation] | None = None
        self._since = 0

    def observe(self, round_: Round) -> None:
        """One round."""
        learning = not self.ready
        for one in round_.samples:
            if one.value is None:
                continue
            self.looked_at += 1
            self._since += 1
            for what, text in (("model", one.model), ("provider", one.provider), ("fingerprint", one.fingerprint)):
                for name in text.split(","):
                    key = what, name.strip()
                    if not key[1] or key in self._known:
                        continue
                    if len(self._known) < KNOWN:
                        self._known.add(key)
                        if not learning:
                            self._change, self._since = (what, key[1], one), 0
        if self._since >= STEADY:
            self._change = None

    def finding(self) -> Finding | None:
        """What is new."""
        if self._change is None:
            return None
        what, name, seen = self._change
        return Finding(
            sentence=(
                f"Another judge answers than at the start: {what} {name[:80]!r}. Scores before and after may not be on "
                f"one scale ({self.looked_at:,} answers looked at)."
            ),
            evidence={"what": what, "name": name[:80]},
            samples=(shown_sample(seen),),
        )

    def measures(self) -> dict[str, float]:
        """Different models, providers and fingerprints so far."""
        return {"judge_changed": float(len(self._known))} if self.looked_at else {}


class Unscored(Signal):
    """More samples without a score than at the start."""

    name = "unscored"
    enough = BASELINE + 8

    def __init__(self, alpha: float) -> None:
        self._alpha = alpha
        self._baseline = Baseline(UNSCORED, BASELINE // 8, WINDOW // 8)
        self._last: deque[Observation] = deque(maxlen=3)

    def observe(self, round_: Round) -> None:
        """One round."""
        samples = round_.samples
        _add_by_eights(self._baseline, [one.value is None for one in samples])
        self.looked_at += len(samples)
        self._last.extend(one for one in samples if one.value is None)

    def finding(self) -> Finding | None:
        """The share has grown."""
        if not self._baseline.passed(self._alpha):
            return None
        now, then = self._baseline.now(), self._baseline.at_start
        return Finding(
            sentence=f"{percent(now)} of the latest samples were not scored; {percent(then)} at the start "
            f"({self.looked_at:,} samples looked at).",
            evidence={"now": now, "at_start": then, "log_evidence": self._baseline.log()},
            samples=tuple({**shown_sample(one), "unscored": one.unscored} for one in self._last),
        )

    def measures(self) -> dict[str, float]:
        """The share of the latest."""
        return {"unscored": self._baseline.now()} if self.looked_at else {}


class Latency(Signal):
    """Answers of the judge that take several times as long as at the start."""

    name = "latency"
    enough = BASELINE + 8

    def __init__(self, alpha: float) -> None:
        self._alpha = alpha
        self._start: list[float] = []
        self._recent: deque[float] = deque(maxlen=WINDOW)
        self._baseline = Baseline(SLOW_SHARE, 0, WINDOW // 8, at_start=0.0)
        self._median = 0.0

    def observe(self, round_: Round) -> None:
        """One round."""
        times = [one.latency_s for one in round_.samples if one.latency_s > 0]
        self.looked_at += len(times)
        if not self._median:
            self._start += times
            if len(self._start) >= BASELINE:
                self._median = median(self._start)
                self._start.clear()
            return
        self._recent.extend(times)
        slow = max(SLOW * self._median, QUICK_S)
        _add_by_eights(self._baseline, [one > slow for one in times])

    def finding(self) -> Finding | None:
        """It is slower."""
        if not self._baseline.passed(self._alpha):
            return None
        now = median(self._recent)
        return Finding(
            sentence=f"The judge takes {now:.2f} s for a typical answer; {self._median:.2f} s at the start "
            f"({self.looked_at:,} answers looked at).",
            evidence={"now_s": now, "at_start_s": self._median, "log_evidence": self._baseline.log()},
        )

    def measures(self) -> dict[str, float]:
        """The median of the latest, in seconds."""
        return {"latency": median(self._recent)} if self._recent else {}


class _Level:
    """A number of each group, whose mean in a round is compared with that of the rounds before.

    It has jumped if the next step is there, too: an evaluation in between may be on other prompts.
    """

    def __init__(self, least: float) -> None:
        """`least`: the jump that is said."""
        self._least = least
        self._jump: tuple[float, float, int] | None = None
        self._since = 0
        self._unconfirmed: tuple[int | None, bool] | None = None
        """The step of a jump that nothing has confirmed yet, and whether it went up."""
        self.before: deque[list[float]] = deque(maxlen=BEFORE)

    def add(self, numbers: list[float], step: int | None) -> None:
        """One round."""
        self._since += 1
        if self._since > BEFORE:
            self._jump = None
        if len(numbers) < LEAST_GROUPS:
            return
        earlier = [number for part in self.before for number in part]
        if len(self.before) == BEFORE:
            moved = fmean(numbers) - fmean(earlier)
            # One variance for both: eight groups may all be at the top by chance, and then have none of their own.
            variance = _pooled(numbers, earlier)
            error = math.sqrt(variance * (1 / len(numbers) + 1 / len(earlier)) + 1e-4)
            if abs(moved) >= self._least and abs(moved) > JUMP_SURE * error:
                before, self._unconfirmed = self._unconfirmed, (step, moved > 0)
                if before is None or before[1] != (moved > 0) or (step is not None and before[0] == step):
                    return
                self._jump, self._since = (fmean(earlier), fmean(numbers), len(numbers)), 0
                self.before.clear()
            self._unconfirmed = None
        self.before.append(numbers)

    def finding(self, what: str, looked_at: int) -> Finding | None:
        """The jump, for a few rounds."""
        if self._jump is None:
            return None
        then, now, groups = self._jump
        return Finding(
            sentence=f"The {what} jumped from {then:.2f} to {now:.2f}, and the next step is there, too "
            f"({groups} groups; {looked_at:,} answers looked at).",
            evidence={"before": then, "after": now, "groups": float(groups)},
        )


class Verdicts(Signal):
    """Scores that jump from one round to the next, or their spread: policies do not learn that fast."""

    name = "verdicts"

    def __init__(self) -> None:
        self._mean, self._spread = _Level(JUMP), _Level(JUMP_SPREAD)
        self._step, self._behind = -1, 0
        """The latest step, and how many rounds since were of earlier ones."""
        self._flat: deque[bool] = deque(maxlen=WINDOW // 8)
        self._top: deque[bool] = deque(maxlen=WINDOW)

    @property
    def ready(self) -> bool:
        """Whether there are rounds to compare with."""
        return len(self._mean.before) == BEFORE

    def observe(self, round_: Round) -> None:
        """One round: its groups' means and standard deviations against those of the rounds before."""
        self.looked_at += len(round_.items)
        self._top.extend(item.value >= 0.99 for item in round_.items)
        groups = [[item.value for item in group] for group in round_.groups]
        self._flat.extend(len(set(values)) == 1 for values in groups)
        if round_.step is not None:
            if round_.step < self._step:
                self._behind += 1
                if self._behind <= LATE_ROUNDS:
                    return  # one slow answer held the batch up: a jump back to it, and from it, is none of the judge's
                self._mean, self._spread = _Level(JUMP), _Level(JUMP_SPREAD)  # resumed from a checkpoint, or anew
            self._step, self._behind = round_.step, 0
        self._mean.add([fmean(values) for values in groups], round_.step)
        self._spread.add([pstdev(values) for values in groups], round_.step)

    def finding(self) -> Finding | None:
        """The jump of the mean; or of the spread, as where a judge gives all the same score from now on."""
        return self._mean.finding("mean score", self.looked_at) or self._spread.finding(
            "spread of scores among siblings (standard deviation)", self.looked_at
        )

    def measures(self) -> dict[str, float]:
        """The mean of the latest round; how many of the latest are at the top, and how many groups are flat."""
        if not self._top:
            return {}
        found = {"saturation": sum(self._top) / len(self._top)}
        if self._flat:
            found["flat"] = sum(self._flat) / len(self._flat)
        if self._mean.before:
            found["verdicts"] = fmean(self._mean.before[-1])
        return found


def _add_by_eights(baseline: Baseline, round_: Sequence[bool]) -> None:
    """The shares of a round's eights: requests that are under way together fail, and are slow, together."""
    baseline.restart()
    for start in range(0, len(round_), 8):
        part = round_[start : start + 8]
        baseline.add(sum(part) / len(part))


def _pooled(*parts: Sequence[float]) -> float:
    """The variance about each part's own mean."""
    squares = sum(pvariance(part) * len(part) for part in parts)
    return squares / (sum(map(len, parts)) - len(parts))
