"""Our request to provider JSON, and status, headers, body back to a Reply or a Failure. Pure: no clock, no I/O.

`Dialect` is one provider API, `find_dialect` finds one by the name in endpoint.api. The rest is what dialects have in
common: errors, rate-limit headers, JSON.
"""

from referee.wire.chat import CHAT, Chat
from referee.wire.dialect import (
    PLAIN,
    SCHEMA,
    TIER,
    Adaptation,
    Dialect,
    Encoder,
    adapt,
    common_headers,
    complete_url,
    json_bytes,
    json_text,
    pictures,
)
from referee.wire.failure import failure, inner_failure, odd_answer, open_answer, request_id
from referee.wire.fault import from_fault
from referee.wire.hints import hints
from referee.wire.redact import Redactor
from referee.wire.registry import find_dialect
from referee.wire.responses import RESPONSES, Responses
from referee.wire.scrub import scrub

__all__ = [
    "CHAT",
    "PLAIN",
    "RESPONSES",
    "SCHEMA",
    "TIER",
    "Adaptation",
    "Chat",
    "Dialect",
    "Encoder",
    "Redactor",
    "Responses",
    "adapt",
    "common_headers",
    "complete_url",
    "failure",
    "find_dialect",
    "from_fault",
    "hints",
    "inner_failure",
    "json_bytes",
    "json_text",
    "odd_answer",
    "open_answer",
    "pictures",
    "request_id",
    "scrub",
]
