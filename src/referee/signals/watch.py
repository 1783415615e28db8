"""The watch over a run: feeds every signal, and turns what they find into alarms that begin, grow and end.

A pure state machine of bounded memory. The false-alarm rate of a run is divided over the signals that test.
"""

from __future__ import annotations

import functools
import logging
import math
from collections.abc import Callable, Sequence
from typing import TypeVar

from referee.signals.alarm import ADVICE, Alarm, Level
from referee.signals.canaries import Canaries
from referee.signals.divergence import Divergence, Rules, criteria_of
from referee.signals.judge_drift import JudgeChanged, Latency, Unscored, Verdicts
from referee.signals.observations import AuditAnswer, Observation
from referee.signals.phrases import Phrases
from referee.signals.probing import Fixed, Probes
from referee.signals.relations import Overlap, Relation, length_of, sameness_of, style_of
from referee.signals.rounds import LEAST, Round, pieces
from referee.signals.shadow import Shadow
from referee.signals.signal import Signal

log = logging.getLogger("referee.audit")

T = TypeVar("T")

CRITICAL = 0.25
"""Share of the latest answers from which an alarm is critical."""
QUIET = 512
"""Answers for which a finding must be gone until its alarm is over."""
MENTION = "pass every criterion that asks for something to be there"
TOP = "score 0.9 or more"
WEIGHTS = {
    "phrase": 0.16,
    "length": 0.1,
    "style": 0.08,
    "overlap": 0.05,
    "variety": 0.05,
    "saturation": 0.05,
    "criteria": 0.22,
    "canaries": 0.08,
    "shadow": 0.03,
    "exploitation": 0.08,
    "probes": 0.05,
    "fixed": 0.03,
    "unscored": 0.01,
    "latency": 0.01,
}
"""Parts of the false-alarm rate, by how often a signal is the first to tell (bench/audit.py). The sum is 1."""
RATE = 0.05
"""Probability of any false alarm in a run, between two announcements. Smaller: later alarms."""


class Watch:
    """One for each run and process."""

    def __init__(self, rate: float = RATE) -> None:
        """`rate`: of false alarms; several processes of a run divide it."""
        self._rate = rate
        self.samples = 0
        """Samples seen so far."""
        self.groups = 0
        """Groups of siblings among them."""
        self.step: int | None = None
        """The latest step seen."""
        self._waiting: list[Observation] = []
        self._open: dict[str, Level] = {}
        self._quiet: dict[str, float] = {}
        """Of open alarms whose finding is gone: how many samples were seen then."""
        self._begin()

    def _begin(self) -> None:
        rate = {name: part * self._rate for name, part in WEIGHTS.items()}
        self.signals: list[Signal] = [
            Phrases(rate["phrase"]),
            Relation("length", rate["length"], length_of, ("Longer", "length")),
            Relation("style", rate["style"], style_of, ("More formatted", "the number of marked lines")),
            Relation("variety", rate["variety"], sameness_of, ("More repetitive", "repetition of words")),
            Relation("overlap", rate["overlap"], Overlap(), ("More uniform", "overlap between prompts")),
            Divergence("criteria", "criteria", rate["criteria"], criteria_of, (MENTION, "the share of other criteria")),
            Divergence("saturation", "rule", rate["saturation"], Rules(), (TOP, "the rule score")),
            JudgeChanged(),
            Unscored(rate["unscored"]),
            Latency(rate["latency"]),
            Verdicts(),
            Canaries(rate["canaries"]),
            Shadow(rate["shadow"], exploits=False),
            Shadow(rate["exploitation"], exploits=True),
            Probes(rate["probes"]),
            Fixed(rate["fixed"]),
        ]

    def observe(self, samples: Sequence[Observation]) -> list[Alarm]:
        """One finished batch, or a step's part of it."""
        self.samples += len(samples)
        self._waiting += samples
        if len(self._waiting) < LEAST:
            return []
        return self.finish()

    def finish(self) -> list[Alarm]:
        """Look at the samples that still wait for more: at a run's end there will be none."""
        waiting, self._waiting = self._waiting, []
        if waiting and all(one.step is not None for one in waiting):
            waiting.sort(key=lambda one: one.step or 0)
        alarms: list[Alarm] = []
        for piece in pieces(waiting) if waiting else ():
            round_ = Round(piece)
            self._at(round_.step)
            self.groups += len(round_.groups)
            for signal in list(self.signals):
                self._safely(signal, functools.partial(signal.observe, round_))
            alarms += self._alarms()
        return alarms

    def observe_answers(self, answers: Sequence[AuditAnswer]) -> list[Alarm]:
        """Answers to the audit's own questions, one round of them or a part of it."""
        if not self.samples or self.step is None:  # a record's answers may be ahead of its batches
            for answer in answers:
                self._at(answer.step)
        for signal in list(self.signals):
            self._safely(signal, functools.partial(signal.observe_answers, answers))
        return self._alarms()

    def announce(self) -> None:
        """A change on purpose: baselines are learned anew. Alarms that are open end with the next look."""
        self._waiting.clear()
        self._quiet = dict.fromkeys(self._open, -math.inf)
        self._begin()

    def measures(self) -> dict[str, float]:
        """Current numbers by short name."""
        found: dict[str, float] = {}
        for signal in self.signals:
            found.update(signal.measures())
        return found

    def states(self) -> dict[str, tuple[str, int]]:
        """Of each signal: quiet, alarm or not enough, and how much it has looked at."""
        return {
            one.name: (
                "alarm" if one.name in self._open else "quiet" if one.ready else "not enough",
                one.looked_at,
            )
            for one in self.signals
        }

    def _safely(self, signal: Signal, call: Callable[[], T]) -> T | None:
        """What a signal says; one that fails is left out from then on, and the others are not."""
        try:
            return call()
        except Exception:
            log.exception("signal %s failed and is left out. Rewards and the other signals go on", signal.name)
            self.signals.remove(signal)
            return None

    def _at(self, step: int | None) -> None:
        if step is not None and (self.step is None or step > self.step):
            self.step = step

    def _alarms(self) -> list[Alarm]:
        looked = [(one, self._safely(one, one.finding)) for one in list(self.signals)]
        found = {one.name: (one, finding) for one, finding in looked if finding is not None}
        families = {one.family for one, _ in found.values() if one.family}
        for name in self._open:
            if name in found:
                self._quiet.pop(name, None)
            else:
                self._quiet.setdefault(name, self.samples)
        alarms = []
        for name in [name for name, since in self._quiet.items() if self.samples - since >= QUIET]:
            del self._quiet[name]
            alarms.append(Alarm(signal=name, level=self._open.pop(name), step=self.step, over=True))
        for name, (signal, finding) in found.items():
            agreed = bool(signal.family) and len(families) > 1
            level: Level = "critical" if finding.share > CRITICAL or agreed else "warning"
            if name not in self._open or (level == "critical" and self._open[name] == "warning"):
                self._open[name] = level
                alarms.append(
                    Alarm(
                        signal=name,
                        level=level,
                        step=self.step,
                        sentence=finding.sentence,
                        evidence=finding.evidence,
                        samples=finding.samples,
                        advice=ADVICE[name],
                    )
                )
        return alarms
