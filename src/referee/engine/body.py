"""Bodies of answers: their largest size, and the content encodings that are unpacked."""

from __future__ import annotations

import zlib

from referee.engine.port import TransportFault

MAX_BODY = 4 * 1024 * 1024
"""Bytes of one decoded reply. A verdict is a few hundred; this stops a runaway or hostile server."""


def unpack(raw: bytes, encoding: str) -> bytes:
    """The body without its content encoding, never more than MAX_BODY of it in memory."""
    encoding = encoding.strip().lower()
    if encoding in ("", "identity"):
        return raw
    if encoding not in ("gzip", "deflate"):
        raise TransportFault("protocol", f"the server used content-encoding {encoding!r}, which was not asked for")
    unpacker = zlib.decompressobj(zlib.MAX_WBITS | 32)
    try:
        content = unpacker.decompress(raw, MAX_BODY)
    except zlib.error as error:
        raise TransportFault("protocol", f"bad {encoding} body: {error}") from None
    if unpacker.unconsumed_tail:
        raise too_large()
    if not unpacker.eof:
        raise TransportFault("cut", f"{encoding} body ends early")
    return content


def too_large(most: int = MAX_BODY) -> TransportFault:
    """The fault of a reply of more bytes than that."""
    return TransportFault("too_large", f"the reply passed {most} bytes")


def say(error: BaseException) -> str:
    """The text of a foreign error. Cut late: a key in it is redacted afterwards, and half a key would not be found."""
    return f"{type(error).__name__}: {error}"[:4000]
