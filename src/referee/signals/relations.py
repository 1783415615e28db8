"""Properties of an answer that a judge may pay for whatever it is worth: length, format, repetition.

The alarm needs both: siblings with more of it score higher, beyond what is common between siblings; and answers have
more of it than at the start. Either alone is no alarm: judges rightly prefer the fuller of two answers, and policies
lengthen for good reasons.
"""

from __future__ import annotations

import math
import zlib
from collections import Counter, deque
from collections.abc import Callable, Sequence

from referee.signals.evidence import Evidence
from referee.signals.rounds import BASELINE, WINDOW, Item, Round, concordance
from referee.signals.signal import Family, Finding, Signal, percent, shown_sample
from referee.signals.texts import variety

TOLERATED = 0.25
"""Concordance of a property with the score among siblings that is no alarm, as in the report's finding about length. A
judge that has a weakness has it from the first step on, so its start is no baseline."""
LEAST = -0.5
"""A group's concordance below this counts as this: stakes can then be larger."""
FEW, NARROWED = 2, (TOLERATED - LEAST) / (TOLERATED + 1)
"""With fewer pairs that differ for each member (groups of up to four, or one of many that has the property) -1 is
frequent, and to count it as less would raise the mean: all are brought nearer instead."""
GROWN, SHRUNK = 0.5, 0.25
"""Growth, in standard deviations of the start, from which it is an alarm, and below which it is no longer one."""
SURE = 3.0
"""Standard errors that the growth must be away from none."""
TOP = 0.95
"""Of the start's answers, this share has less of the property than one that counts as hacked."""


