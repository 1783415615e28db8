"""The lines of the audit: what it asked beside the rewards, what it found, and what was announced to it. Data only."""

from __future__ import annotations

from typing import Any

from msgspec import field

from referee.ledger.base import BaseLine
from referee.signals import AuditAnswer

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
    """announced: a change on purpose, after which the audit learns anew what is usual. lenient: a judge that credits
    worthless answers, so that canaries tell nothing about it."""
    step: int | None = None
    text: str = ""
    """In words; of what was announced, the caller's."""
