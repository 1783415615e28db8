"""What a judge is, and what one question of it is made of: texts, sampling, reader. Data and protocols only;
`registry` puts judges together."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Any, Literal, Protocol

from msgspec import Struct

from referee.config import JudgeConfig
from referee.records import Ask, Query, Reason, Reply, Sample, Sampling, TokenChoice, Unscored, Verdict

Form = Literal["schema", "text"]
Unit = Literal["sample", "group"]

Reader = Callable[[str, Ask, Reply], Verdict | Unscored]
"""Reads what the judge said (its own reasoning already stripped, refusals and cut replies already settled)."""


Decided = Callable[[Sequence[TokenChoice]], Verdict | Unscored]
"""Reads the probabilities that a decision model gave to the answers of each question, in their order."""

Deliberation = Generator[Sequence[Ask], Sequence[Verdict | Unscored], Sequence[Verdict | Unscored]]
"""Yields a round of questions, is sent their answers in the same order, and may ask more before it returns one verdict
for each of its samples, in their order."""


class Judge(Protocol):
    """What to ask about samples, and what the answers mean for them. Pure: no network, no clock, no chance. The same
    samples and the same answers give the same questions."""

    @property
    def unit(self) -> Unit:
        """Whether `deliberate` is given one sample, or all of a group."""
        ...

    def deliberate(self, samples: Sequence[Sample], form: Form) -> Deliberation:
        """Judge these. `form`: how replies are best asked for, as far as is known of the endpoints."""
        ...


def unread(said: str, request: Ask, reply: Reply) -> Verdict | Unscored:
    """The reader of a kind whose every question brings a reader of its own."""
    return Unscored(reason=Reason.CONFIG, detail="a reply to this question has no reader")


class Kind(Struct, frozen=True, kw_only=True):
    """One kind of judge, made for one configuration."""

    name: str
    """With the version of its reader: a change in reading must not find old verdicts in a cache."""
    template: str
    """What is asked, as in `referee docs judging`; judge.prompt_file takes its place."""
    needs: tuple[str, ...] = ("response",)
    """Placeholders the template must have."""
    values: Mapping[str, str]
    """What the fixed placeholders stand for."""
    replies: Mapping[Form, str]
    """How the judge is told to answer; stands after the texts to judge."""
    sampling: Mapping[Form, Sampling]
    facets: tuple[tuple[str, str], ...] = ()
    """What else of the configuration shapes the request or its reading, such as the scale. Part of the cache key."""
    lowest: float = 0.0
    """The score a gate gives."""
    read: Reader = unread
    bare: bool = False
    """The response is shown without fences and without rules about them."""
    trace: bool = False
    """Only the reasoning is shown, and gates, which look at the answer, do not apply."""
    queries: tuple[Query, ...] = ()
    """The same question for a decision model."""
    decided: Decided | None = None


Question = Callable[[Kind], Judge]
"""Makes the judge that asks one question about one sample, with everything that keeps it safe: template, fences, guard,
gates, strict reading, the text form, the endpoints to ask."""


class JudgeFactory(Struct, frozen=True):
    """What the name in judge.kind stands for: how such a judge is made, and what it judges."""

    make: Callable[[JudgeConfig, Question], Judge]
    """Called with the judge's settings, and with what makes questions. Raises ConfigError where a setting is wrong."""
    unit: Unit = "sample"
    """As in the judges it makes. Known without making one."""


def sampling_for(
    config: JudgeConfig, max_tokens: int, schema: dict[str, object] | None = None, top_logprobs: int = 0
) -> Sampling:
    """The configuration's temperature with this kind's reply length and shape."""
    temperature = None if config.temperature == "default" else config.temperature
    return Sampling(max_tokens=max_tokens, temperature=temperature, top_logprobs=top_logprobs, schema=schema)


def forms_of(config: JudgeConfig, schema: dict[str, Any], top_logprobs: int = 0) -> dict[Form, Sampling]:
    """The same with `judge.max_tokens`, for replies by this schema and for those in text."""
    most = config.max_tokens
    return {
        "schema": sampling_for(config, most, schema, top_logprobs),
        "text": sampling_for(config, most, None, top_logprobs),
    }


def object_schema(name: str, value: dict[str, object]) -> dict[str, object]:
    """A JSON object of a reason and a value, in that order: the judge thinks before it decides."""
    return closed_schema({"reason": {"type": "string"}, name: value})


def closed_schema(properties: dict[str, Any]) -> dict[str, Any]:
    """A JSON object of exactly these."""
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }
