"""kind = "score": an integer on a scale, reason before score. With `judge.expected`, the mean of the scale's levels by
their log-probabilities; on one scale for the whole run, as in `yes_no`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from referee.config import JudgeConfig
from referee.errors import ConfigError
from referee.judging.decision import ABOUT
from referee.judging.kind import Kind, Reader, forms_of, object_schema
from referee.judging.probability import AROUND_LEVEL, TOP_LOGPROBS, Scale, answer_token, mean_of
from referee.judging.read import given, integer, scaled, whole
from referee.judging.template import criteria_of, shipped, shipped_replies
from referee.records import Ask, Query, Reason, Reply, TokenChoice, Unscored, Verdict

LONGEST_ENUM = 100
"""Scales with more steps are declared by their ends: providers limit how many values an enum may list."""

_LEVELS_OF = {2: (0, 4), 3: (0, 2, 4), 4: (0, 1, 3, 4), 5: (0, 1, 2, 3, 4)}


def score(config: JudgeConfig) -> Kind:
    """The judge kind for this scale."""
    low, high = config.low, config.high
    read: Reader = partial(_read, low, high)
    if config.expected:
        read = partial(_read_mean, low, high, Scale(1 + config.ask_again))
    number, values = on_scale(low, high), scale_values(config)
    top = TOP_LOGPROBS if config.expected else 0
    return Kind(
        name="score/1",
        template=shipped("score"),
        values=values,
        replies=shipped_replies("score"),
        sampling=forms_of(config, object_schema("score", number), top),
        facets=(("scale", f"{low}..{high}"), *((("expected", "mean"),) if config.expected else ())),
        lowest=float(low),
        read=read,
        queries=(Query("score", f"{ABOUT} how good is it?\n{values['criteria']}", described(low, high)),),
        decided=partial(_decided, low, high),
    )


def scale_values(config: JudgeConfig) -> dict[str, str]:
    """What the placeholders of a judge with a scale stand for."""
    low, high = config.low, config.high
    return {
        "criteria": criteria_of(config, "score"),
        "low": str(low),
        "high": str(high),
        "levels": levels(low, high),
    }


def on_scale(low: int, high: int) -> dict[str, object]:
    """The JSON schema of a number on the scale."""
    if low >= high:
        raise ConfigError(f"judge.low: low ({low}) must be below high ({high}).", setting="judge.low")
    if high - low < LONGEST_ENUM:
        return {"type": "integer", "enum": list(range(low, high + 1))}
    return {"type": "integer", "minimum": low, "maximum": high}


def levels(low: int, high: int) -> str:
    """What up to five levels of the scale mean, evenly spaced, one per line."""
    words = shipped("score_levels").splitlines()
    count = min(len(words), high - low + 1)
    steps = [low + (high - low) * step // (count - 1) for step in range(count)]
    return "\n".join(f"{step}: {words[which]}" for step, which in zip(steps, _LEVELS_OF[count], strict=True))


def described(low: int, high: int) -> tuple[str, ...]:
    """What each level of the scale means, for a model that sees nothing else of it. Long scales are refused in the
    configuration."""
    meant = shipped("score_levels").splitlines()
    found = []
    for number in range(low, min(high, low + LONGEST_ENUM) + 1):
        place, rest = divmod((number - low) * (len(meant) - 1), high - low)
        words = meant[place] if not rest else f"better than: {meant[place]} Not yet: {meant[place + 1]}"
        found.append(f"{number} on a scale of {low} to {high}: {words}")
    return tuple(found)


def _read(low: int, high: int, said: str, request: Ask, _: Reply) -> Verdict | Unscored:
    found = given(said, request, "score")
    if isinstance(found, Unscored):
        return found
    words, value, how, otherwise = found
    number = integer(value) if how == "tag" else whole(value)
    if number is None:
        return Unscored(reason=otherwise, detail="the score is not an integer")
    return scaled(number, low, high, words, how)


def _read_mean(low: int, high: int, scale: Scale, said: str, request: Ask, reply: Reply) -> Verdict | Unscored:
    found = _read(low, high, said, request, reply)
    if isinstance(found, Unscored):
        return found
    ending = f"</verdict-{request.nonce}>" if request.sampling.schema is None else "}"
    place = answer_token(reply.choices, f"{found.score:g}", AROUND_LEVEL, ending)
    scale.saw(place is not None)
    if scale.words:
        return found
    if place is None:
        detail = "the reply lacks usable log-probabilities, and a level is on another scale than the mean of all levels"
        return Unscored(reason=Reason.SCHEMA, detail=detail)
    return _mean(place, {str(level): float(level) for level in range(low, high + 1)}, found.reason)


def _decided(low: int, high: int, places: Sequence[TokenChoice]) -> Verdict | Unscored:
    return _mean(places[0], {str(level - low): float(level) for level in range(low, high + 1)}, "")


def _mean(place: TokenChoice, levels: Mapping[str, float], reason: str) -> Verdict | Unscored:
    likely = mean_of(place, levels)
    if isinstance(likely, Unscored):
        return likely
    low, high = min(levels.values()), max(levels.values())
    return Verdict(
        score=likely.mean,
        value=(likely.mean - low) / (high - low),
        reason=reason,
        how="logprob",
        uncertainty=likely.deviation / (high - low),
    )
