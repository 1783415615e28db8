"""kind = "score": an integer on a scale, reason before score."""

from __future__ import annotations

from functools import partial

from referee.config import JudgeConfig
from referee.errors import ConfigError
from referee.judging.kind import Kind, object_schema, sampling_for
from referee.judging.read import fields, integer, scaled, tagged, whole
from referee.judging.template import shipped
from referee.records import Ask, Reason, Reply, Unscored, Verdict

TEMPLATE = shipped("score.txt")
CRITERIA = shipped("score_criteria.txt")
REPLY_SCHEMA = shipped("score_reply_schema.txt")
REPLY_TEXT = shipped("score_reply_text.txt")
LEVELS = tuple(shipped("score_levels.txt").splitlines())

LONGEST_ENUM = 100
"""Scales with more steps are declared by their ends: providers limit how many values an enum may list."""

_LEVELS_OF = {2: (0, 4), 3: (0, 2, 4), 4: (0, 1, 3, 4), 5: (0, 1, 2, 3, 4)}


def score(config: JudgeConfig) -> Kind:
    """The judge kind for this scale."""
    low, high = config.low, config.high
    if low >= high:
        raise ConfigError(f"judge.low: low ({low}) must be below high ({high}).", setting="judge.low")
    number: dict[str, object] = {"type": "integer"}
    if high - low < LONGEST_ENUM:
        number["enum"] = list(range(low, high + 1))
    else:
        number |= {"minimum": low, "maximum": high}
    return Kind(
        name="score/1",
        template=TEMPLATE,
        needs=("response",),
        values={
            "criteria": config.criteria.strip() or CRITERIA,
            "low": str(low),
            "high": str(high),
            "levels": levels(low, high),
        },
        replies={"schema": REPLY_SCHEMA, "text": REPLY_TEXT},
        sampling={
            "schema": sampling_for(config, config.max_tokens, object_schema("score", number)),
            "text": sampling_for(config, config.max_tokens),
        },
        facets=(("scale", f"{low}..{high}"),),
        lowest=float(low),
        read=partial(_read, low, high),
    )


def levels(low: int, high: int) -> str:
    """What up to five levels of the scale mean, evenly spaced, one per line."""
    count = min(len(LEVELS), high - low + 1)
    steps = [low + (high - low) * step // (count - 1) for step in range(count)]
    return "\n".join(f"{step}: {LEVELS[which]}" for step, which in zip(steps, _LEVELS_OF[count], strict=True))


def _read(low: int, high: int, said: str, request: Ask, _: Reply) -> Verdict | Unscored:
    if request.sampling.schema is None:
        found = tagged(said, request.nonce)
        if isinstance(found, Unscored):
            return found
        words, inside = found
        number = integer(inside)
        if number is None:
            return Unscored(reason=Reason.NO_VERDICT, detail="the verdict tag does not hold an integer")
        return scaled(number, low, high, words, "tag")
    given = fields(said, "score")
    if isinstance(given, Unscored):
        return given
    words, value = given
    number = whole(value)
    if number is None:
        return Unscored(reason=Reason.SCHEMA, detail="`score` is not an integer")
    return scaled(number, low, high, words, "schema")
