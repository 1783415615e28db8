"""Reading through a cache file and pruning it: for the command line, never on the loop."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path
from string import hexdigits
from typing import Any

from msgspec.structs import replace

from referee.cache.entry import Entry, unpack, unpack_facets
from referee.cache.file import BESIDE
from referee.cache.key import KEY_BYTES
from referee.cache.schema import is_busy

NOTHING: dict[str, Any] = {"rows": 0, "bytes": 0, "oldest": None, "newest": None, "models": {}, "problem": ""}
_ROWS = "SELECT key, data, shared.facets, entry.facets FROM entry LEFT JOIN shared ON shared.id = entry.shared"


def stats(link: sqlite3.Connection, path: Path) -> dict[str, Any]:
    """Counts, size on disk, age, and rows by model."""
    rows = link.execute("SELECT count(*) FROM entry").fetchone()[0]
    # `created` has no checksum; a damaged one may be of any type, or in no calendar.
    times = "SELECT min(created), max(created) FROM entry WHERE typeof(created) = 'real' AND created BETWEEN 0 AND 1e11"
    oldest, newest = link.execute(times).fetchone()
    models = link.execute("SELECT model, count(*) FROM entry GROUP BY model ORDER BY count(*) DESC, model").fetchall()
    parts = (path, *(path.with_name(path.name + suffix) for suffix in BESIDE))
    size = sum(part.stat().st_size for part in parts if part.exists())
    return NOTHING | {"rows": rows, "bytes": size, "oldest": oldest, "newest": newest, "models": dict(models)}


def prune(
    link: sqlite3.Connection, wall: float, older_than_s: float | None, keep_newest: int | None, everything: bool
) -> int:
    """Delete what any of the conditions names; return the space to the disk unless another process uses the file."""
    link.execute("BEGIN IMMEDIATE")
    gone = 0
    if everything:
        gone += link.execute("DELETE FROM entry").rowcount
    if older_than_s is not None:
        gone += link.execute("DELETE FROM entry WHERE created < ?", (wall - older_than_s,)).rowcount
    if keep_newest is not None:
        gone += link.execute(
            "DELETE FROM entry WHERE rowid NOT IN (SELECT rowid FROM entry ORDER BY created DESC, rowid DESC LIMIT ?)",
            (max(0, keep_newest),),
        ).rowcount
    link.execute("COMMIT")
    if gone:
        try:
            link.execute("VACUUM")
            link.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        except sqlite3.OperationalError as error:
            if not is_busy(error):
                raise
    return gone


def find(link: sqlite3.Connection, prefix: str, limit: int) -> Iterator[tuple[str, Entry]]:
    """Readable entries whose key starts with `prefix`."""
    if not set(prefix) <= set(hexdigits.lower()) or len(prefix) > 2 * KEY_BYTES:
        return iter(())
    least, most = (bytes.fromhex(prefix.ljust(2 * KEY_BYTES, digit)) for digit in "0f")
    return _readable(link.execute(f"{_ROWS} WHERE key BETWEEN ? AND ? ORDER BY key LIMIT ?", (least, most, limit)))


def entries(link: sqlite3.Connection) -> Iterator[tuple[str, Entry]]:
    """All readable entries, oldest first."""
    return _readable(link.execute(f"{_ROWS} ORDER BY entry.rowid"))


def _readable(rows: sqlite3.Cursor) -> Iterator[tuple[str, Entry]]:
    for name, data, shared, own in rows:
        key = name.hex() if isinstance(name, bytes) else ""  # a damaged row can hold anything
        entry = unpack(key, data)
        if entry is not None:
            yield key, replace(entry, common=unpack_facets(shared), own=unpack_facets(own))
