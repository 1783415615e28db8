"""Questions to a decision model: a state, questions about it, and the probabilities of their answers read strictly.

Every question must be answered exactly once, with a probability from 0 to 1 for each answer that was offered and for no
other, and they must add up to 1. What comes of them is for the judge's kind to say (`Kind.decided`), by the rules of
`probability`.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence

import msgspec
from msgspec.structs import replace

from referee.judging.digest import digest, measure
from referee.judging.kind import Decided
from referee.judging.read import json_object
from referee.records import Ask, Message, Query, Reason, Reply, Sampling, TokenChoice, Unscored, Verdict

ABOUT = "Of `response`, which answers `prompt`:"
"""How a question names the texts of the state."""
READER = "decision/1"
ANSWER_TOKENS = 32
"""What the answer to one question is billed for at most, about."""
ROUNDING = 0.01
"""Probabilities come with two decimals, so a sum of several may be so far from 1 for each of them."""
MOST_ROUNDING = 0.5
"""And no further than this, or the sum of many could be 0."""


def decision(
    name: str, texts: Mapping[str, str], queries: Sequence[Query], decided: Decided | None, again: int, pool: str
) -> Ask:
    """The request that asks `queries` about `texts`, which the guard has been over. `name`: the kind of judge."""
    assert decided is not None, "refused in the configuration"
    words = "\n\n".join([_in_words(query) for query in queries])
    facets = [("judge", f"{name} {READER}"), ("statements", digest(msgspec.json.encode(queries).decode()))]
    tokens = measure(words)[1]
    for field, text in texts.items():
        named, size = measure(text)
        facets.append((field, named))
        tokens += size
    return Ask(
        messages=(Message("system", words), *(Message(field, text) for field, text in texts.items())),
        sampling=_sampling(len(queries)),
        facets=tuple(facets),
        nonce="",
        prompt_tokens=tokens,
        read=functools.partial(_read, decided),
        again=again,
        pool=pool,
        queries=tuple(queries),
    )


def likeliest(place: TokenChoice) -> str:
    """The answer with the highest probability, the first of equals."""
    return max(place.top, key=lambda choice: choice[1])[0]


def without(place: TokenChoice, answer: str) -> TokenChoice:
    """The probabilities of the other answers, given that it is one of them."""
    kept = [(label, logprob) for label, logprob in place.top if label != answer]
    total = math.fsum(math.exp(logprob) for _, logprob in kept)
    return replace(place, top=tuple([(label, logprob - math.log(total)) for label, logprob in kept]))


@functools.cache
def _sampling(count: int) -> Sampling:
    return Sampling(max_tokens=ANSWER_TOKENS * count, temperature=None)


def _in_words(query: Query) -> str:
    levels = "".join([f"\n{number}: {text}" for number, text in enumerate(query.levels)])
    return f"{query.id}. {query.text}{levels}" + ("\nna: it cannot apply" if query.may_not_apply else "")


def _read(decided: Decided, request: Ask, reply: Reply) -> Verdict | Unscored:
    given = json_object(reply.text)
    if isinstance(given, Unscored):
        return given
    wanted = [query.id for query in request.queries]
    if given.keys() != set(wanted):
        missing = [name for name in wanted if name not in given]
        wrong = f"{', '.join(missing[:5])} missing" if missing else "an unknown one"
        return Unscored(reason=Reason.SCHEMA, detail=f"the reply must answer each question once: {wrong}")
    places = []
    for query in request.queries:
        place = _place(query, given[query.id])
        if isinstance(place, Unscored):
            return place
        places.append(place)
    return decided(places)


def _place(query: Query, answer: object) -> TokenChoice | Unscored:
    """The log-probabilities of the answers to one question."""
    answer = answer if isinstance(answer, dict) else {}
    plain = not query.levels and not query.may_not_apply
    shares: object = answer.get("probabilities")
    if plain:
        p = answer.get("noul")
        shares = {"yes": p, "no": 1 - p if isinstance(p, int | float) else None} if "noul" in answer else {}
    offered = [*(map(str, range(len(query.levels))) if query.levels else ("yes", "no"))]
    offered += ["na"] if query.may_not_apply else []
    if not isinstance(shares, dict) or shares.keys() != set(offered):
        return Unscored(reason=Reason.SCHEMA, detail=f"{query.id}: no probability for each of {', '.join(offered)}")
    if not all(map(_is_share, shares.values())):
        return Unscored(reason=Reason.OUT_OF_RANGE, detail=f"{query.id}: a probability is not a number from 0 to 1")
    total = math.fsum(shares.values())
    if abs(total - 1) > min(ROUNDING * len(offered), MOST_ROUNDING):
        return Unscored(reason=Reason.SCHEMA, detail=f"{query.id}: the probabilities add up to {total:.2f}, not to 1")
    return TokenChoice(query.id, tuple([(label, _log(shares[label] / total)) for label in offered]))


def _is_share(number: object) -> bool:
    return isinstance(number, int | float) and not isinstance(number, bool) and 0 <= number <= 1


def _log(share: float) -> float:
    return math.log(share) if share else -math.inf
