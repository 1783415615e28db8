"""The lines of a ledger: one JSON object each, told apart by `type`. Names are stable; readers skip what is new.

    run      first in a file: version, configuration
    verdict  per sample: the judgement, where it came from, what it cost; of several judges, what they said as one
    judge    per sample and judge, where there are several: what this one said, was asked and cost
    ask      per question, where one question and one sample are not one case: its answer and its cost
    reward   per sample: the reward and its terms
    batch    per batch: when, and how long the caller waited
    limits   now and then, per endpoint: its load and its limit
    text     once: what many verdict lines refer to
    change   when another model, provider or fingerprint answers at an endpoint than before
    audit    one question of the audit: a canary, an answer shown to the shadow judge, a probe
    alarm    what the audit found, and what was done about it
    measures the numbers of the audit's signals, now and then
    note     a change on purpose, as announced
    total    how much there will be to judge

Fields at their default are left out of the file. Data only; `build_lines` makes them of records.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct, field

from referee.signals import AuditAnswer

MAX_LINE = 64 * 1024 * 1024
"""Bytes. The writer drops longer lines and counts them, the reader skips them."""


class BaseLine(Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="type", gc=False):
    """A line: one JSON object, told apart from others by `type`."""

    wall: float = 0.0
    """When it was written, in seconds since the epoch."""


class RunLine(BaseLine, frozen=True, kw_only=True, omit_defaults=True, gc=False, tag="run"):
    """The first line of a file: which referee, with which settings."""

    version: str = ""
    pid: int = 0
    digest: str = ""
    """Short name of the configuration: equal settings, equal digest."""
    config: dict[str, Any] = field(default_factory=dict)
    """The configuration without keys."""


class Judged(BaseLine, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """How the judging of one sample ended, by one judge or by all of them."""

    batch: str = ""
    index: int = 0
    """Position in the batch."""
    team: str = ""
    """Of `referee serve` with [[team]]: the one it was judged for."""
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
    parts: list[dict[str, Any]] = field(default_factory=list)
    """Of a rubric each criterion, of a jury or cascade each member, of `repeat` each answer: name, weight, true_is,
    verdict, value, unscored, and, where there is one, uncertainty and its own parts; text and why only with `[ledger]
    content = true`. Of a judge of groups each comparison or order. See `referee docs metrics`. Also where they make no
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


class VerdictLine(Judged, frozen=True, kw_only=True, omit_defaults=True, gc=False, tag="verdict"):
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
    more: dict[str, Any] = field(default_factory=dict)
    """What prompt and response as text do not hold: their messages, `tools`, `rubric`, `columns`, as in a file of
    rollouts. These four only with `[ledger] content = true`."""


class JudgeLine(Judged, frozen=True, kw_only=True, omit_defaults=True, gc=False, tag="judge"):
    """What one of several judges said of one sample."""

    judge: str = ""
    """Its name; its weight is in the run line's configuration."""


class AskLine(Judged, frozen=True, kw_only=True, omit_defaults=True, gc=False, tag="ask"):
    """One question of a case of several questions or samples. Its cost and tokens are part of its samples' lines."""

    judge: str = ""
    indexes: tuple[int, ...] = ()
    """Positions of its samples in the batch, where there are several; `index` is the first."""


class TextLine(BaseLine, frozen=True, kw_only=True, omit_defaults=True, gc=False, tag="text"):
    """A text that many lines refer to by its digest."""

    digest: str = ""
    text: str = ""


class RewardLine(BaseLine, frozen=True, kw_only=True, omit_defaults=True, gc=False, tag="reward"):
    """What the trainer got for one sample."""

    batch: str = ""
    index: int = 0
    id: str = ""
    group: str = ""
    step: int | None = None
    team: str = ""
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
    terms: dict[str, float | None] = field(default_factory=dict)
    """With several judges: what each adds, coefficient and weight included, by name."""


class BatchLine(BaseLine, frozen=True, kw_only=True, omit_defaults=True, gc=False, tag="batch"):
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


class LimitsLine(BaseLine, frozen=True, kw_only=True, omit_defaults=True, gc=False, tag="limits"):
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


class ChangeLine(BaseLine, frozen=True, kw_only=True, omit_defaults=True, gc=False, tag="change"):
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


AuditLine = AuditAnswer
"""One question of the audit: what signals are given live is what is read back."""


class AlarmLine(BaseLine, frozen=True, kw_only=True, omit_defaults=True, gc=False, tag="alarm"):
    """An alarm that began, or that is over."""

    signal: str = ""
    """Which signal, such as canaries, shadow, length or phrase."""
    level: str = "warning"
    """warning, or critical."""
    step: int | None = None
    over: bool = False
    """True: the signal is back to normal; the fields below are empty then."""
    sentence: str = ""
    evidence: dict[str, Any] = field(default_factory=dict)
    """The numbers behind it, by name."""
    samples: tuple[dict[str, Any], ...] = ()
    """At most three, each with `batch`, `index`, `id`, `value` and, with `[ledger] content = true`, `text`."""
    advice: str = ""
    """What to try."""
    action: str = ""
    """What `[audit] on_alarm` did: log, stop or weight."""
    weight: float = 1.0
    """The factor on the judge's term from now on."""


class MeasuresLine(BaseLine, frozen=True, kw_only=True, omit_defaults=True, gc=False, tag="measures"):
    """The numbers of the audit's signals at a moment, every 256 samples."""

    step: int | None = None
    measures: dict[str, float] = field(default_factory=dict)
    """By name, as in metrics()."""


class NoteLine(BaseLine, frozen=True, kw_only=True, omit_defaults=True, gc=False, tag="note"):
    """Something to know when the record is read."""

    what: str = ""
    """announced: a change on purpose, after which the audit learns its baselines anew. lenient: a judge that credits
    worthless answers, so that canaries tell nothing about it."""
    step: int | None = None
    text: str = ""
    """In words; of what was announced, the caller's."""


class TotalLine(BaseLine, frozen=True, kw_only=True, omit_defaults=True, gc=False, tag="total"):
    """How much there will be to judge, by all processes together. The last one counts."""

    samples: int = 0
    """0: not known."""
    steps: int = 0
    """Training steps; 0: not known."""
    resumed: bool = False
    """Samples that earlier starts in this folder have judged are part of it."""


Line = (
    RunLine
    | VerdictLine
    | JudgeLine
    | AskLine
    | TextLine
    | RewardLine
    | BatchLine
    | LimitsLine
    | ChangeLine
    | TotalLine
    | AuditLine
    | AlarmLine
    | MeasuresLine
    | NoteLine
)


def judges_in(config: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The judges of a run line's configuration. Ledgers of 0.1 hold one table, a forged one may hold anything."""
    found = config.get("judge")
    return [judge for judge in (found if isinstance(found, list | tuple) else [found]) if isinstance(judge, Mapping)]
