"""Judges made of other judges, for tests: built as a run builds them, driven by hand."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from referee.config import load
from referee.judging import Judge
from referee.records import Ask, Reason, Sample, Unscored, Verdict
from referee.scoring.build import build_judges
from referee.testing import Deliberated, deliberate

SECRET = b"0123456789abcdef"
SAMPLE = Sample(prompt="p", response="r", reference="r", group="g")
ENDPOINTS = [
    {"name": name, "url": f"http://{name}.test/v1", "model": name, "key_env": ""} for name in ("one", "two", "three")
]
LATE = Unscored(reason=Reason.DEADLINE, detail="late")
BROKEN = Unscored(reason=Reason.NO_VERDICT, detail="prose")


def member(name: str, **more: Any) -> dict[str, Any]:
    """A judge that asks the endpoint of its name."""
    return {"name": name, "endpoint": name, "criteria": f"asked by {name}", **more}


def built(*judges: dict[str, Any], secret: bytes = SECRET) -> Judge:
    """The only term of the reward that these judges make."""
    [judge] = build_judges(load({"judge": list(judges), "endpoint": ENDPOINTS}), secret)
    return judge


def valued(value: float, uncertainty: float | None = None) -> Verdict:
    return Verdict(score=value, value=value, reason=f"worth {value:g}", uncertainty=uncertainty)


def by_pool(**said: Verdict | Unscored) -> Callable[[Ask], Verdict | Unscored]:
    """The same answer to every question of an endpoint."""
    return lambda ask: said[ask.pool]


def heard(
    judge: Judge, answers: Callable[[Ask], Verdict | Unscored] | Sequence[Verdict | Unscored], *samples: Sample
) -> Deliberated:
    """Its whole deliberation."""
    return deliberate(judge, samples or (SAMPLE,), answers)


def verdict_of(found: Deliberated) -> Verdict:
    """Its only verdict."""
    [verdict] = found.verdicts
    assert isinstance(verdict, Verdict), verdict
    return verdict


def missing_of(found: Deliberated) -> Unscored:
    """Why there is none."""
    [verdict] = found.verdicts
    assert isinstance(verdict, Unscored), verdict
    return verdict


def pools(found: Deliberated) -> list[list[str]]:
    """Which endpoints each round asked."""
    return [[ask.pool for ask in asks] for asks in found.rounds]
