"""What a judge is, and what one question of it is made of: texts, sampling, reader. Data and protocols only;
`registry` puts judges together."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Literal, Protocol

from msgspec import Struct

from referee.config import JudgeConfig
from referee.records import Ask, Query, Reply, Sample, Sampling, TokenChoice, Unscored, Verdict

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


class Kind(Struct, frozen=True):
    """One kind of judge, made for one configuration."""

    name: str
    """With the version of its reader: a change in reading must not find old verdicts in a cache."""
    template: str
    """What is asked, as in `referee docs judging`; judge.prompt_file takes its place."""
    needs: tuple[str, ...]
    """Placeholders the template must have."""
    values: Mapping[str, str]
    """What the fixed placeholders stand for."""
    replies: Mapping[Form, str]
    """How the judge is told to answer; stands after the texts to judge."""
    sampling: Mapping[Form, Sampling]
    facets: tuple[tuple[str, str], ...]
    """What else of the configuration shapes the request or its reading, such as the scale. Part of the cache key."""
    lowest: float
    """The score a gate gives."""
    read: Reader
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


def object_schema(name: str, value: dict[str, object]) -> dict[str, object]:
    """A JSON object of a reason and a value, in that order: the judge thinks before it decides."""
    return {
        "type": "object",
        "properties": {"reason": {"type": "string"}, name: value},
        "required": ["reason", name],
        "additionalProperties": False,
    }
