"""What a concurrency limit is: told of every request sent and over, it says how many may fly. No queue here."""

from __future__ import annotations

from typing import Literal, NewType, Protocol

Outcome = Literal["ok", "throttled", "overloaded", "ignored"]
"""ok: the server did the work. throttled: it refused for our rate (429). overloaded: 5xx, time-out, lost connection.
ignored: says nothing about the server (a local cancel, a request it rightly rejected)."""


Stamp = NewType("Stamp", int)
"""Given out when a request is sent, handed back when it is over: how many cuts came before it. What was sent before a
cut says little about the limit after it."""


class Limit(Protocol):
    """A number and what it learns from. Used from one event loop; it owns no lock, no clock, no queue."""

    @property
    def limit(self) -> int:
        """How many requests may be in flight now; at least 1."""

    def admit(self, now: float, in_flight: int) -> Stamp:
        """A request is being sent. `in_flight` counts it."""

    def release(
        self, stamp: Stamp, outcome: Outcome, now: float, in_flight: int, latency: float, tokens_out: int
    ) -> None:
        """It is over. `in_flight` no longer counts it. `tokens_out`: length of the reply, 0 if unknown."""

    def explains(self, in_flight: int) -> bool:
        """Whether a refusal with so many in flight, itself included, is about their number, which will be lowered."""

    def answered(self, stamp: Stamp) -> bool:
        """Whether it was lowered since that request was sent: then a refusal of it is no news."""


class FixedLimit:
    """The number the user gave. Learns nothing."""

    __slots__ = ("limit",)

    def __init__(self, n: int) -> None:
        self.limit = max(1, n)

    def admit(self, now: float, in_flight: int) -> Stamp:
        """Nothing to remember."""
        return Stamp(0)

    def release(
        self, stamp: Stamp, outcome: Outcome, now: float, in_flight: int, latency: float, tokens_out: int
    ) -> None:
        """Nothing to learn."""

    def explains(self, in_flight: int) -> bool:
        """It is not lowered."""
        return False

    def answered(self, stamp: Stamp) -> bool:
        """It is not lowered."""
        return False

    def __repr__(self) -> str:
        return f"FixedLimit({self.limit})"
