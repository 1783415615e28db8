"""Facets in the file: what a row has to itself beside it, what many rows have in common once. For `explain` only."""

from __future__ import annotations

import sqlite3

import msgspec

OWN = ("prompt", "reference", "response")
"""Facets that differ from row to row."""

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(dict[str, str]).decode


class FacetWriter:
    """Splits facets and remembers which common parts the file already has. Used inside the writer's transactions."""

    def __init__(self) -> None:
        self._ids: dict[bytes, int] = {}

    def split(self, link: sqlite3.Connection, facets: dict[str, str]) -> tuple[int, bytes]:
        """The number of the common part, which is stored if it is new, and the row's own part."""
        rest = facets.copy()
        own = {name: rest.pop(name) for name in OWN if name in rest}
        shared = _encode(rest)
        number = self._ids.get(shared)
        if number is None:
            link.execute("INSERT OR IGNORE INTO shared (facets) VALUES (?)", (shared,))
            number = int(link.execute("SELECT id FROM shared WHERE facets = ?", (shared,)).fetchone()[0])
            self._ids[shared] = number
        return number, _encode(own)

    def forget(self) -> None:
        """After a rollback nothing remembered is certain."""
        self._ids.clear()


def join(shared: object, own: object) -> dict[str, str]:
    """Both parts together; a part that cannot be read is left out."""
    return _read(shared) | _read(own)


def _read(data: object) -> dict[str, str]:
    try:
        return _decode(data) if isinstance(data, bytes) else {}
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return {}
