"""One cached verdict and how it becomes bytes and back. A row that does not check out is a miss, never an error."""

from __future__ import annotations

import math
from hashlib import blake2b

import msgspec
from msgspec import Struct

from referee.records import Reply, Verdict

_CHECK = 16
_encoder = msgspec.msgpack.Encoder()


class Entry(Struct, frozen=True, kw_only=True, array_like=True, gc=False):
    """An accepted verdict, the reply behind it, and what it took to get it. `pack` relies on the order of fields."""

    verdict: Verdict
    reply: Reply
    cost: float = 0.0
    """US dollars it took. What a later hit saves."""
    created: float = 0.0
    """Wall time."""
    endpoint: str = ""
    """Label of the endpoint that answered."""
    common: dict[str, str] = {}
    own: dict[str, str] = {}
    """Facets of the key, for `explain`: those that many entries share, and the rest. Stored apart from the verdict: a
    lookup does not need them."""

    @property
    def facets(self) -> dict[str, str]:
        """Both parts together."""
        return self.common | self.own

    def __post_init__(self) -> None:
        # Checked here too, because not every caller is type-checked: a failure must never be cached.
        if not isinstance(self.verdict, Verdict):
            raise TypeError(f"only a Verdict is ever cached, not {type(self.verdict).__name__}")
        if not (math.isfinite(self.verdict.score) and math.isfinite(self.verdict.value)):
            raise ValueError("a verdict that is not a finite number is never cached")


_decoder = msgspec.msgpack.Decoder(Entry)
_facets_decoder = msgspec.msgpack.Decoder(dict[str, str])


def bare(entry: Entry) -> Entry:
    """The entry without its facets."""
    if not entry.common and not entry.own:
        return entry
    return Entry(
        verdict=entry.verdict, reply=entry.reply, cost=entry.cost, created=entry.created, endpoint=entry.endpoint
    )


def pack(key: str, entry: Entry) -> bytes:
    """A checksum over the key and the payload, then the payload. Facets are left out."""
    payload = _encoder.encode((entry.verdict, entry.reply, entry.cost, entry.created, entry.endpoint))
    return _checksum(key, payload) + payload


def unpack(key: str, data: object) -> Entry | None:
    """The entry, or None if the bytes are not what `pack` made for this very key."""
    if not isinstance(data, bytes) or len(data) <= _CHECK:
        return None
    payload = data[_CHECK:]
    if _checksum(key, payload) != data[:_CHECK]:
        return None
    try:
        return _decoder.decode(payload)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def pack_facets(facets: dict[str, str]) -> bytes:
    """One part of the facets as bytes."""
    return _encoder.encode(facets)


def unpack_facets(data: object) -> dict[str, str]:
    """One part of the facets; empty if it cannot be read."""
    try:
        return _facets_decoder.decode(data) if isinstance(data, bytes) else {}
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return {}


def digest(facets: bytes) -> int:
    """A number for packed facets that SQLite can hold: 63 bits."""
    return int.from_bytes(blake2b(facets, digest_size=8).digest(), "big") >> 1


def _checksum(key: str, payload: bytes) -> bytes:
    name = key.encode("utf-8", "surrogatepass")
    return blake2b(b"%d:%b%b" % (len(name), name, payload), digest_size=_CHECK).digest()
