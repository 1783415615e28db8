"""One answer to a question of the audit's own. Data only; the fields are those of ledger.AuditLine."""

from __future__ import annotations

from msgspec import Struct


class Asked(Struct, frozen=True, kw_only=True, gc=False):
    """What a judge said to a canary, a rewritten answer or a fixed one, or a shadow judge to a live one."""

    what: str
    """canary, shadow, probe or fixed."""
    name: str = ""
    """Which canary, shadow judge, rewrite or fixed answer."""
    judge: str = ""
    step: int | None = None
    batch: str = ""
    index: int = -1
    id: str = ""
    wrong: bool | None = None
    """Of a canary: whether it deserves the lowest score."""
    before: float | None = None
    """Of a shadow or probe the live answer's value, of a fixed answer its first one."""
    value: float | None = None
    chance: float = 1.0
    """How often this sample is drawn, compared with an even draw from the same answers: above 1 for high scores."""
    model: str = ""
    fingerprint: str = ""
    unscored: str = ""
    text: str = ""
    """What was shown as the answer, where texts are kept."""
