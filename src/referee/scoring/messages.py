"""Messages between the client half and the worker half of scoring. Data only; `runtime.messages` encodes them.

A sample is named by its batch's ticket and its index in that batch.
"""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from referee import errors
from referee.engine.identity import Change
from referee.errors import EndpointClosed, RefereeError
from referee.records import Sample, Settled, Unscored


class Work(Struct, frozen=True, array_like=True, tag=2):
    """Samples of one batch to judge."""

    ticket: int
    """Names the batch at the client that sent it."""
    batch: str
    """Its name in records."""
    seconds: float
    """What is left of its time."""
    total: float
    """What it had, for messages."""
    indexes: tuple[int, ...]
    samples: tuple[Sample, ...]
    caller: str = ""
    team: str = ""
    judges: tuple[int, ...] = ()
    """Numbers of the judges that are asked, in order; none: all of them."""


class Cancel(Struct, frozen=True, array_like=True, tag=3):
    """Stop judging a batch: every sample of it without a result gets one now."""

    ticket: int
    why: Unscored


class Result(Struct, frozen=True, array_like=True, gc=False):
    """The end of one sample: what each judge that was asked, in the order of the configuration, said of it."""

    index: int
    settled: tuple[Settled, ...]
    lines: tuple[Any, ...] = ()
    """Its ledger lines: encoded and without `seq` where they travel, as they are in one process. Empty when there is no
    ledger."""


class Fault(Struct, frozen=True, array_like=True, gc=False):
    """Why a batch must not be used: an exception of ours, ready to travel."""

    kind: str
    """Name of its class in referee.errors."""
    message: str
    reason: str = ""

    def error(self) -> RefereeError:
        """The exception."""
        if self.kind == "EndpointClosed":
            return EndpointClosed(self.message, reason=self.reason)
        found: RefereeError = getattr(errors, self.kind, RefereeError)(self.message)
        return found


class Results(Struct, frozen=True, array_like=True, gc=False):
    """Results of samples of one batch."""

    ticket: int
    results: tuple[Result, ...]
    fault: Fault | None = None


class Gauge(Struct, frozen=True, array_like=True, gc=False):
    """How much of one endpoint's limit one worker uses."""

    endpoint: str
    limit: int
    """The whole limit, shared or not; 0 when the endpoint is closed."""
    in_flight: int
    sent: int
    throttled: int


class Update(Struct, frozen=True, array_like=True, tag=10):
    """From a worker: results, and its state; or its state alone."""

    parts: tuple[Results, ...] = ()
    texts: tuple[str, ...] = ()
    """Texts that ledger lines refer to by digest, each sent once."""
    gauges: tuple[Gauge, ...] = ()
    queued: int = 0
    spent_usd: float = 0.0
    hedged: int = 0
    """Late requests that were asked a second time, in total."""
    changes: tuple[Change, ...] = ()
    """Every change of what answers at an endpoint so far."""
    cache_lost: int = 0
    """Verdicts that the cache file did not take, in total."""
