"""What crosses the border between a trainer's process and the places that judge for it. Data and its encoding only.

Everything is a msgspec Struct in msgpack, never a pickle. A sample is named by its batch's ticket and its index.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Struct

from referee.config import Config, Secret
from referee.limits.shares import Grant, Report
from referee.records import Origin, Reply, Sample, Settled, Unscored, Verdict


class Open(Struct, frozen=True, array_like=True, tag=1):
    """First to a worker: everything it needs. Holds keys: it travels over a private pipe and nowhere else."""

    version: str
    config: bytes
    """From `pack_config`."""
    members: int
    """How many share the limits, and which of them this is."""
    rank: int
    lines: bool
    """Whether ledger lines are wanted."""
    level: int = 30
    """Log records from this level on are sent back."""


class Work(Struct, frozen=True, array_like=True, tag=2):
    """Samples of one batch to judge."""

    ticket: int
    """Names the batch at the side that sent it."""
    batch: str
    """Its name in records."""
    seconds: float
    """What is left of its time."""
    indexes: tuple[int, ...]
    samples: tuple[Sample, ...]
    caller: str = ""


class Cancel(Struct, frozen=True, array_like=True, tag=3):
    """Stop judging a batch: everything of it that has no end gets one now."""

    ticket: int
    why: Unscored


class Granted(Struct, frozen=True, array_like=True, tag=4):
    """The answer to Asked."""

    grant: Grant


class Leave(Struct, frozen=True, array_like=True, tag=5):
    """Finish: cancel everything, land it, write the cache out, and end."""


class Nudge(Struct, frozen=True, array_like=True, tag=6):
    """Others want more of the shared limits than is free: report soon."""


Inbound = Open | Work | Cancel | Granted | Leave | Nudge


class End(Struct, frozen=True, array_like=True, gc=False):
    """How one sample's judging ended: a Settled that can be told apart when decoded, and its ledger line."""

    index: int
    line: bytes
    """The encoded verdict line, without `seq`. Empty when no ledger is kept."""
    verdict: Verdict | None
    unscored: Unscored | None
    origin: Origin
    key: str
    reply: Reply | None
    endpoint: str
    attempts: int
    sent: float
    queued_s: float
    latency_s: float
    cost: float
    saved: float


class Part(Struct, frozen=True, array_like=True, gc=False):
    """Ends of samples of one batch."""

    ticket: int
    ends: tuple[End, ...]
    closed: tuple[str, str] | None = None
    """No endpoint can answer any more: the reason's name, and the message for the user."""


class Gauge(Struct, frozen=True, array_like=True, gc=False):
    """How hard one endpoint is pressed from one place."""

    endpoint: str
    limit: int
    """The whole limit, shared or not; 0 when the endpoint is closed."""
    in_flight: int
    sent: int
    throttled: int


class Landed(Struct, frozen=True, array_like=True, tag=10):
    """Ends, gathered for a moment. May be empty, to tell how things stand."""

    parts: tuple[Part, ...]
    texts: tuple[str, ...] = ()
    """Texts that ledger lines refer to by digest, each sent once."""
    gauges: tuple[Gauge, ...] = ()
    queued: int = 0
    spent_usd: float = 0.0
    hedged: int = 0
    """Late requests that were asked a second time, in total."""


class Asked(Struct, frozen=True, array_like=True, tag=11):
    """A report for the broker of the shared limits."""

    report: Report


class Ready(Struct, frozen=True, array_like=True, tag=12):
    """A worker has taken Open and waits for work; or it could not, and this is why."""

    version: str
    trouble: str = ""
    kind: str = ""
    """Name of the exception's class in referee.errors."""


class Note(Struct, frozen=True, array_like=True, tag=13):
    """A log record of a far side, to be logged here."""

    level: int
    logger: str
    text: str


Outbound = Landed | Asked | Ready | Note

_encoder = msgspec.msgpack.Encoder()
_inbound: msgspec.msgpack.Decoder[Inbound] = msgspec.msgpack.Decoder(Inbound)
_outbound: msgspec.msgpack.Decoder[Outbound] = msgspec.msgpack.Decoder(Outbound)


def encode(message: Inbound | Outbound) -> bytes:
    """The message as bytes. Halves of characters (lone surrogates), which no encoding has, are replaced."""
    try:
        return _encoder.encode(message)
    except UnicodeEncodeError:
        return _encoder.encode(_without_surrogates(msgspec.to_builtins(message, builtin_types=(bytes,))))


def decode_inbound(data: bytes | memoryview) -> Inbound:
    """A message to a far side."""
    return _inbound.decode(data)


def decode_outbound(data: bytes | memoryview) -> Outbound:
    """A message from a far side."""
    return _outbound.decode(data)


def end_of(index: int, settled: Settled, line: bytes) -> End:
    """How one sample ended, ready to travel."""
    verdict = settled.verdict
    scored = isinstance(verdict, Verdict)
    return End(
        index,
        line,
        verdict if scored else None,  # type: ignore[arg-type]
        None if scored else verdict,  # type: ignore[arg-type]
        settled.origin,
        settled.key,
        settled.reply,
        settled.endpoint,
        settled.attempts,
        settled.sent,
        settled.queued_s,
        settled.latency_s,
        settled.cost,
        settled.saved,
    )


def settled_of(end: End) -> Settled:
    """The same as the rest of referee knows it."""
    verdict = end.verdict if end.verdict is not None else end.unscored
    assert verdict is not None
    return Settled(
        verdict=verdict,
        origin=end.origin,
        key=end.key,
        reply=end.reply,
        endpoint=end.endpoint,
        attempts=end.attempts,
        sent=end.sent,
        queued_s=end.queued_s,
        latency_s=end.latency_s,
        cost=end.cost,
        saved=end.saved,
    )


def pack_config(config: Config) -> bytes:
    """A configuration with its keys, for a private pipe. Use `Config.public` for anything that may be seen."""
    return msgspec.msgpack.encode(config, enc_hook=_reveal)


def unpack_config(data: bytes) -> Config:
    """The configuration, keys as Secrets again."""
    return msgspec.msgpack.decode(data, type=Config, dec_hook=_conceal)


def _reveal(value: Any) -> str:
    if isinstance(value, Secret):
        return value.reveal()
    raise NotImplementedError(type(value).__name__)


def _conceal(kind: type, value: Any) -> Any:
    if kind is Secret:
        return Secret(value)
    raise NotImplementedError(kind)


def _without_surrogates(data: Any) -> Any:
    if isinstance(data, str):
        return data.encode("utf-8", "replace").decode()
    if isinstance(data, dict):
        return {_without_surrogates(key): _without_surrogates(value) for key, value in data.items()}
    if isinstance(data, list | tuple):
        return [_without_surrogates(item) for item in data]
    return data
