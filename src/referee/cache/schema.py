"""The SQL of the cache file, and opening connections to it. All values are parameters."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from referee import clock
from referee.cache.file import APPLICATION_ID

VERSION = 3
READ_WAIT = 0.05
"""Seconds a lookup may wait for a lock. It happens on the loop, and a miss only costs a call."""
WRITE_WAIT = 2.0
"""Seconds the writer waits for another process's lock before it gives up for a while."""
CHECKED = 16 * 2**20
"""Bytes up to which a file is checked page by page when it is opened."""

PAGE_CACHE = 4 * 2**20
"""Bytes of pages each connection may keep. Keys are digests, so lookups and inserts land all over the index."""
MARK = 15
"""The first hex digits of a key make its mark: 60 bits, what fits a whole number of SQLite's."""

CREATE = (
    # What many rows have in common (judge, template, endpoint…) is stored once.
    "CREATE TABLE shared (id INTEGER PRIMARY KEY, facets BLOB NOT NULL UNIQUE)",
    # Rows are found by their mark: an index of numbers has 0.4 of the pages that one of keys has. `rest` is the rest of
    # the key.
    """CREATE TABLE entry (
    mark INTEGER NOT NULL UNIQUE,
    rest TEXT NOT NULL,
    created REAL NOT NULL,
    model TEXT NOT NULL,
    data BLOB NOT NULL,
    shared INTEGER NOT NULL,
    facets BLOB NOT NULL
)""",
)
SELECT = "SELECT data FROM entry WHERE mark = ?"
TRIM = """DELETE FROM entry WHERE rowid IN (
    SELECT rowid FROM entry WHERE rowid <= (SELECT max(rowid) FROM entry) - ? ORDER BY rowid LIMIT ?)"""
_SIZE = ("page_count", "freelist_count", "page_size")
_ROW = "(?, ?, ?, ?, ?, ?, ?)"
_COLUMNS = "mark, rest, created, model, data, shared, facets"


def mark(key: str) -> int:
    """The number a key is found by. Should two keys ever share one, the later row takes the place of the earlier, which
    then is missed; a row is only read for the key it was written for."""
    return int(key[:MARK], 16)


def key_of(number: int, rest: str) -> str:
    """The key of a row."""
    return f"{number:0{MARK}x}{rest}"


def insert(rows: int) -> str:
    """The statement for so many rows. One statement for many: the interpreter lock changes hands once, not per row."""
    return f"INSERT OR REPLACE INTO entry ({_COLUMNS}) VALUES {', '.join([_ROW] * rows)}"  # noqa: S608


def select_many(keys: int) -> str:
    """The lookup of so many marks at once."""
    return f"SELECT mark, data FROM entry WHERE mark IN ({', '.join('?' * keys)})"  # noqa: S608


def trim(link: sqlite3.Connection, added: int, most: float) -> None:
    """Inside a transaction that has added rows: if the file holds more bytes than `most`, twice as many of the oldest
    go, but none of those just added. So it shrinks to its bound step by step, and no commit takes much longer."""
    used, free, size = (link.execute(f"PRAGMA {name}").fetchone()[0] for name in _SIZE)
    if (used - free) * size > most:
        link.execute(TRIM, (added, 2 * added))


FAULTS = (sqlite3.Error, MemoryError, UnicodeDecodeError)
"""What a call into SQLite may raise because of the file. The last: an error message that quotes a damaged page."""


def connect(path: Path, wait: float) -> sqlite3.Connection:
    """A connection in autocommit mode. Its owner sees to it that one thread uses it at a time."""
    link = sqlite3.connect(path, timeout=wait, isolation_level=None, check_same_thread=False)
    try:
        link.execute(f"PRAGMA cache_size = -{PAGE_CACHE // 1024:d}")
    except FAULTS:
        link.close()
        raise
    return link


def open_writer(path: Path) -> sqlite3.Connection:
    """The connection that writes; makes the tables if the file is new. Raises one of FAULTS if it cannot be used."""
    link = connect(path, WRITE_WAIT)
    try:
        # Before the log is switched on, so that the file's own first page says whose it is, whatever happens next.
        _ensure(link)
        link.execute("PRAGMA synchronous = NORMAL")
        if _write_ahead(link) != "wal":
            raise sqlite3.NotSupportedError(
                "the filesystem does not support SQLite's write-ahead log; name a local disk"
            )
        if path.stat().st_size <= CHECKED:
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
    """True if somebody else holds a lock."""
    return _code(error) in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


def _code(error: Exception) -> int:
    # The low byte is the primary code; errors raised by the Python module itself have none.
    code: int = getattr(error, "sqlite_errorcode", None) or 0
    return code & 0xFF
