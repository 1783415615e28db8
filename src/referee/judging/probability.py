"""P(yes), or the mean of a scale's levels, from a reply's log-probabilities: where the answer's token is, what the
offered answers hold there, and on which scale a judge's scores are.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from referee.records import Reason, TokenChoice, Unscored, Verdict

COVERAGE = 0.9
"""The least share of probability that the offered answers must hold together."""
TOP_LOGPROBS = 20
"""The most that providers give: spellings of yes and no come in many cases and spacings."""
ROUNDING = 0.01
"""Servers round log-probabilities; a sum this far above 1 is still a distribution."""
MARKS = " \t\r\n.,!*_`\"'“”"
"""What may stand around a word that is the whole answer."""

_PADDING = " \t\r\n▁Ġ"
AROUND_WORD = str.maketrans("", "", MARKS)
AROUND_LEVEL = str.maketrans("", "", _PADDING + "Ċ*_`")
"""What may stand around the number of a level, beside the ending that is asked for."""
_LONGEST_ENDING = 200
"""Characters after an answer's token, those that do not count included."""
_END_TOKEN = re.compile(r"<[|｜][^<>]{1,64}[|｜]>|</s>|<end_of_turn>|<eos>")


class Scale:
    """What this judge's scores are: probabilities, words (1 or 0), or not known yet. Decided once."""

    __slots__ = ("_lacking", "_patience", "words")

    def __init__(self, patience: int) -> None:
        self._patience = patience
        self._lacking = 0
        self.words: bool | None = None

    def saw(self, probabilities: bool) -> None:
        """One reply with or without usable log-probabilities."""
        if self.words is None:
            self._lacking += not probabilities
            if probabilities or self._lacking >= self._patience:
                self.words = not probabilities


class Mean(NamedTuple):
    """Of the levels of a scale, by their probabilities."""

    mean: float
    deviation: float


def weighed(place: TokenChoice, word: str) -> Verdict | Unscored:
    """P(yes) at the token of the answer, `word`."""
    shares = _shares(place, ("yes", "no"), "yes and no")
    if isinstance(shares, Unscored):
        return shares
    p = shares["yes"]
    entropy = -sum(q * math.log(q) for q in (p, 1 - p) if q > 0)
    return Verdict(score=p, value=p, reason=word, how="logprob", uncertainty=entropy)


def mean_of(place: TokenChoice, levels: Mapping[str, float]) -> Mean | Unscored:
    """The mean of what the levels are worth, at the token of one of them."""
    shares = _shares(place, levels, "the levels of the scale")
    if isinstance(shares, Unscored):
        return shares
    mean = math.fsum(share * levels[level] for level, share in shares.items())
    return Mean(mean, math.sqrt(math.fsum(share * (levels[level] - mean) ** 2 for level, share in shares.items())))


def _shares(place: TokenChoice, labels: Iterable[str], words: str) -> dict[str, float] | Unscored:
    """The offered answers' shares of the probability that they hold together, over all spellings."""
    mass = dict.fromkeys(labels, 0.0)
    for token, logprob in dict(place.top).items():
        label = _label(token)
        if label in mass:
            if not logprob <= ROUNDING:
                return Unscored(reason=Reason.SCHEMA, detail="a log-probability is above 0 or not a number")
            mass[label] += math.exp(logprob)
    total = sum(mass.values())
    if total > 1 + ROUNDING:
        return Unscored(reason=Reason.SCHEMA, detail=f"the probabilities of {words} add up to more than 1")
    if total < COVERAGE:
        detail = f"{words} hold {total:.2f} of the probability together; {COVERAGE} is needed"
        return Unscored(reason=Reason.AMBIGUOUS, detail=detail)
    return {label: share / total for label, share in mass.items()}


def answer_token(
    choices: tuple[TokenChoice, ...], answer: str, around: dict[int, int | None] = AROUND_WORD, ending: str = ""
) -> TokenChoice | None:
    """The token that is the whole answer, with nothing after it but `ending`, `around` and end-of-turn tokens.

    None if there is none, as where the answer is spread over several tokens, or it has no log-probability there that is
    a number.
    """
    after = ""
    for place in reversed(choices):
        if _label(place.token) == answer and after.translate(around) == ending:
            return place if any(_label(token) == answer and not math.isnan(p) for token, p in place.top) else None
        after = _END_TOKEN.sub("", place.token) + after
        if len(after) > _LONGEST_ENDING:
            return None
    return None


def _label(token: str) -> str:
    return token.strip(_PADDING).lower()
