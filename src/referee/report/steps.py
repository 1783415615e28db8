"""What happened per training step: scores, rewards, cost, waiting. Fed with joined samples, gives StepRow."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from referee.ledger.lines import BatchLine, JudgeLine, RewardLine, VerdictLine
from referee.report.shape import Scale, StepRow
from referee.report.sums import mean

MOST_STEPS = 200
"""Rows at most; above it, neighbouring steps share one."""
FINE = 180
"""Scores are kept to this part of the scale: fine enough to tell the levels of any scale of up to 90 apart."""
BINS = 20
"""Bins for scores that are continuous."""

Step = int | None


class StepSums:
    """The running sums of one step; they can be merged."""

    def __init__(self) -> None:
        self.unscored: dict[str, int] = {}
        self.scores: dict[int, int] = {}
        self.scored = 0
        self.judged = self.low = self.high = 0
        """Verdicts of the judge itself, and those of them at either end of the scale."""
        self.total = self.squares = 0.0
        self.groups = self.flat = 0
        self.rewards = self.filled = 0
        self.reward = self.rule = self.judge = self.penalty = 0.0
        self.terms: dict[str, float] = {}
        self.cost = 0.0
        self.saved = {"cache": 0.0, "shared": 0.0}
        self.unpriced = {"cache": 0, "shared": 0}
        self.tokens = 0
        self.waited = 0.0
        self.took: float | None = None
        self.timed_wait = 0.0
        """Of `waited`, the part in steps whose duration is known."""

    def verdict(self, line: VerdictLine | JudgeLine) -> None:
        """Count one sample's end, by all judges or by one of them."""
        self.cost += line.cost
        self.tokens += line.tokens_in + line.tokens_out
        # Of several questions or judges, one may have been called and another answered by the cache.
        self.saved["shared" if line.origin == "shared" else "cache"] += line.saved
        if line.origin in self.unpriced:
            self.unpriced[line.origin] += not line.saved
        if line.value is None:
            self.unscored[line.unscored] = self.unscored.get(line.unscored, 0) + 1
            return
        self.scored += 1
        self.total += line.value
        self.squares += line.value * line.value
        self._at_the_ends(line.value, line.origin == "gate", 1)
        place = round(min(1.0, max(0.0, line.value)) * FINE)
        self.scores[place] = self.scores.get(place, 0) + 1

    def _at_the_ends(self, value: float, gated: bool, times: int) -> None:
        if not gated:
            self.judged += times
            self.low += times * (value <= 0.0)
            self.high += times * (value >= 1.0)

    def take_back(self, value: float | None, unscored: str, gated: bool) -> None:
        """Subtract a sample that ended like this; what it cost was spent."""
        if value is None:
            self.unscored[unscored] -= 1
            if not self.unscored[unscored]:
                del self.unscored[unscored]
            return
        self.scored -= 1
        self.total -= value
        self.squares -= value * value
        self._at_the_ends(value, gated, -1)
        self.scores[round(min(1.0, max(0.0, value)) * FINE)] -= 1

    def reward_of(self, line: RewardLine, times: int = 1) -> None:
        """Count one reward; `times` = -1 subtracts it."""
        if line.value is None:
            return
        if line.filled:
            self.filled += times
        else:
            self.rewards += times
            self.reward += times * line.value
            self.rule += times * line.rule
            self.judge += times * (line.judge or 0.0)
            for name, value in line.terms.items():
                self.terms[name] = self.terms.get(name, 0.0) + times * (value or 0.0)
            self.penalty += times * line.penalty

    def merge(self, other: StepSums) -> None:
        """Add all of another step."""
        for name, value in vars(other).items():
            mine = getattr(self, name)
            if isinstance(value, dict):
                for key, count in value.items():
                    mine[key] = mine.get(key, 0) + count
            elif name == "took":
                self.took = value if mine is None else mine if value is None else mine + value
            else:
                setattr(self, name, mine + value)

    def row(self, first: Step, last: Step, scale: Scale, call_cost: float) -> StepRow:
        """These sums as a row. `call_cost` stands for what is not known of verdicts that cost nothing."""
        rewards = self.rewards
        average = mean(self.total, self.scored)
        spread = None if average is None else math.sqrt(max(0.0, self.squares / self.scored - average * average))
        return StepRow(
            first=first,
            last=last,
            samples=self.scored + sum(self.unscored.values()),
            scored=self.scored,
            unscored=dict(sorted(self.unscored.items())),
            bins=binned(self.scores, scale),
            score_mean=average,
            score_std=spread,
            judged=self.judged,
            low_share=mean(self.low, self.judged),
            high_share=mean(self.high, self.judged),
            groups=self.groups,
            flat_groups=self.flat,
            rewards=rewards,
            reward_mean=mean(self.reward, rewards),
            rule_mean=mean(self.rule, rewards),
            judge_mean=mean(self.judge, rewards),
            terms={name: total / rewards for name, total in self.terms.items()} if rewards else {},
            penalty_mean=mean(self.penalty, rewards),
            filled=self.filled,
            cost=self.cost,
            saved_cache=self.saved["cache"] + self.unpriced["cache"] * call_cost,
            saved_shared=self.saved["shared"] + self.unpriced["shared"] * call_cost,
            tokens=self.tokens,
            waited_s=self.waited,
            wait_fraction=None if not self.took else min(1.0, self.timed_wait / self.took),
        )


