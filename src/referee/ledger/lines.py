"""The lines of a ledger: one JSON object each, told apart by `type`. Names are stable; readers skip what is new.

    run      first in a file: version, configuration
    verdict  per sample: the judgement, where it came from, what it cost; of several judges, what they said as one
    judge    per sample and judge, where there are several: what this one said, was asked and cost
    ask      per question, where one question and one sample are not one case: its answer and its cost
    reward   per sample: the reward and its terms
    batch    per batch: when, and how long the caller waited
    limits   now and then, per endpoint: its load and its limit   text   once: what many verdict lines refer to
    change   when another model, provider or fingerprint answers at an endpoint than before

Fields at their default are left out of the file. Data and its making from records only; no files, no clock.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct

from referee.records import COMPARED, Ask, Message, Reward, Sample, Settled, Unscored, Verdict
from referee.rollouts import more_of, plain, read_image

MAX_LINE = 64 * 1024 * 1024
"""Bytes. The writer drops longer lines and counts them, the reader skips them."""


class _Line(Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="type", gc=False):
    wall: float = 0.0
    """When it was written, in seconds since the epoch."""


class RunLine(_Line, frozen=True, kw_only=True, omit_defaults=True, gc=False, tag="run"):
    """The first line of a file: which referee, with which settings."""

    version: str = ""
    pid: int = 0
    digest: str = ""
    """Short name of the configuration: equal settings, equal digest."""
    config: dict[str, Any] = {}
    """The configuration without keys."""


class _Judged(_Line, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """How the judging of one sample ended, by one judge or by all of them."""

    batch: str = ""
    index: int = 0
    """Position in the batch."""
    origin: str = "none"
    """call, cache, shared, gate or none, as in records.Settled."""
    key: str = ""
    """Cache key of the request."""
    endpoint: str = ""
    model: str = ""
    """The model that answered, by its own account."""
    provider: str = ""
    """Which provider answered, where a router says so."""
    fingerprint: str = ""
    """What the server says of its own configuration, where it does. These two of the last reply."""
    request_id: str = ""
    score: float | None = None
    """On the judge's own scale. None when unscored."""
    value: float | None = None
    """The same in [0, 1]."""
    why: str = ""
    """The judge's words, or which gate settled it."""
    how: str = ""
    """schema, tag, logprob, integer, gate, rubric, listwise or pairwise; terms: what several judges said as one."""
    uncertainty: float | None = None
    parts: list[dict[str, Any]] = []
    """Of a rubric each criterion, of a jury or cascade each member, of `repeat` each answer: name, weight, true_is,
    verdict, value, unscored, and, where there is one, uncertainty and its own parts; text and why only with `[ledger]
    content = true`. Of a judge of groups each comparison or order. See docs/metrics.md. Also where they make no
    score."""
    unscored: str = ""
    """The reason's name when there is no score; empty when there is one."""
    detail: str = ""
    """More about that reason."""
    attempts: int = 0
    sent: float = 0.0
    """Wall time of the first attempt."""
    queued_s: float = 0.0
    latency_s: float = 0.0
    """Of the last attempt, on the wire."""
    tokens_in: int = 0
    tokens_out: int = 0
    tokens_cached: int = 0
    tokens_cache_write: int = 0
    cost: float = 0.0
    """US dollars, all attempts."""
    saved: float = 0.0
    """US dollars a cached or shared verdict did not cost, where that is known."""
    system: str = ""
    """Digest of the judge's system message, which is the same for many samples and stands once in a text line."""
    asked: str = ""
    """The user message the judge was shown, fences included."""
    reply: str = ""
    """What it answered, unread. These three only with `[ledger] content = true`."""


class VerdictLine(_Judged, frozen=True, kw_only=True, omit_defaults=True, gc=False, tag="verdict"):
    """One sample: what the judge said of it; of several judges, what they said as one."""

    seq: int = 0
    """Counts verdict lines of one Referee, in the order they were settled."""
    id: str = ""
    group: str = ""
    step: int | None = None
    rule_score: float = 0.0
    length: int | None = None
    truncated: bool = False
    prompt_digest: str = ""
    response_digest: str = ""
    """First 16 hex digits of SHA-256, where the texts themselves are not kept: the same text has the same digest."""
    prompt: str = ""
    response: str = ""
    reference: str | None = None
    more: dict[str, Any] = {}
    """What prompt and response as text do not hold: their messages, `tools`, `rubric`, `columns`, as in a file of
    rollouts. These four only with `[ledger] content = true`."""


