"""What runs at providers now, for the progress line. Written on the loop, read by the thread that shows it."""

from __future__ import annotations

from msgspec import Struct

from referee import clock


class _Open(Struct):
    created: float
    items: int
    done: int = 0


class Board:
    """Batches in progress, of all endpoints."""

    def __init__(self) -> None:
        self._open: dict[str, _Open] = {}
        self.waiting = 0
        """Questions that are not in a batch yet."""

    def opened(self, token: str, created: float, items: int) -> None:
        """A batch is in progress, or on its way to the provider."""
        self._open[token] = _Open(created, items)

    def progress(self, token: str, done: int) -> None:
        """Its requests that have an answer, now this many."""
        self._open[token].done = done

    def closed(self, token: str) -> None:
        """It is over."""
        self._open.pop(token, None)

    @property
    def count(self) -> int:
        """Batches in progress."""
        return len(self._open)

    def text(self) -> str:
        """All of it in a few words."""
        batches = list(self._open.values())
        parts = []
        if batches:
            done, items = sum(batch.done for batch in batches), sum(batch.items for batch in batches)
            seconds = int(clock.wall() - min(batch.created for batch in batches))
            age = f"{seconds // 3600}:{seconds // 60 % 60:02}:{seconds % 60:02}"
            plural = "es" if len(batches) > 1 else ""
            parts.append(f"{len(batches)} batch{plural} in progress, {done}/{items} items done, oldest {age}")
        if self.waiting:
            parts.append(f"{self.waiting} to be sent")
        return ", ".join(parts) or "no batch in progress"