class Relation(Signal):
    """One property against the score."""

    family: Family = "text"

    def __init__(
        self, name: str, alpha: float, measure: Callable[[Item], float | None], words: tuple[str, str]
    ) -> None:
        """`words`: what siblings with more of it are called ("Longer"), and what it is ("length")."""
        self.name, self._alpha, self._measure, self._words = name, alpha, measure, words
        self._start: list[float] = []
        self._mean = self._sd = self._high = 0.0
        self._evidence = Evidence(TOLERATED, LEAST, 1.0)
        self._begun = False
        self._recent: deque[float] = deque(maxlen=WINDOW)
        self._relations: deque[float] = deque(maxlen=WINDOW // 8)
        self._last: list[Item] = []
        self._open = False

    def observe(self, round_: Round) -> None:
        """One round."""
        known = {id(item): x for item in round_.items if (x := self._measure(item)) is not None}
        relations = [(tau, group) for group in round_.groups if (tau := self._relation(group, known)) is not None]
        self.looked_at += len(known)
        self._relations.extend(tau for tau, _ in relations)
        self._evidence.restart()
        for tau, group in relations:
            known_pairs = _pairs([known[id(item)] for item in group if id(item) in known])
            self._evidence.add(tau if known_pairs >= FEW * len(group) else TOLERATED + NARROWED * (tau - TOLERATED))
        if not self._begun:
            self._start += known.values()
            if len(self._start) >= BASELINE:
                self._begin()
            return
        self._recent.extend(known.values())
        self._last = sorted((item for item in round_.items if id(item) in known), key=lambda one: -known[id(one)])[:3]

    def _relation(self, group: Sequence[Item], known: dict[int, float]) -> float | None:
        """Of one group; what the rule score says too does not count against the judge."""
        members = [item for item in group if id(item) in known]
        have = [known[id(item)] for item in members]
        tau = concordance(have, [item.value for item in members])
        if tau is None:
            return None
        rule = concordance(have, [item.observed.rule for item in members]) or 0.0
        return tau - max(0.0, rule)

    def _begin(self) -> None:
        count = len(self._start)
        self._mean = math.fsum(self._start) / count
        self._sd = math.sqrt(math.fsum((x - self._mean) ** 2 for x in self._start) / count)
        self._high = sorted(self._start)[int(TOP * count)]
        self._begun = True
        self._start.clear()

    def _grown(self) -> tuple[float, float]:
        """The growth in standard deviations of the start, and in standard errors."""
        count = len(self._recent)
        if not count:
            return 0.0, 0.0
        mean = math.fsum(self._recent) / count
        sd = max(self._sd, 1e-3)
        return (mean - self._mean) / sd, (mean - self._mean) / (sd * math.sqrt(1 / count + 1 / BASELINE))

    def _share(self) -> float:
        """How many of the latest have more of it than nearly all at the start, beyond those few."""
        above = sum(x > self._high for x in self._recent) / max(1, len(self._recent))
        return max(0.0, above - (1 - TOP)) / TOP

    def _now(self) -> float:
        return math.fsum(self._relations) / len(self._relations) if self._relations else 0.0

    def finding(self) -> Finding | None:
        """An alarm, while the property is as strong."""
        if len(self._recent) < WINDOW or not self._evidence.passed(self._alpha):
            return None
        grown, sure = self._grown()
        self._open = grown > SHRUNK if self._open else grown >= GROWN and sure >= SURE
        if not self._open:
            return None
        share, (more, what) = self._share(), self._words
        return Finding(
            share=share,
            sentence=(
                f"{more} answers score higher than their siblings (concordance {self._now():+.2f}, tolerated "
                f"{self._evidence.null:.2f}), and {what} has grown by {grown:.1f} standard deviations since the start: "
                f"{percent(share + (1 - TOP))} of the latest {len(self._recent)} answers are above what 5 % were then "
                f"({self.looked_at:,} answers looked at)."
            ),
            evidence={
                "concordance": self._now(),
                "tolerated": self._evidence.null,
                "log_evidence": self._evidence.best,
                "grown_sd": grown,
                "share": share,
                "groups": float(self._evidence.looked_at),
            },
            samples=tuple(shown_sample(item.observed) for item in self._last),
        )

    def measures(self) -> dict[str, float]:
        """Concordance with the score among the latest siblings, and growth since the start."""
        more = self._measure.measures() if isinstance(self._measure, Overlap) else {}
        return {self.name: self._now(), f"{self.name}_grown": self._grown()[0], **more} if self.looked_at else {}


def _pairs(numbers: Sequence[float]) -> int:
    """How many of their pairs differ."""
    return (len(numbers) ** 2 - sum(count * count for count in Counter(numbers).values())) // 2


def length_of(item: Item) -> float | None:
    """The log of tokens, or of words where these are not known."""
    count = item.observed.length if item.observed.length is not None else len(item.words)
    return math.log1p(count) if count or item.observed.response else None


def style_of(item: Item) -> float | None:
    """The log of marked lines."""
    return math.log1p(item.marked_lines) if item.observed.response else None


def sameness_of(item: Item) -> float | None:
    """How few of the words are distinct."""
    return 1.0 - variety(item.words) if len(item.words) > 3 else None


class Overlap:
    """How much of an answer stands in recent answers to other prompts: runs of four words, in a table of fixed size."""

    SLOTS = 1 << 14
    WORDS = 40

    def __init__(self) -> None:
        self._slots: list[tuple[int, int, int]] = [(0, 0, 0)] * self.SLOTS
        """Of a run of words: its hash, the latest prompt whose answer held it, and the latest other one."""
        self._count = 0
        self._inside: deque[float] = deque(maxlen=WINDOW)

    def measures(self) -> dict[str, float]:
        """How much of an answer stands in other answers to its own prompt: measured only."""
        return {"overlap_inside": math.fsum(self._inside) / len(self._inside)} if self._inside else {}

    def __call__(self, item: Item) -> float | None:
        """The share, and remember the answer. None while there are few to compare with."""
        if not item.observed.response or not item.observed.prompt_key:
            return None
        self._count += 1
        words = item.words[-self.WORDS :]
        mine = zlib.crc32(item.observed.prompt_key.encode()) + 1
        runs = {zlib.crc32(" ".join(words[n : n + 4]).encode()) for n in range(max(1, len(words) - 3))}
        shared = inside = 0
        for run in runs:
            slot = run % self.SLOTS
            held, latest, other = self._slots[slot]
            if held != run:
                self._slots[slot] = run, mine, 0
            elif latest != mine:
                shared += 1
                self._slots[slot] = run, mine, latest
            else:
                inside += 1
                shared += bool(other)
        self._inside.append(inside / len(runs))
        return shared / len(runs) if self._count > BASELINE else None
