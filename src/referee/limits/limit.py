"""The port of a concurrency limit: fed with every request sent and finished, it says how many may be in flight."""

from __future__ import annotations

from typing import Literal, NewType, Protocol

Outcome = Literal["ok", "throttled", "overloaded", "ignored"]
"""ok: the server did the work. throttled: it refused for our rate (429). overloaded: 5xx, timeout, lost connection.
ignored: says nothing about the server (a local cancel, a request it rightly rejected)."""


Stamp = NewType("Stamp", int)
"""Epoch of a request: the number of cuts before it was sent. What was sent before a cut says little about the limit
after it."""


class Limit(Protocol):
    """Used from one event loop; owns no lock, clock or queue."""

    @property
    def limit(self) -> int:
        """Requests that may be in flight now; at least 1."""

    def admit(self, now: float, in_flight: int) -> Stamp:
        """A request is being sent; `in_flight` includes it."""

    def release(
        self, stamp: Stamp, outcome: Outcome, now: float, in_flight: int, latency: float, tokens_out: int
    ) -> None:
        """It has finished; `in_flight` excludes it. `tokens_out`: length of the reply, 0 if unknown."""

    def caused_refusal(self, in_flight: int) -> bool:
        """Whether a refusal at this concurrency, itself included, was caused by it: then the limit will come down."""

    def is_stale(self, stamp: Stamp) -> bool:
        """Whether the limit was cut after that request was sent: its refusal is no news."""


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

    def caused_refusal(self, in_flight: int) -> bool:
        """It never comes down."""
        return False

    def is_stale(self, stamp: Stamp) -> bool:
        """It is never cut."""
        return False

    def __repr__(self) -> str:
        return f"FixedLimit({self.limit})"
