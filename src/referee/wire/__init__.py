"""Our request to provider JSON, and status, headers, body back to a Reply or a Failure. Pure: no clock, no I/O."""

from referee.wire.classify import classify
from referee.wire.fault import from_fault
from referee.wire.hints import hints
from referee.wire.redact import Redactor
from referee.wire.request import DIALECT, Adaptation, Encoder, adapt, chat_url, encode, headers
from referee.wire.scrub import scrub

__all__ = [
    "DIALECT",
    "Adaptation",
    "Encoder",
    "Redactor",
    "adapt",
    "chat_url",
    "classify",
    "encode",
    "from_fault",
    "headers",
    "hints",
    "scrub",
]
