"""kind = "integer": a system prompt, the bare response as the user message, and a reply that is one integer.

The contract of many hand-written judges. There is no fence and no nonce, because the system prompt is the user's own
and says nothing of them; what protects the reading is that the whole reply must be the integer, so a verdict that the
judge merely quotes is never one. Asked for with a schema, the reply is {"score": 7} and nothing else; an endpoint that
takes the schema and ignores it may answer with the bare integer.
"""

from __future__ import annotations

from functools import partial

from referee.config import JudgeConfig
from referee.errors import ConfigError
from referee.judging.digest import digest
from referee.judging.kind import Kind, closed_schema, forms_of
from referee.judging.read import ended, json_object, scaled, whole
from referee.judging.read import integer as as_integer
from referee.judging.score import on_scale
from referee.judging.template import criteria_of, shipped
from referee.records import Ask, Reason, Reply, Unscored, Verdict


def integer(config: JudgeConfig) -> Kind:
    """The judge kind for this system prompt and scale."""
    low, high = config.low, config.high
    own = config.system_prompt.strip()
    if own and config.criteria.strip():
        raise ConfigError(
            "judge.criteria: judge.system_prompt is set and is the whole instruction; put the criteria into it.",
            setting="judge.criteria",
        )
    return Kind(
        name="integer/2",
        template=shipped("integer_own" if own else "integer"),
        values={
            "system_prompt": own,
            "criteria": criteria_of(config, "integer"),
            "low": str(low),
            "high": str(high),
        },
        replies={"schema": "", "text": ""},
        sampling=forms_of(config, closed_schema({"score": on_scale(low, high)})),
        facets=(("scale", f"{low}..{high}"), ("system_prompt", digest(own))),
        lowest=float(low),
        read=partial(_read, low, high),
        bare=True,
    )


def _read(low: int, high: int, said: str, request: Ask, reply: Reply) -> Verdict | Unscored:
    number = as_integer(said)
    if number is not None:
        return ended(request, reply) or scaled(number, low, high, "", "integer")
    if request.sampling.schema is None:
        return Unscored(reason=Reason.NO_VERDICT, detail="the reply is not one integer")
    value = json_object(said)
    if isinstance(value, Unscored):
        return value
    if value.keys() != {"score"}:
        return Unscored(reason=Reason.SCHEMA, detail="the JSON object must hold `score` and nothing else")
    number = whole(value["score"])
    if number is None:
        return Unscored(reason=Reason.SCHEMA, detail="`score` is not an integer")
    return scaled(number, low, high, "", "schema")
