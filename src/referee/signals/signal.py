"""What all signals have in common: one thing that is watched, and what it has found before that is an alarm."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from msgspec import Struct

from referee.signals.observations import AuditAnswer, Observation
from referee.signals.rounds import BASELINE, WINDOW, Round
from referee.signals.texts import excerpt

Family = Literal["", "text", "judge", "shadow", "rule", "criteria"]
"""Signals of one family look at the same thing; two that agree are independent only if their families differ. Empty:
a signal that says nothing about the policy."""


class Finding(Struct, frozen=True, kw_only=True):
    """A test has passed its threshold, and what it is about still holds."""

    sentence: str
    evidence: dict[str, float | str] = {}
    share: float = 0.0
    """Of the latest answers, how many are estimated to have bought their score this way."""
    samples: tuple[dict[str, Any], ...] = ()


class Signal:
    """One thing that is watched. Memory is bounded, whatever is observed."""

    name: str
    family: Family = ""
    looked_at = 0
    """What it has looked at so far: answers, questions or pairs; 0 says it cannot say anything."""
    enough = BASELINE + WINDOW
    """Of these, before it can say something."""

    @property
    def ready(self) -> bool:
        """Whether there was enough to say something."""
        return self.looked_at >= self.enough

    def observe(self, round_: Round) -> None:
        """A round of judged samples; nothing where the signal is about the audit's questions."""

    def observe_answers(self, answers: Sequence[AuditAnswer]) -> None:
        """Answers to the audit's questions; nothing where the signal is about the run's samples."""

    def finding(self) -> Finding | None:
        """What is wrong now, if anything."""
        raise NotImplementedError

    def measures(self) -> dict[str, float]:
        """Its numbers now, by short name."""
        raise NotImplementedError


def shown_sample(one: Observation, phrase: str = "") -> dict[str, Any]:
    """A judged sample as an alarm shows it."""
    return _shown(one, one.response, phrase)


def shown_answer(one: AuditAnswer, **more: float | None) -> dict[str, Any]:
    """An answer to one of the audit's questions, the same."""
    return _shown(one, one.answer) | more


def _shown(one: Observation | AuditAnswer, text: str, phrase: str = "") -> dict[str, Any]:
    shown: dict[str, Any] = {"batch": one.batch, "index": one.index, "id": one.id, "value": one.value}
    return shown | ({"text": excerpt(text, phrase)} if text else {})


def percent(share: float) -> str:
    """Such as 62 %."""
    return f"{share * 100:.0f} %" if share >= 0.0095 or not share else f"{share * 100:.1f} %"
