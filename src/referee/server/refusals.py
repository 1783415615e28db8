"""What a caller is told instead of a result: a status, one word for programs, one sentence for people.

Every error answer of the service has this shape. None of them holds a number that a trainer could take for a reward.
"""

from __future__ import annotations

import msgspec
from msgspec import Struct
from starlette.responses import Response

from referee.errors import (
    ConfigError,
    EndpointClosed,
    InputError,
    RefereeError,
    RewardHacked,
    TicketCancelled,
    UnscoredError,
    WrongContext,
)

OPEN_PATHS = frozenset({"/healthz", "/readyz"})
"""What needs no token."""
SOON = 2
"""Seconds a caller is asked to wait when there is no room now."""
LATER = 10
"""Seconds a caller is asked to wait when the judge did not answer, or this process is going away."""


class Problem(Struct, frozen=True, kw_only=True):
    """The body of every answer that is not a result."""

    error: str
    """One word: what kind of trouble."""
    message: str
    """What happened, what it means for the reward, which setting to change."""


class Refusal(Exception):
    """Raised inside the service where a request cannot be served; answered as a Problem."""

    def __init__(self, status: int, error: str, message: str, retry_after: int = 0) -> None:
        super().__init__(status, error, message, retry_after)
        self.status = status
        self.error = error
        self.message = message
        self.retry_after = retry_after
        """Seconds, as a Retry-After header; 0: none."""

    def body(self) -> bytes:
        """The Problem as JSON."""
        return msgspec.json.encode(Problem(error=self.error, message=self.message))

    def response(self) -> Response:
        """The answer."""
        headers = {"x-content-type-options": "nosniff"}
        if self.retry_after:
            headers["retry-after"] = str(self.retry_after)
        response = Response(self.body(), self.status, headers, "application/json")
        if self.status == 401:
            for way in ("Bearer", "Basic"):  # the second lets a browser ask its user
                response.headers.append("www-authenticate", f'{way} realm="referee"')
        return response


def refusal_of(error: RefereeError) -> Refusal:
    """How an error of the Referee is told to an HTTP caller."""
    text = str(error)
    if isinstance(error, InputError):
        return Refusal(422, "bad_sample", text)
    if isinstance(error, EndpointClosed):
        return Refusal(503, "judge_closed", f"{text} Correct that and start the service again.", LATER)
    if isinstance(error, RewardHacked):
        return Refusal(503, "reward_hacked", f"{text} Correct that and start the service again.")
    if isinstance(error, UnscoredError):
        return Refusal(503, "unscored", text, LATER)
    if isinstance(error, TicketCancelled | WrongContext):
        return Refusal(503, "stopping", f"{text} Nothing was scored for this request.", LATER)
    if isinstance(error, ConfigError):
        return Refusal(500, "config", f"The service is set up wrongly: {text}")
    return Refusal(500, "internal", f"{type(error).__name__}: {text}")
