"""P(yes) from a reply's log-probabilities: where the answer's token is, what yes and no hold there, and on which scale
a judge's scores are.
"""

from __future__ import annotations

import math
import re

from referee.records import Reason, TokenChoice, Unscored, Verdict

COVERAGE = 0.9
"""The least share of probability that yes and no must hold together."""
TOP_LOGPROBS = 20
"""The most that providers give: spellings of yes and no come in many cases and spacings."""
ROUNDING = 0.01
"""Servers round log-probabilities; a sum this far above 1 is still a distribution."""
MARKS = " \t\r\n.,!*_`\"'“”"
"""What may stand around a word that is the whole answer."""

_PADDING = " \t\r\n▁Ġ"
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


def weighed(place: TokenChoice, word: str) -> Verdict | Unscored:
    mass = {"yes": 0.0, "no": 0.0}
    for token, logprob in dict(place.top).items():
        label = _label(token)
        if label in mass:
            if not logprob <= ROUNDING:
                return Unscored(reason=Reason.SCHEMA, detail="a log-probability is above 0 or not a number")
            mass[label] += math.exp(logprob)
    total = mass["yes"] + mass["no"]
    if total > 1 + ROUNDING:
        return Unscored(reason=Reason.SCHEMA, detail="the probabilities of yes and no add up to more than 1")
    if total < COVERAGE:
        detail = f"yes and no hold {total:.2f} of the probability together; {COVERAGE} is needed"
        return Unscored(reason=Reason.AMBIGUOUS, detail=detail)
    p = mass["yes"] / total
    entropy = -sum(q * math.log(q) for q in (p, 1 - p) if q > 0)
    return Verdict(score=p, value=p, reason=word, how="logprob", uncertainty=entropy)


def answer_token(choices: tuple[TokenChoice, ...], word: str, marks: str = MARKS) -> TokenChoice | None:
    """The token that is the answer: the last one, with nothing after it but `marks` and end-of-turn tokens.

    None if the word is spread over several tokens, or has no log-probability there that is a number.
    """
    for place in reversed(choices):
        if _label(place.token) == word:
            return place if any(_label(token) == word and not math.isnan(p) for token, p in place.top) else None
        if _END_TOKEN.sub("", place.token).strip(marks):
            return None
    return None


def _label(token: str) -> str:
    return token.strip(_PADDING).lower()
