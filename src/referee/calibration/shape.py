"""What a calibration says, as data: for the terminal, `--json` and the page."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from referee.calibration.measures import Measures
from referee.stats import Estimate

Level = Literal["bad", "warn", "good"]


class Finding(Struct, frozen=True, kw_only=True):
    """One sentence about a judge, what to do about it, and the number it rests on."""

    check: str
    """What found it, by a stable name: agreement, length, position…"""
    level: Level
    text: str
    advice: str = ""
    estimate: Estimate | None = None


class Corrected(Struct, frozen=True, kw_only=True):
    """What people would have said on average of all rows, labelled or not."""

    labelled: int
    unlabelled: int
    judge_mean: float
    """What the judge says of all of them."""
    prediction_powered: Estimate
    judge_share: float | None = None
    """For yes and no: the share to which it says yes."""
    rogan_gladen: Estimate | None = None


class Disagreement(Struct, frozen=True, kw_only=True):
    """A row, or a pair of responses, of which the judge says something else than people."""

    line: int
    id: str
    prompt: str
    response: str
    human: float
    judge: float
    """On the scale of the labels; of a pair, the preferred response's value in [0, 1]."""
    human_why: str = ""
    judge_why: str = ""
    other: str = ""
    """Of a pair, the response that people like less, with what the judge says of that."""
    other_judge: float | None = None
    other_why: str = ""


class Part(Struct, frozen=True, kw_only=True):
    """A piece of a judge that has labels of its own, or the rows with one value of a column."""

    name: str
    what: Literal["criterion", "juror", "by"]
    measures: Measures
    column: str = ""


class Calibrated(Struct, frozen=True, kw_only=True):
    """One judge."""

    name: str
    kind: str
    models: tuple[str, ...]
    measures: Measures
    parts: tuple[Part, ...] = ()
    corrected: Corrected | None = None
    findings: tuple[Finding, ...] = ()
    disagreements: tuple[Disagreement, ...] = ()
    cost_per_1000: float | None = None
    """US dollars for a thousand rows, cached ones at what they cost once; None: an endpoint has no price."""
    seconds: float | None = None
    """Median of a call; None: everything came from the cache."""


class Compared(Struct, frozen=True, kw_only=True):
    """A judge against the best one, on the rows both have scored."""

    name: str
    difference: Estimate
    """Its agreement less the best one's."""

    @property
    def within_noise(self) -> bool | None:
        """Not worse than the best, as far as these rows show; None: they do not show it."""
        return None if self.difference.high is None else self.difference.high >= 0.0


class Comparison(Struct, frozen=True, kw_only=True):
    """Several judges on the same rows."""

    best: str
    cheapest: str
    """The cheapest of those that are not worse than the best by more than noise; empty: prices are not known."""
    others: tuple[Compared, ...]
    by: Literal["kappa", "order"] = "kappa"
    """The measure that is compared. Where labels do not mean the same to all judges only the order of answers does."""


class Calibration(Struct, frozen=True, kw_only=True):
    """Everything."""

    rows: int
    labelled: int
    unlabelled: int
    prompts: int
    preferences: bool
    seed: int
    judges: tuple[Calibrated, ...]
    comparison: Comparison | None = None
