"""What crosses the border between a trainer's process and its workers, and its encoding.

Everything is a msgspec Struct in msgpack, never a pickle. Samples and results are those of `scoring.messages`.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Struct

from referee.config import Config, Secret
from referee.ledger.writer import encode_replacing
from referee.limits.quota_broker import Grant, Report
from referee.scoring.messages import Cancel, Fault, Update, Work


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


class Granted(Struct, frozen=True, array_like=True, tag=4):
    """The answer to Asked."""

    grant: Grant


class Leave(Struct, frozen=True, array_like=True, tag=5):
    """Finish: cancel everything, land it, write the cache out, and end."""


class Nudge(Struct, frozen=True, array_like=True, tag=6):
    """Others want more of the shared limits than is free: report soon."""


Inbound = Open | Work | Cancel | Granted | Leave | Nudge


class Asked(Struct, frozen=True, array_like=True, tag=11):
    """A report for the broker of the shared limits."""

    report: Report


class Ready(Struct, frozen=True, array_like=True, tag=12):
    """A worker has taken Open and waits for work; or it could not, and this is why."""

    version: str
    fault: Fault | None = None


class Note(Struct, frozen=True, array_like=True, tag=13):
    """A log record of a worker, to be logged here."""

    level: int
    logger: str
    text: str


Outbound = Update | Asked | Ready | Note

_encoder = msgspec.msgpack.Encoder()
_inbound: msgspec.msgpack.Decoder[Inbound] = msgspec.msgpack.Decoder(Inbound)
_outbound: msgspec.msgpack.Decoder[Outbound] = msgspec.msgpack.Decoder(Outbound)


def encode(message: Struct) -> bytes:
    """The message as bytes. Halves of characters (lone surrogates), which no encoding has, are replaced."""
    return encode_replacing(_encoder.encode, message)


def decode_inbound(data: bytes | memoryview) -> Inbound:
    """A message to a worker."""
    return _inbound.decode(data)


def decode_outbound(data: bytes | memoryview) -> Outbound:
    """A message from a worker."""
    return _outbound.decode(data)


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
