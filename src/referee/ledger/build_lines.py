"""Lines made of records: of a sample and its end, of a question, of a reward. Pure."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

from referee.ledger.lines import AskLine, Judged, JudgeLine, RewardLine, VerdictLine
from referee.records import COMPARED, Ask, Message, Reward, Sample, Settled, Unscored, Verdict
from referee.rollouts import more_of, plain, read_image

_NO_SAMPLE = Sample(prompt="", response="")


WITH_PARTS = frozenset({"rubric", "jury", "cascade", "repeat", "gate", *COMPARED})
"""Verdicts whose parts are recorded."""


def _parts(given: Verdict | Unscored, content: bool) -> list[dict[str, Any]]:
    """Criteria, jurors, answers, orders or comparisons, one by one."""
    how = given.how if isinstance(given, Verdict) else ""
    if how and how not in WITH_PARTS:
        return []
    rows = [part.row(how) for part in given.parts]
    return rows if content else [_without_words(row) for row in rows]


def _without_words(row: Mapping[str, Any]) -> dict[str, Any]:
    """How responses were shown is no content: comparisons, which have no weight, keep it."""
    left_out = ("text", "why") if "weight" in row else ("why",)
    kept = {name: value for name, value in row.items() if name not in left_out}
    if "parts" in kept:
        kept["parts"] = [_without_words(part) for part in kept["parts"]]
    return kept


def _system(request: Ask) -> str:
    first = request.messages[0]
    return _system_digest(first.content) if len(request.messages) > 1 and first.role == "system" else ""


@functools.lru_cache(maxsize=64)
def _system_digest(text: str) -> str:
    return digest(text)


def digest(text: str) -> str:
    """A short name for a text."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def verdict_line(
    sample: Sample,
    settled: Settled,
    *,
    seq: int = 0,
    wall: float = 0.0,
    batch: str = "",
    index: int = 0,
    request: Ask | None = None,
    saved: float | None = None,
    content: bool = False,
    team: str = "",
) -> VerdictLine:
    """The line for one settled sample. `content` keeps the texts themselves; without it only their digests are kept.

    `saved` is by default what `settled` says.
    """
    given, reply = settled.verdict, settled.reply
    verdict = given if isinstance(given, Verdict) else None
    missing = given if isinstance(given, Unscored) else None
    return VerdictLine(
        wall=wall,
        seq=seq,
        batch=batch,
        index=index,
        id=sample.id,
        group=sample.group,
        step=sample.step,
        team=team,
        origin=settled.origin,
        key=settled.key,
        endpoint=settled.endpoint,
        model=settled.model,
        provider=reply.provider if reply else "",
        fingerprint=reply.fingerprint if reply else "",
        request_id=reply.request_id if reply else "",
        score=verdict.score if verdict else None,
        value=verdict.value if verdict else None,
        why=verdict.reason if verdict else "",
        how=verdict.how if verdict else "",
        uncertainty=verdict.uncertainty if verdict else None,
        parts=_parts(given, content) if given.parts else [],
        unscored=missing.reason.value if missing else "",
        detail=missing.detail if missing else "",
        attempts=settled.attempts,
        sent=settled.sent,
        queued_s=settled.queued_s,
        latency_s=settled.latency_s,
        tokens_in=settled.tokens_in,
        tokens_out=settled.tokens_out,
        tokens_cached=settled.tokens_cached,
        tokens_cache_write=settled.tokens_cache_write,
        cost=settled.cost,
        saved=settled.saved if saved is None else saved,
        rule_score=sample.rule_score,
        length=sample.length,
        truncated=sample.truncated,
        prompt_digest="" if content else digest(plain(sample.prompt)),
        response_digest="" if content else digest(plain(sample.response)),
        prompt=plain(sample.prompt) if content else "",
        response=plain(sample.response) if content else "",
        reference=sample.reference if content else None,
        more=more_of(sample) if content and _has_more(sample) else {},
        system=_system(request) if content and request else "",
        asked=_asked(request.messages[-1]) if content and request else "",
        reply=reply.text if content and request and reply else "",
    )


def _asked(message: Message) -> str:
    """What was asked; of images, what they were."""
    if not message.media:
        return message.content
    images = [image for media in message.media if (image := read_image(media)) is not None]
    return "\n".join([*(f"[{image.name}]: {image.described}" for image in images), "", message.content])


def _has_more(sample: Sample) -> bool:
    """Most have not, and every sample is asked."""
    plain_text = type(sample.prompt) is type(sample.response) is str
    return not plain_text or bool(sample.rubric or sample.columns or sample.tools)


def judge_line(name: str, line: VerdictLine) -> JudgeLine:
    """The line of one of several judges, from what its verdict line would be."""
    return JudgeLine(judge=name, **{each: getattr(line, each) for each in Judged.__struct_fields__})


def ask_line(
    name: str,
    settled: Settled,
    *,
    wall: float,
    batch: str,
    indexes: Sequence[int],
    request: Ask,
    content: bool,
    team: str = "",
) -> AskLine:
    """The line of one question about these samples."""
    line = verdict_line(
        _NO_SAMPLE, settled, wall=wall, batch=batch, index=indexes[0], request=request, content=content, team=team
    )
    several = tuple(indexes) if len(indexes) > 1 else ()
    return AskLine(judge=name, indexes=several, **{each: getattr(line, each) for each in Judged.__struct_fields__})


def reward_line(
    reward: Reward, *, wall: float = 0.0, batch: str = "", step: int | None = None, team: str = ""
) -> RewardLine:
    """The line for one reward."""
    return RewardLine(
        wall=wall,
        batch=batch,
        index=reward.index,
        id=reward.id,
        group=reward.group,
        step=step,
        team=team,
        value=reward.value,
        rule=reward.rule,
        judge=reward.judge,
        penalty=reward.penalty,
        length=reward.length,
        median_length=reward.median_length,
        filled=reward.filled,
        terms={term.judge: term.value for term in reward.terms} if len(reward.terms) > 1 else {},
    )


def common_step(samples: Sequence[Sample]) -> int | None:
    """The training step all samples name, or None."""
    steps = {sample.step for sample in samples}
    return steps.pop() if len(steps) == 1 else None
