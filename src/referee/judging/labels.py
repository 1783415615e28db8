"""Replies about several responses, which are known to the judge by labels. Strict: every label exactly once, with a
score on the scale, or nothing of the reply counts.

A verdict is cached for longer than its labels are valid, so what is returned is by place.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from referee.judging.prompt_builder import LABEL_LETTERS
from referee.judging.read import given, integer, json_object, kept, pairs_in, scaled, whole
from referee.records import Ask, How, Part, Reason, Reply, Unscored, Verdict

TIE = "tie"


class Scored(NamedTuple):
    """What a reply says of one response."""

    label: str
    words: str
    number: int | None
    """None: it is no integer."""


def score_each(low: int, high: int, labels: Sequence[str], said: str, request: Ask, _: Reply) -> Verdict | Unscored:
    """A verdict for each label, as the parts of one, in the order of `labels`. Its own score is 0."""
    in_text = request.sampling.schema is None
    how: How = "tag" if in_text else "schema"
    otherwise = Reason.NO_VERDICT if in_text else Reason.SCHEMA
    scored = _from_tag(said, request.nonce) if in_text else _from_json(said)
    if isinstance(scored, Unscored):
        return scored
    found = {one.label: one for one in scored}
    if len(found) < len(scored):
        return Unscored(reason=Reason.AMBIGUOUS, detail="a label stands twice in the reply")
    if found.keys() != set(labels):
        missing, unknown = len(set(labels) - found.keys()), len(found.keys() - set(labels))
        detail = f"the reply must hold each of {len(labels)} labels once: {missing} missing, {unknown} unknown"
        return Unscored(reason=otherwise, detail=detail)
    parts: list[Part] = []
    for place, label in enumerate(labels, 1):
        number = found[label].number
        if number is None:
            return Unscored(reason=otherwise, detail="a score is not an integer")
        verdict = scaled(number, low, high, _placed(found[label].words, labels), how)
        if isinstance(verdict, Unscored):
            return verdict
        parts.append(Part(name=str(place), verdict=verdict))
    return Verdict(score=0.0, value=0.0, how="listwise", parts=tuple(parts))


def better_of(labels: Sequence[str], said: str, request: Ask, _: Reply) -> Verdict | Unscored:
    """Which of two is better: value 1 the first that was shown, 0 the second, 0.5 neither."""
    found = given(said, request, "verdict")
    if isinstance(found, Unscored):
        return found
    words, word, how, otherwise = found
    if word == TIE or (how == "tag" and word.lower() == TIE):
        value = 0.5
    elif word in labels:
        value = float(word == labels[0])
    else:
        return Unscored(reason=otherwise, detail="the verdict is neither one of the two labels nor tie")
    return Verdict(score=value, value=value, reason=kept(_placed(words, labels)), how=how)


def _placed(words: str, labels: Sequence[str]) -> str:
    """The judge's words with places for labels, which mean nothing to a reader and are others in the next run."""
    for place, label in enumerate(labels, 1):
        words = words.replace(label, f"[place {place}]")
    return words


def _from_json(said: str) -> list[Scored] | Unscored:
    value = json_object(said)
    if isinstance(value, Unscored):
        return value
    items = value.get("responses")
    if value.keys() != {"responses"} or not isinstance(items, list):
        return Unscored(reason=Reason.SCHEMA, detail="the JSON object must hold the list `responses`, nothing else")
    if not all(map(_is_given, items)):
        detail = "each response must hold the texts `label` and `reason`, and `score`, nothing else"
        return Unscored(reason=Reason.SCHEMA, detail=detail)
    return [Scored(item["label"], item["reason"], whole(item["score"])) for item in items]


def _is_given(item: Any) -> bool:
    return (
        isinstance(item, dict)
        and item.keys() == {"label", "reason", "score"}
        and isinstance(item["label"], str)
        and isinstance(item["reason"], str)
    )


def _from_tag(said: str, nonce: str) -> list[Scored] | Unscored:
    found = pairs_in(said, nonce, rf"[A-Z]{{{LABEL_LETTERS}}}", "LABEL=7")
    return found if isinstance(found, Unscored) else [Scored(name, why, integer(it)) for name, why, it in found]
