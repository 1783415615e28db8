"""Replies about several responses, which are known to the judge by labels. Strict: every label exactly once, with a
score on the scale, or nothing of the reply counts.

A verdict is cached for longer than its labels are valid, so what is returned is by place.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

from referee.judging.prompt_builder import LABEL_LETTERS
from referee.judging.read import fields, integer, json_object, kept, scaled, tagged, whole
from referee.records import Ask, How, Part, Reason, Unscored, Verdict

TIE = "tie"
_PAIR = re.compile(rf"([A-Z]{{{LABEL_LETTERS}}})\s*=\s*(\S+)", re.ASCII)
_LINE = re.compile(
    rf"^[ \t*_`-]*(?:Response )?([A-Z]{{{LABEL_LETTERS}}})[*_`]*[ \t]*[:.)][ \t]*(.*)$", re.ASCII | re.MULTILINE
)


class Given(NamedTuple):
    """What a reply says of one response."""

    label: str
    words: str
    number: int | None
    """None: it is no integer."""


def score_each(labels: Sequence[str], low: int, high: int, said: str, request: Ask) -> Verdict | Unscored:
    """A verdict for each label, as the parts of one, in the order of `labels`. Its own score is 0."""
    in_text = request.sampling.schema is None
    how: How = "tag" if in_text else "schema"
    otherwise = Reason.NO_VERDICT if in_text else Reason.SCHEMA
    given = _from_tag(said, request.nonce) if in_text else _from_json(said)
    if isinstance(given, Unscored):
        return given
    found = {one.label: one for one in given}
    if len(found) < len(given):
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


def better_of(labels: Sequence[str], said: str, request: Ask) -> Verdict | Unscored:
    """Which of two is better: value 1 the first that was shown, 0 the second, 0.5 neither."""
    in_text = request.sampling.schema is None
    how: How = "tag" if in_text else "schema"
    found = tagged(said, request.nonce) if in_text else fields(said, "verdict")
    if isinstance(found, Unscored):
        return found
    words, word = found
    if word == TIE or (in_text and word.lower() == TIE):
        value = 0.5
    elif word in labels:
        value = float(word == labels[0])
    else:
        otherwise = Reason.NO_VERDICT if in_text else Reason.SCHEMA
        return Unscored(reason=otherwise, detail="the verdict is neither one of the two labels nor tie")
    return Verdict(score=value, value=value, reason=kept(_placed(words, labels)), how=how)


def _placed(words: str, labels: Sequence[str]) -> str:
    """The judge's words with places for labels, which mean nothing to a reader and are others in the next run."""
    for place, label in enumerate(labels, 1):
        words = words.replace(label, f"[place {place}]")
    return words


def _from_json(said: str) -> list[Given] | Unscored:
    value = json_object(said)
    if isinstance(value, Unscored):
        return value
    items = value.get("responses")
    if value.keys() != {"responses"} or not isinstance(items, list):
        return Unscored(reason=Reason.SCHEMA, detail="the JSON object must hold the list `responses`, nothing else")
    if not all(map(_is_given, items)):
        detail = "each response must hold the texts `label` and `reason`, and `score`, nothing else"
        return Unscored(reason=Reason.SCHEMA, detail=detail)
    return [Given(item["label"], item["reason"], whole(item["score"])) for item in items]


def _is_given(item: Any) -> bool:
    return (
        isinstance(item, dict)
        and item.keys() == {"label", "reason", "score"}
        and isinstance(item["label"], str)
        and isinstance(item["reason"], str)
    )


def _from_tag(said: str, nonce: str) -> list[Given] | Unscored:
    found = tagged(said, nonce)
    if isinstance(found, Unscored):
        return found
    words, inside = found
    reasons = {match[1]: match[2] for match in _LINE.finditer(words)}
    pieces = [piece.strip() for piece in inside.replace("\n", ";").split(";")]
    pairs = [_PAIR.fullmatch(piece) for piece in pieces if piece]
    if not all(pairs):
        return Unscored(reason=Reason.NO_VERDICT, detail="the verdict tag does not hold pairs such as LABEL=7")
    return [Given(pair[1], reasons.get(pair[1], ""), integer(pair[2])) for pair in pairs if pair is not None]
