"""Facets in the file: what a row has to itself beside it, what many rows have in common once. For `explain` only."""

from __future__ import annotations

import sqlite3

import msgspec

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(dict[str, str]).decode


class KeyPartsWriter:
    """Remembers which common parts the file already has. Used inside the writer's transactions."""

    def __init__(self) -> None:
        self._ids: dict[bytes, int] = {}
        self._last: tuple[dict[str, str], int] | None = None

    def columns(self, link: sqlite3.Connection, common: dict[str, str], own: dict[str, str]) -> tuple[int, bytes]:
        """The number of the common part, which is stored if it is new, and the row's own part."""
        if self._last is None or self._last[0] is not common:  # nearly always the same dict as before
            self._last = common, self._number(link, _encode(common))
        return self._last[1], _encode(own)

    def _number(self, link: sqlite3.Connection, common: bytes) -> int:
        number = self._ids.get(common)
        if number is None:
            link.execute("INSERT OR IGNORE INTO shared (facets) VALUES (?)", (common,))
            number = int(link.execute("SELECT id FROM shared WHERE facets = ?", (common,)).fetchone()[0])
            self._ids[common] = number
        return number

    def forget(self) -> None:
        """After a rollback nothing remembered is certain."""
        self._ids.clear()
        self._last = None


def read(data: object) -> dict[str, str]:
    """One part as it was; nothing if it cannot be read."""
    try:
        return _decode(data) if isinstance(data, bytes) else {}
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return {}