class JudgeLine(_Judged, frozen=True, kw_only=True, omit_defaults=True, gc=False, tag="judge"):
    """What one of several judges said of one sample."""

    judge: str = ""
    """Its name; its weight is in the run line's configuration."""


class AskLine(_Judged, frozen=True, kw_only=True, omit_defaults=True, gc=False, tag="ask"):
    """One question of a case of several questions or samples. Its cost and tokens are part of its samples' lines."""

    judge: str = ""
    indexes: tuple[int, ...] = ()
    """Positions of its samples in the batch, where there are several; `index` is the first."""


class TextLine(_Line, frozen=True, kw_only=True, omit_defaults=True, gc=False, tag="text"):
    """A text that many lines refer to by its digest."""

    digest: str = ""
    text: str = ""


class RewardLine(_Line, frozen=True, kw_only=True, omit_defaults=True, gc=False, tag="reward"):
    """What the trainer got for one sample."""

    batch: str = ""
    index: int = 0
    id: str = ""
    group: str = ""
    step: int | None = None
    value: float | None = None
    """None: no reward, by the missing policy."""
    rule: float = 0.0
    judge: float | None = None
    """The judge's term, coefficient included. None when unscored."""
    penalty: float = 0.0
    """The length penalty, scale included."""
    length: int = 0
    median_length: float = 0.0
    filled: str = ""
    """The missing policy that supplied `value`, if one did."""
    terms: dict[str, float | None] = {}
    """With several judges: what each adds, coefficient and weight included, by name."""


class BatchLine(_Line, frozen=True, kw_only=True, omit_defaults=True, gc=False, tag="batch"):
    """One submitted batch, when it was finished and collected."""

    batch: str = ""
    samples: int = 0
    step: int | None = None
    """The training step, when all samples of the batch name the same one."""
    submitted: float = 0.0
    finished: float = 0.0
    """Wall times."""
    waited_s: float = 0.0
    """Seconds the caller was blocked waiting for it. The rest of its time overlapped with other work."""


class LimitsLine(_Line, frozen=True, kw_only=True, omit_defaults=True, gc=False, tag="limits"):
    """The load of one endpoint at this moment. Totals count from the run line on."""

    endpoint: str = ""
    limit: float = 0.0
    in_flight: int = 0
    queued: int = 0
    """Requests waiting, for this or any other endpoint."""
    throttled: int = 0
    """Total of throttled answers (429)."""
    requests: int = 0
    """Total of requests sent."""


class ChangeLine(_Line, frozen=True, kw_only=True, omit_defaults=True, gc=False, tag="change"):
    """Another one answered at an endpoint than before. Once for each two that take turns."""

    endpoint: str = ""
    step: int | None = None
    """The training step of the samples that were judged then, where they name one."""
    model: str = ""
    provider: str = ""
    fingerprint: str = ""
    """What replies say of their origin now; empty where they say nothing."""
    before_model: str = ""
    before_provider: str = ""
    before_fingerprint: str = ""


Line = RunLine | VerdictLine | JudgeLine | AskLine | TextLine | RewardLine | BatchLine | LimitsLine | ChangeLine


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
    """How responses were shown is nobody's text: comparisons, which have no weight, keep it."""
    left_out = ("text", "why") if "weight" in row else ("why",)
    kept = {name: value for name, value in row.items() if name not in left_out}
    if "parts" in kept:
        kept["parts"] = [_without_words(part) for part in kept["parts"]]
    return kept


def judges_in(config: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The judges of a run line's configuration. Ledgers of 0.1 hold one table, a forged one may hold anything."""
    found = config.get("judge")
    return [judge for judge in (found if isinstance(found, list | tuple) else [found]) if isinstance(judge, Mapping)]


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
    return JudgeLine(judge=name, **{field: getattr(line, field) for field in _Judged.__struct_fields__})


def ask_line(
    name: str, settled: Settled, *, wall: float, batch: str, indexes: Sequence[int], request: Ask, content: bool
) -> AskLine:
    """The line of one question about these samples."""
    line = verdict_line(_NO_SAMPLE, settled, wall=wall, batch=batch, index=indexes[0], request=request, content=content)
    several = tuple(indexes) if len(indexes) > 1 else ()
    return AskLine(judge=name, indexes=several, **{field: getattr(line, field) for field in _Judged.__struct_fields__})


def reward_line(reward: Reward, *, wall: float = 0.0, batch: str = "", step: int | None = None) -> RewardLine:
    """The line for one reward."""
    return RewardLine(
        wall=wall,
        batch=batch,
        index=reward.index,
        id=reward.id,
        group=reward.group,
        step=step,
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
