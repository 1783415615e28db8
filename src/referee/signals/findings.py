"""What a signal has found, before it is an alarm, and what all signals have in common. Data and a protocol."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, Protocol

from msgspec import Struct

from referee.signals.asked import Asked
from referee.signals.rounds import Round

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


class Signal(Protocol):
    """One thing that is watched. Memory is bounded, whatever is fed."""

    name: str
    family: Family
    looked_at: int
    """What it has looked at so far: answers, questions or pairs; 0 says it cannot say anything."""

    @property
    def ready(self) -> bool:
        """Whether there was enough to say something."""

    def finding(self) -> Finding | None:
        """What is wrong now, if anything."""

    def measures(self) -> dict[str, float]:
        """Its numbers now, by short name."""


class Reader(Signal, Protocol):
    """Looks at judged samples."""

    def see(self, round_: Round) -> None:
        """One round."""


class Listener(Signal, Protocol):
    """Looks at answers to the audit's own questions."""

    def hear(self, answers: Sequence[Asked]) -> None:
        """Those of these answers that concern it."""


def percent(share: float) -> str:
    """Such as 62 %."""
    return f"{share * 100:.0f} %" if share >= 0.0095 or not share else f"{share * 100:.1f} %"
