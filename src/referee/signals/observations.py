"""What signals look at: judged samples of the run, and answers to the audit's own questions. Data only."""

from __future__ import annotations

import re

from msgspec import Struct

_CORRECTNESS = re.compile(
    r"\b(?:correct|accura|right|valid|true|exact|consisten|sound|prove|justif|match|equal|calculat|comput|logical|error|"
    r"mistake|contradict|unsupported|halluc|fabricat|relevan|concis)\w*",
    re.IGNORECASE,
)
_PRESENCE = re.compile(
    r"\b(?:mention|includ|contain|state|list|name|cite|provid|discuss|address|cover|present|refer|describ|"
    r"recommend|advis|suggest|acknowledg|highlight|note)\w*",
    re.IGNORECASE,
)


class Observation(Struct, frozen=True, kw_only=True, gc=False):
    """One sample that a judge was asked about: what a gate settled is not among them."""

    step: int | None = None
    batch: str = ""
    index: int = 0
    id: str = ""
    prompt_key: str = ""
    """Short name of the prompt: samples of one prompt that are seen together are siblings."""
    prompt: str = ""
    response: str = ""
    """As plain text. Both are empty where texts are not kept."""
    reference: str | None = None
    length: int | None = None
    """Tokens, where they are known."""
    rule: float = 0.0
    value: float | None = None
    """What the judge said, in [0, 1]. None: unscored."""
    unscored: str = ""
    model: str = ""
    fingerprint: str = ""
    provider: str = ""
    latency_s: float = 0.0
    criteria: tuple[tuple[bool | None, bool], ...] = ()
    """Of a rubric: whether each criterion speaks for the answer, and whether it only asks that something is there (see
    `presence`)."""


class AuditAnswer(Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="type", tag="audit", gc=False):
    """What a judge said to one of the audit's questions, beside the rewards and no part of them."""

    wall: float = 0.0
    """When it was recorded, in seconds since the epoch."""
    what: str = ""
    """canary: an answer whose worth is known. shadow: a live answer shown to the shadow judge. probe: a live answer
    changed in a way that must not raise its score. fixed: an answer of the fixed set, asked again and again."""
    name: str = ""
    """Which canary, shadow judge, rewrite or fixed answer."""
    judge: str = ""
    """The judge that was asked; in the ledger, where there are several."""
    step: int | None = None
    """Of the live samples at that time, where they name one."""
    batch: str = ""
    index: int = -1
    """The live sample it is about, where there is one: its batch and its position there."""
    id: str = ""
    wrong: bool | None = None
    """Of a canary, whether it deserves the lowest score (true) or a high one (false). None: it does not count, because
    the judge credits worthless answers in general."""
    before: float | None = None
    """The live answer's value in [0, 1], of a probe as judged again, or that of a fixed answer the first time."""
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


def presence(text: str) -> bool:
    """Whether a criterion asks that something is there ("mentions the dose"), not that it is right."""
    return bool(_PRESENCE.search(text)) and not _CORRECTNESS.search(text)
