"""kind = "yes_no": one question, answered by one word; the score is P(yes) where log-probabilities are given.

Both forms ask for the word: a JSON schema would move the answer's token and gain nothing, since a word is read as
strictly. A word that leaves less than `COVERAGE` of the probability to yes and no together is ambiguous, not a verdict.

P(yes) = 0.6 beside a bare 1 in one group would reward the reply that lacks its log-probabilities. So a judge is on one
scale: with the first reply that has them every later one must have them, or it is Unscored and asked again. An endpoint
that does not give them is recognised by its first replies: when 1 + `ask_again` of them lack them and none has them,
the word is the score from then on, 1 or 0, with how = "tag". One sample alone is asked that often, so none is lost.
"""

from __future__ import annotations

import math
import re
from functools import partial

from referee.config import JudgeConfig
from referee.judging.kind import Kind, sampling_for
from referee.judging.read import ended
from referee.judging.template import shipped
from referee.records import Ask, Reason, Reply, TokenChoice, Unscored, Verdict

TEMPLATE = shipped("yes_no.txt")
QUESTION = shipped("yes_no_criteria.txt")
REPLY = shipped("yes_no_reply.txt")

COVERAGE = 0.9
"""The least share of probability that yes and no must hold together."""
MAX_TOKENS = 16
"""Room for one word, quotes and a full stop. A judge that thinks aloud needs kind = "score" with low = 0, high = 1."""
TOP_LOGPROBS = 20
"""The most that providers give: spellings of yes and no come in many cases and spacings."""
ROUNDING = 0.01
"""Servers round log-probabilities; a sum this far above 1 is still a distribution."""

_MARKS = " \t\r\n.,!*_`\"'“”"
_PADDING = " \t\r\n▁Ġ"
_LABEL = re.compile(r"\b(?:yes|no)\b")
_END_TOKEN = re.compile(r"<[|｜][^<>]{1,64}[|｜]>|</s>|<end_of_turn>|<eos>")


def yes_no(config: JudgeConfig) -> Kind:
    """The judge kind for this question."""
    sampling = sampling_for(config, min(config.max_tokens, MAX_TOKENS), top_logprobs=TOP_LOGPROBS)
    return Kind(
        name="yes_no/2",
        template=TEMPLATE,
        needs=("response",),
        values={"criteria": config.criteria.strip() or QUESTION},
        replies={"schema": REPLY, "text": REPLY},
        sampling={"schema": sampling, "text": sampling},
        facets=(),
        lowest=0.0,
        read=partial(_read, _Scale(1 + config.ask_again)),
    )


class _Scale:
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


def _read(scale: _Scale, said: str, request: Ask, reply: Reply) -> Verdict | Unscored:
    word = said.strip(_MARKS).lower()
    if word not in ("yes", "no"):
        if len(_LABEL.findall(word)) > 1:
            return Unscored(reason=Reason.AMBIGUOUS, detail="the reply says yes or no more than once")
        return Unscored(reason=Reason.NO_VERDICT, detail="the reply is not the one word yes or no")
    unfinished = ended(request, reply)
    if unfinished is not None:
        return unfinished
    place = _answer(reply.choices, word)
    scale.saw(place is not None)
    if scale.words:
        value = 1.0 if word == "yes" else 0.0
        return Verdict(score=value, value=value, reason=word, how="tag")
    if place is None:
        detail = (
            "the reply lacks usable log-probabilities, and a bare yes or no is on another scale than P(yes); if that "
            'happens often, use kind = "score" with low = 0 and high = 1'
        )
        return Unscored(reason=Reason.SCHEMA, detail=detail)
    return _weighed(place, word)


def _weighed(place: TokenChoice, word: str) -> Verdict | Unscored:
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


def _answer(choices: tuple[TokenChoice, ...], word: str) -> TokenChoice | None:
    """The token that is the answer: the last one, with nothing after it but marks and end-of-turn tokens.

    None if the word is spread over several tokens, or has no log-probability there that is a number.
    """
    for place in reversed(choices):
        if _label(place.token) == word:
            return place if any(_label(token) == word and not math.isnan(p) for token, p in place.top) else None
        if _END_TOKEN.sub("", place.token).strip(_MARKS):
            return None
    return None


def _label(token: str) -> str:
    return token.strip(_PADDING).lower()
