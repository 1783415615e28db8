"""kind = "yes_no": one question, answered by one word; the score is P(yes) where log-probabilities are given.

Both forms ask for the word: a JSON schema would move the answer's token and gain nothing, since a word is read as
strictly. A word that leaves less than `COVERAGE` of the probability to yes and no together is ambiguous, not a verdict.

P(yes) = 0.6 beside a bare 1 in one group would reward the reply that lacks its log-probabilities. So a judge is on one
scale: with the first reply that has them every later one must have them, or it is Unscored and asked again. An endpoint
that does not give them is recognised by its first replies: when 1 + `ask_again` of them lack them and none has them,
the word is the score from then on, 1 or 0, with how = "tag". One sample alone is asked that often, so none is lost.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import partial

from referee.config import JudgeConfig
from referee.judging.decision import ABOUT, likeliest
from referee.judging.kind import Kind, sampling_for
from referee.judging.probability import MARKS, TOP_LOGPROBS, Scale, answer_token, weighed
from referee.judging.read import ended
from referee.judging.template import criteria_of, shipped
from referee.records import Ask, Query, Reason, Reply, TokenChoice, Unscored, Verdict

MAX_TOKENS = 16
"""Room for one word, quotes and a full stop. A judge that thinks aloud needs kind = "score" with low = 0, high = 1."""
_LABEL = re.compile(r"\b(?:yes|no)\b")


def yes_no(config: JudgeConfig) -> Kind:
    """The judge kind for this question."""
    sampling = sampling_for(config, min(config.max_tokens, MAX_TOKENS), top_logprobs=TOP_LOGPROBS)
    question, reply = criteria_of(config, "yes_no"), shipped("yes_no_reply")
    return Kind(
        name="yes_no/2",
        template=shipped("yes_no"),
        values={"criteria": question},
        replies={"schema": reply, "text": reply},
        sampling={"schema": sampling, "text": sampling},
        read=partial(_read, Scale(1 + config.ask_again)),
        queries=(Query("answer", f"{ABOUT} {question}"),),
        decided=_decided,
    )


def _decided(places: Sequence[TokenChoice]) -> Verdict | Unscored:
    return weighed(places[0], likeliest(places[0]))


def _read(scale: Scale, said: str, request: Ask, reply: Reply) -> Verdict | Unscored:
    word = said.strip(MARKS).lower()
    if word not in ("yes", "no"):
        if len(_LABEL.findall(word)) > 1:
            return Unscored(reason=Reason.AMBIGUOUS, detail="the reply says yes or no more than once")
        return Unscored(reason=Reason.NO_VERDICT, detail="the reply is not the one word yes or no")
    unfinished = ended(request, reply)
    if unfinished is not None:
        return unfinished
    place = answer_token(reply.choices, word)
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
    return weighed(place, word)
