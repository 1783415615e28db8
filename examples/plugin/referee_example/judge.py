"""kind = "safe_score": how good is an answer, and does it keep a rule? Breaking the rule costs the whole score."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from referee import ConfigError, Sample, Unscored, Verdict
from referee.config import JudgeConfig
from referee.judging import KINDS, Deliberation, Form, Judge, JudgeFactory, Question, together
from referee.records import Part


class Options(Struct, frozen=True, forbid_unknown_fields=True):
    """`[judge] options`."""

    rule: str
    """A question that a good answer makes a judge say yes to."""
    threshold: float = 0.5
    """Least P(yes)."""


class SafeScore:
    """Asks both questions side by side, so that a sample takes no longer than one."""

    unit: Literal["sample"] = "sample"

    def __init__(self, quality: Judge, rule: Judge, threshold: float, lowest: float) -> None:
        self._quality = quality
        self._rule = rule
        self._threshold = threshold
        self._lowest = lowest

    def deliberate(self, samples: Sequence[Sample], form: Form) -> Deliberation:
        """Without an answer to either question there is no verdict: half of one would be on another scale."""
        questions = [self._quality.deliberate(samples, form), self._rule.deliberate(samples, form)]
        quality, kept = yield from together(questions)
        if isinstance(quality, Unscored) or quality.how == "gate":
            return [quality]
        if isinstance(kept, Unscored):
            return [kept]
        parts = (Part(name="quality", verdict=quality), Part(name="rule", verdict=kept))
        if kept.value >= self._threshold:
            return [replace(quality, how="terms", parts=parts)]
        reason = f"the rule is broken (P(yes) = {kept.value:.2f})"
        return [Verdict(score=self._lowest, value=0.0, reason=reason, how="terms", parts=parts)]


def make(config: JudgeConfig, question: Question) -> SafeScore:
    """The judge of one configuration."""
    try:
        options = msgspec.convert(config.options, Options)
    except msgspec.ValidationError as error:
        raise ConfigError(f"judge.options: {error}.", setting="judge.options") from None
    quality = question(KINDS["score"](config))
    rule = question(KINDS["yes_no"](replace(config, criteria=options.rule)))
    return SafeScore(quality, rule, options.threshold, float(config.low))


SAFE_SCORE = JudgeFactory(make)
