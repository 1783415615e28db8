"""What the batch transport needs of a provider's batch API. Implementations: `openai`, `anthropic`."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Literal, NamedTuple, Protocol

from msgspec import Struct

from referee.engine.port import Response

Ended = Literal["", "completed", "failed", "expired", "cancelled"]
"""How a batch has ended; empty: it has not."""

EXPIRED, CANCELLED = 504, 499
"""Statuses given to items that a provider did not get to. An ordinary answer may have 504 too, and means the same: ask
again."""


class Line(NamedTuple):
    """One request of a batch. `name` is its custom_id: letters, digits, _ and -, 64 at most."""

    name: str
    body: bytes


class Problem(NamedTuple):
    """Why a provider refused a whole batch. `line` counts from 1; 0: no line is to blame."""

    line: int
    code: str
    message: str


class Seen(Struct, frozen=True, kw_only=True):
    """A batch as the provider describes it."""

    id: str
    ended: Ended = ""
    total: int = 0
    done: int = 0
    """Requests that have an answer, good or bad."""
    problems: tuple[Problem, ...] = ()
    files: tuple[str, ...] = ()
    """What the answers are read from."""


class Result(NamedTuple):
    """The answer to one request, as the live endpoint would have given it."""

    name: str
    status: int
    body: bytes


class Refused(Exception):
    """The provider answered with an error that waiting will not cure."""

    def __init__(self, response: Response) -> None:
        super().__init__(response.status)
        self.response = response


class Unsure(Exception):
    """A request to create a batch was sent and no answer came: there may be a batch, or none."""


class BatchApi(Protocol):
    """One provider's batch API."""

    max_items: int
    max_bytes: int

    async def create(self, token: str, lines: Sequence[Line]) -> str:
        """Upload these and begin. Returns the batch's id. Raises Refused, Unsure, or TransportFault if the provider
        was never reached."""
        ...

    async def look(self, id: str) -> Seen:
        """How a batch is doing. Raises Refused or TransportFault."""
        ...

    async def results(self, seen: Seen) -> list[Result]:
        """The answers of an ended batch, in any order; none may be there for some. Raises Refused, TransportFault."""
        ...

    async def find(self, token: str, count: int, since: float, known: Collection[str]) -> tuple[str, bool]:
        """The batch that was created with this token and `count` requests, not before that time, and none of the known
        ones: its id, or empty. The flag: True if it is certain that there is no other candidate."""
        ...

    async def cancel(self, id: str) -> None:
        """Stop a batch. What it has done by then is billed."""
        ...