def binned(scores: dict[int, int], scale: Scale) -> list[int]:
    """Counts per bin, from scores kept in parts of FINE."""
    bins = [0] * (scale.levels or BINS)
    for place, count in scores.items():
        if scale.levels:
            bins[round(place / FINE * (scale.levels - 1))] += count
        else:
            bins[min(place * BINS // FINE, BINS - 1)] += count
    return bins


class Waits:
    """When steps began and how long the trainer was blocked in each, by run."""

    def __init__(self) -> None:
        self._spans: dict[str, dict[Step, list[float]]] = {}

    def add(self, line: BatchLine, run: str) -> None:
        """One collected batch."""
        ended = max(line.wall, line.finished)
        began = line.submitted or ended
        span = self._spans.setdefault(run, {}).setdefault(line.step, [began, ended, 0.0])
        span[0], span[1], span[2] = min(span[0], began), max(span[1], ended), span[2] + line.waited_s

    def give(self, steps: dict[Step, StepSums]) -> None:
        """Put waits and durations into the steps. A run's last step has no end; a run of one step ends with it."""
        for spans in self._spans.values():
            ordered = sorted(spans.items(), key=lambda item: item[1][0])
            for place, (step, (began, ended, waited)) in enumerate(ordered):
                sums = steps.setdefault(step, StepSums())
                sums.waited += waited
                if place + 1 < len(ordered):
                    took = ordered[place + 1][1][0] - began
                elif place == 0:
                    took = ended - began
                else:
                    continue
                sums.took = (sums.took or 0.0) + took
                sums.timed_wait += waited


def step_rows(steps: dict[Step, StepSums], scale: Scale, call_cost: float, most: int = MOST_STEPS) -> list[StepRow]:
    """Rows in order of steps, at most `most` of them; samples without a step come first. A batch of several steps is
    without one, and so is what was waited for it: that alone makes no row beside steps that have a name."""
    named = sorted(step for step in steps if step is not None)
    width = max(1, math.ceil(len(named) / most))
    nameless = steps.get(None)
    shown = nameless is not None and (nameless.scored or nameless.unscored or not named)
    rows = [_merged([None], steps, scale, call_cost)] if shown else []
    return rows + [_merged(named[at : at + width], steps, scale, call_cost) for at in range(0, len(named), width)]


def _merged(names: Sequence[Step], steps: dict[Step, StepSums], scale: Scale, call_cost: float) -> StepRow:
    sums = steps[names[0]]
    if len(names) > 1:
        sums = StepSums()
        for name in names:
            sums.merge(steps[name])
    return sums.row(names[0], names[-1], scale, call_cost)


def copied(steps: Iterable[tuple[Step, StepSums]]) -> dict[Step, StepSums]:
    """The same sums again, to be added to without touching the first."""
    found: dict[Step, StepSums] = {}
    for step, sums in steps:
        found[step] = StepSums()
        found[step].merge(sums)
    return found
