"""One flight per key: the shared state of a request under way and of everyone who waits for it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from referee.records import Failure, JudgeRequest, Settled, Unscored
from referee.wire import Adaptation

Listener = Callable[[Settled], None]


class Flight:
    """A request in the air. Listeners hear of its end once; when the last one leaves, it is cancelled."""

    __slots__ = (
        "adaptation",
        "asked",
        "attempts",
        "cost",
        "deadline",
        "key",
        "last",
        "listeners",
        "request",
        "sent_first",
        "task",
    )

    def __init__(self, key: str, request: JudgeRequest, asked: float) -> None:
        self.key = key
        self.request = request
        self.asked = asked
        self.deadline = asked
        self.listeners: dict[Listener, bool] = {}
        self.task: asyncio.Task[None] | None = None
        self.adaptation: Adaptation | None = None
        """What the last attempt was sent with."""
        self.attempts = 0
        self.cost = 0.0
        self.sent_first: float | None = None
        self.last: Failure | Unscored | None = None

    def join(self, listener: Listener, deadline: float) -> None:
        """Wait for the end too. The flight lives as long as its most patient listener."""
        self.listeners[listener] = bool(self.listeners)
        self.deadline = max(self.deadline, deadline)

    def leave(self, listener: Listener) -> None:
        """Stop listening. Nobody left: nobody pays for an answer nobody wants."""
        self.listeners.pop(listener, None)
        if not self.listeners and self.task is not None:
            self.task.cancel()

    def trouble(self) -> str:
        """What went wrong so far, in a few words, for whoever stops waiting."""
        if not self.attempts:
            return "still waiting for its turn"
        tries = f"{self.attempts} attempt{'s' if self.attempts > 1 else ''}"
        return f"{tries}, last: {self.last.reason} ({self.last.detail})" if self.last else f"{tries}, no answer yet"

    def __repr__(self) -> str:
        return f"Flight({self.key[:12]}, {len(self.listeners)} waiting, {self.trouble()})"
