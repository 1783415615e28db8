"""The SQL of the cache file, and opening connections to it. All values are parameters."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from referee import clock
from referee.cache.file import APPLICATION_ID

VERSION = 4
READ_WAIT_S = 0.05
"""Limit for a lookup to wait for a lock. It happens on the loop, and a miss only costs a call."""
WRITE_WAIT_S = 2.0
"""Limit for the writer to wait for another process's lock before it pauses."""
MAX_CHECKED_BYTES = 16 * 2**20
"""Files up to this size are checked page by page when they are opened."""
PAGE_CACHE_KIB = 4096
"""Pages each connection keeps: the index of 100,000 keys. Keys are digests, so lookups and inserts land all over it."""

CREATE = (
    # Parts that the keys of many rows have in common (judge, template, endpoint…) are stored once, by their digest.
    "CREATE TABLE shared (id INTEGER PRIMARY KEY, facets BLOB NOT NULL)",
    # A rowid table: rows are appended, and rowids order them by age. WITHOUT ROWID each random key would rewrite a page
    # of whole rows, at four times the CPU time.
    """CREATE TABLE entry (
    key BLOB PRIMARY KEY NOT NULL,
    created REAL NOT NULL,
    model TEXT NOT NULL,
    data BLOB NOT NULL,
    shared INTEGER NOT NULL,
    facets BLOB NOT NULL
)""",
)
INSERT = "INSERT OR REPLACE INTO entry (key, created, model, data, shared, facets) VALUES (?, ?, ?, ?, ?, ?)"
INSERT_SHARED = "INSERT OR IGNORE INTO shared (id, facets) VALUES (?, ?)"
TRIM = """DELETE FROM entry WHERE rowid IN (
    SELECT rowid FROM entry WHERE rowid <= (SELECT max(rowid) FROM entry) - ? ORDER BY rowid LIMIT ?)"""
_SIZE = ("page_count", "freelist_count", "page_size")


def select(keys: int) -> str:
    """The lookup of this many keys at once."""
    return f"SELECT key, data FROM entry WHERE key IN ({', '.join('?' * keys)})"  # noqa: S608


def trim(link: sqlite3.Connection, added: int, max_bytes: float) -> None:
    """In a transaction that has added rows: if the file holds more than `max_bytes`, delete twice as many of the
    oldest, but none of those just added. So it shrinks step by step, and no commit takes much longer."""
    used, free, size = (link.execute(f"PRAGMA {name}").fetchone()[0] for name in _SIZE)
    if (used - free) * size > max_bytes:
        link.execute(TRIM, (added, 2 * added))


FAULTS = (sqlite3.Error, MemoryError, UnicodeDecodeError)
"""What a call into SQLite may raise because of the file. The last: an error message that quotes a damaged page."""


def connect(path: Path, wait: float) -> sqlite3.Connection:
    """A connection in autocommit mode. Its owner makes sure that one thread uses it at a time."""
    link = sqlite3.connect(path, timeout=wait, isolation_level=None, check_same_thread=False)
    try:
        link.execute(f"PRAGMA cache_size = -{PAGE_CACHE_KIB:d}")
    except FAULTS:
        link.close()
        raise
    return link


def open_writer(path: Path) -> sqlite3.Connection:
    """The connection that writes; makes the tables if the file is new. Raises one of FAULTS if it cannot be used."""
    link = connect(path, WRITE_WAIT_S)
    try:
        # Before the log is switched on, so that the file's own first page says whose it is, whatever happens next.
        _ensure(link)
        link.execute("PRAGMA synchronous = NORMAL")
        if _write_ahead(link) != "wal":
            raise sqlite3.NotSupportedError(
                "the filesystem does not support SQLite's write-ahead log; name a local disk"
            )
        if path.stat().st_size <= MAX_CHECKED_BYTES:
            found = link.execute("PRAGMA quick_check(1)").fetchone()[0]
            if found != "ok":
                raise _malformed(found)
    except BaseException:
        link.close()
        raise
    return link


def _ensure(link: sqlite3.Connection) -> None:
    link.execute("BEGIN IMMEDIATE")
    try:
        tables = link.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
        owner = link.execute("PRAGMA application_id").fetchone()[0]
        version = link.execute("PRAGMA user_version").fetchone()[0]
        if tables == 0 and owner in (0, APPLICATION_ID):
            for table in CREATE:
                link.execute(table)
            link.execute(f"PRAGMA application_id = {APPLICATION_ID:d}")
            link.execute(f"PRAGMA user_version = {VERSION:d}")
        elif owner != APPLICATION_ID:
            raise sqlite3.NotSupportedError("it is another application's SQLite file")
        elif version != VERSION:
            raise sqlite3.NotSupportedError(
                f"it was written by another version of referee (format {version}, this one has {VERSION}); move it "
                "away, or name another file"
            )
        link.execute("COMMIT")
    except BaseException:
        if link.in_transaction:
            link.execute("ROLLBACK")
        raise


def _write_ahead(link: sqlite3.Connection) -> str:
    # Two processes that open a new file together may meet here, and SQLite does not wait by itself for this one.
    for _ in range(40):
        try:
            return str(link.execute("PRAGMA journal_mode = WAL").fetchone()[0])
        except sqlite3.OperationalError as error:
            if not is_busy(error):
                raise
        clock.pause(0.05)
    raise sqlite3.OperationalError("database is locked")


def _malformed(detail: str) -> sqlite3.DatabaseError:
    error = sqlite3.DatabaseError(detail)
    error.sqlite_errorcode = sqlite3.SQLITE_CORRUPT
    return error


def is_corrupt(error: Exception) -> bool:
    """True if the file itself is damaged."""
    return isinstance(error, UnicodeDecodeError) or _code(error) in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


def is_busy(error: Exception) -> bool:
    """True if another connection holds a lock."""
    return _code(error) in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


def _code(error: Exception) -> int:
    # The low byte is the primary code; errors raised by the Python module itself have none.
    code: int = getattr(error, "sqlite_errorcode", None) or 0
    return code & 0xFF
