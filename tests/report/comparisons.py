"""Comparisons made by hand, for tests of what is said of them."""

from __future__ import annotations

from typing import Any

from referee.judging.pairwise import FIRST, LOST, SECOND, TIED, WON
from referee.records import Part, Reason, Reward, Sample, Settled, Unscored, Verdict
from referee.report.versus import About
from referee.report.versus_pair import Comparison, compared
from referee.rollouts.pairs import AnswerPair, AnswerRow

NAMES = ("base", "tuned")
ABOUT = About(names=NAMES, judge="judge", kind="pairwise", by="comparison", both_orders=True)
SCORED = About(names=NAMES, judge="quality", kind="score", by="score")
WORDS = {"b": WON, "a": LOST, "": TIED}
VALUES = {"b": 1.0, "a": 0.0, "": 0.5}


def part(first: str, winner: str) -> Part:
    """What b's verdict says of one order."""
    verdict = Verdict(score=VALUES[winner], value=VALUES[winner], reason="[place 1] is clearer than [place 2]")
    return Part(name="other", verdict=verdict, text=FIRST if first == "b" else SECOND, label=WORDS[winner])


def reward(verdict: Verdict | Unscored) -> Reward:
    return Reward(index=0, id="", group="", value=None, settled=Settled(verdict=verdict))


def pair(number: int, a: str = "an answer", b: str = "another answer", ordinal: int = 0, **fields: Any) -> AnswerPair:
    """Two answers to prompt `number`."""
    both = [Sample(prompt=f"prompt {number}", response=text, id=f"{number}", **fields) for text in (a, b)]
    return AnswerPair(AnswerRow(number + 1, both[0]), AnswerRow(number + 1, both[1]), number, ordinal)


def asked(number: int, orders: str, columns: dict[str, str] | None = None, **texts: Any) -> Comparison:
    """A comparison of kind pairwise: who won with a first, and with b first; `-` is a tie, e.g. "bb" or "ab"."""
    winners = [winner.replace("-", "") for winner in orders]
    value = VALUES[winners[0]] if len(set(winners)) == 1 else 0.5
    parts = tuple(part(first, winner) for first, winner in zip("ab", winners, strict=False))
    mine = Verdict(score=value, value=value, reason="won 1", how="pairwise", parts=parts)
    theirs = Verdict(score=1 - value, value=1 - value, reason="won 1", how="pairwise")
    return compared(pair(number, **texts), (reward(theirs), reward(mine)), NAMES, columns or {}, False)


def unscored(number: int, reason: Reason = Reason.TIMEOUT) -> Comparison:
    """One without a verdict."""
    given = reward(Unscored(reason=reason, detail="no answer"))
    return compared(pair(number), (given, given), NAMES, {}, False)


def scored(number: int, a: float, b: float, how: Any = "tag") -> Comparison:
    """Each answer with a score of its own."""
    first, second = (reward(Verdict(score=10 * x, value=x, reason=f"{x}", how=how)) for x in (a, b))
    return compared(pair(number), (first, second), NAMES, {}, False)
