"""The lines of the audit: what it asked beside the rewards, what it found, and what was announced to it. Data only."""

from __future__ import annotations

from typing import Any

from msgspec import field

from referee.ledger.base import BaseLine


class AuditLine(BaseLine, frozen=True, kw_only=True, omit_defaults=True, gc=False, tag="audit"):
    """One question of the audit, beside the rewards and no part of them."""

    what: str = ""
    """canary: an answer whose worth is known. shadow: a live answer shown to the shadow judge. probe: a live answer
    changed in a way that must not raise its score. fixed: an answer of the fixed set, asked again and again."""
    name: str = ""
    """Which canary, shadow judge, rewrite or fixed answer."""
    judge: str = ""
    """The judge that was asked, where there are several."""
    step: int | None = None
    """Of the live samples at that time, where they name one."""
    batch: str = ""
    index: int = -1
    """The live sample it is about, where there is one: its batch and its position there."""
    id: str = ""
    wrong: bool | None = None
    """Of a canary, whether it deserves the lowest score (true) or a high one (false). None: it was not counted, because
    the judge credits worthless answers in general."""
    before: float | None = None
    """The live answer's value in [0, 1], or that of a fixed answer the first time."""
    value: float | None = None
    """What was said now, in [0, 1]. None: unscored."""
    chance: float = 1.0
    """How often this sample is drawn, compared with an even draw from the same answers: above 1 for high scores."""
    model: str = ""
    fingerprint: str = ""
    unscored: str = ""
    cost: float = 0.0
    """US dollars."""
    answer: str = ""
    why: str = ""
    """What was shown as the answer and the judge's words; only with `[ledger] content = true`."""


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
    """announced: a change on purpose, after which the audit learns anew what is usual. lenient: a judge that credits
    worthless answers, so that canaries tell nothing about it."""
    step: int | None = None
    text: str = ""
    """In words; of what was announced, the caller's."""
