"""What a batch run must not forget, in a SQLite file of its own: on disk before anything is sent that costs money.

Order of events, each committed before the next: the batch with its token and its requests (`intend`), its id at the
provider (`created`), the answers (`collected`). A kill between the first two leaves a batch that may or may not exist;
it is searched for by its token. Answers are kept until the whole run is complete: a run that is resumed asks the same
questions and is given them again. Requests are known by a digest, so the file holds no prompts; it holds replies, and
the secret that makes a resumed run write the same bytes, so only its owner can read it.
"""

from __future__ import annotations

import os
import secrets
import sqlite3
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from referee import clock
from referee.errors import ConfigError

FILE = "batches.sqlite"
VERSION = 1
_SCHEMA = """
CREATE TABLE IF NOT EXISTS run (name TEXT NOT NULL, secret BLOB NOT NULL, started REAL NOT NULL, process INTEGER);
CREATE TABLE IF NOT EXISTS batches (
    number INTEGER PRIMARY KEY, token TEXT NOT NULL, endpoint TEXT NOT NULL, state TEXT NOT NULL, remote TEXT NOT NULL,
    created REAL NOT NULL, items INTEGER NOT NULL, done INTEGER NOT NULL
);
CREATE TABLE IF NOT EXISTS items (
    digest BLOB NOT NULL, n INTEGER NOT NULL, batch INTEGER, place INTEGER, tries INTEGER NOT NULL,
    status INTEGER, reply BLOB, given INTEGER, PRIMARY KEY (digest, n)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS by_batch ON items (batch) WHERE batch IS NOT NULL;
"""
INTENDED, RUNNING, STOPPED = "intended", "running", "stopped"
"""States of batches that are not over: perhaps created, created for certain, and given up by the user, with answers
that a resumed run may still collect. Other states say how it ended."""


class Item(NamedTuple):
    """A request: the digest of its bytes, and how often the same bytes were asked before."""

    digest: bytes
    n: int

    def name(self, token: str) -> str:
        """Its custom_id in a batch."""
        return f"{token}-{self.digest.hex()}-{self.n}"


def item_of(name: str) -> Item | None:
    """The request of a custom_id, if it is one of ours."""
    try:
        _, digest, n = name.rsplit("-", 2)
        return Item(bytes.fromhex(digest), int(n))
    except ValueError:
        return None


class Known(NamedTuple):
    """What is known of a request."""

    batch: int | None
    """The batch it is in, while that is not over."""
    status: int | None
    reply: bytes | None
    given: bool
    """Its answer was handed out in this process: the same bytes are another request now."""


class Listed(NamedTuple):
    """One batch. Fields as in the table."""

    number: int
    token: str
    endpoint: str
    state: str
    remote: str
    created: float
    items: int
    done: int

    @property
    def open(self) -> bool:
        """Its answers are not collected."""
        return self.state in (INTENDED, RUNNING, STOPPED)


class Stored(NamedTuple):
    """An answer to keep."""

    item: Item
    status: int
    reply: bytes
    given: bool


class Journal:
    """The file. Used from one thread at a time."""

    def __init__(self, folder: Path, readonly: bool = False) -> None:
        self.path = folder / FILE
        if not readonly:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            os.close(os.open(self.path, os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), 0o600))
        elif not self.path.exists():
            raise ConfigError(f"{folder}: no batches were sent from here (there is no {FILE}).")
        try:
            self._db = sqlite3.connect(self.path, check_same_thread=False)
            self._check_version()
            if readonly:
                return
            self._db.execute(f"PRAGMA user_version = {VERSION}")
            self._db.execute("PRAGMA journal_mode = WAL")
            self._db.execute("PRAGMA synchronous = FULL")
            self._db.executescript(_SCHEMA)
        except sqlite3.DatabaseError as error:
            raise ConfigError(
                f"{self.path}: {error}. It says which batches are paid for: move it away only if you give those up."
            ) from None
        self._begin()

    def _check_version(self) -> None:
        found = self._db.execute("PRAGMA user_version").fetchone()[0]
        if found not in (0, VERSION):  # 0: new, or written before versions were
            raise ConfigError(
                f"{self.path} was written by another version of referee (format {found}, this one has {VERSION}). It "
                "says which batches are paid for: go on with that version."
            )

    def _begin(self) -> None:
        found = self._db.execute("SELECT name, secret, started, process FROM run").fetchone()
        if found is None:
            found = (secrets.token_hex(5), secrets.token_bytes(32), clock.wall(), 0)
            self._db.execute("INSERT INTO run VALUES (?, ?, ?, ?)", found)
        self.run: str = found[0]
        """Begins the token of each of its batches."""
        self.secret: bytes = found[1]
        self.process: int = found[3] + 1
        self._db.execute("UPDATE run SET process = ?", (self.process,))
        self._db.commit()

    def find(self, digest: bytes) -> dict[int, Known]:
        """What is known of requests of these bytes, by n."""
        found = self._db.execute("SELECT n, batch, status, reply, given FROM items WHERE digest = ?", (digest,))
        return {n: Known(batch, status, reply, given == self.process) for n, batch, status, reply, given in found}

    def given(self, item: Item) -> None:
        """An answer of an earlier process is handed out. Lost by a kill, which is right: it holds for this process."""
        self._db.execute("UPDATE items SET given = ? WHERE digest = ? AND n = ?", (self.process, *item))

    def intend(self, endpoint: str, items: Sequence[Item]) -> Listed:
        """A batch of these requests is about to be created."""
        number = self._db.execute("SELECT coalesce(max(number), 0) + 1 FROM batches").fetchone()[0]
        batch = Listed(number, f"{self.run}-{number}", endpoint, INTENDED, "", clock.wall(), len(items), 0)
        self._db.execute("INSERT INTO batches VALUES (?, ?, ?, ?, ?, ?, ?, ?)", batch)
        self._db.executemany(
            "INSERT INTO items (digest, n, batch, place, tries) VALUES (?, ?, ?, ?, 1) ON CONFLICT DO UPDATE "
            "SET batch = excluded.batch, place = excluded.place, tries = tries + 1",
            [(*item, number, place) for place, item in enumerate(items)],
        )
        self._db.commit()
        return batch

    def created(self, number: int, remote: str) -> None:
        """The provider has created a batch."""
        self._db.execute("UPDATE batches SET state = ?, remote = ? WHERE number = ?", (RUNNING, remote, number))
        self._db.commit()

    def stopped(self, number: int, remote: str) -> None:
        """The user has cancelled a batch."""
        self._db.execute("UPDATE batches SET state = ?, remote = ? WHERE number = ?", (STOPPED, remote, number))
        self._db.commit()

    def progress(self, number: int, done: int) -> None:
        """This many of its requests have an answer at the provider."""
        self._db.execute("UPDATE batches SET done = ? WHERE number = ?", (done, number))
        self._db.commit()

    def items_of(self, number: int) -> list[tuple[Item, int]]:
        """The requests of a batch in the order they were sent, and in how many batches each has been."""
        found = self._db.execute("SELECT digest, n, tries FROM items WHERE batch = ? ORDER BY place", (number,))
        return [(Item(digest, n), tries) for digest, n, tries in found]

    def collected(self, number: int, state: str, stored: Iterable[Stored], afresh: Iterable[Item] = ()) -> None:
        """A batch is over. Its requests without an answer may be sent again; `afresh`: as if for the first time."""
        self._db.executemany(
            "UPDATE items SET status = ?, reply = ?, given = ? WHERE digest = ? AND n = ?",
            [(one.status, one.reply, self.process if one.given else 0, *one.item) for one in stored],
        )
        self._db.execute("UPDATE items SET batch = NULL WHERE batch = ?", (number,))
        self._db.executemany("UPDATE items SET tries = 0 WHERE digest = ? AND n = ?", list(afresh))
        self._db.execute("UPDATE batches SET state = ? WHERE number = ?", (state, number))
        self._db.commit()

    def batch(self, number: int) -> Listed:
        """One batch."""
        return Listed(*self._db.execute("SELECT * FROM batches WHERE number = ?", (number,)).fetchone())

    def batches(self) -> list[Listed]:
        """All batches, the oldest first. None where a process was killed before it had made the tables."""
        if self._db.execute("SELECT 1 FROM sqlite_master WHERE name = 'batches'").fetchone() is None:
            return []
        return [Listed(*row) for row in self._db.execute("SELECT * FROM batches ORDER BY number")]

    def finish(self) -> None:
        """The run is complete: forget its answers and its secret, keep the list of batches. Not while a batch is open:
        its answers are paid for."""
        if not any(batch.open for batch in self.batches()):
            self._db.execute("DELETE FROM items")
            self._db.execute("DELETE FROM run")
            self._db.commit()
            self._db.execute("VACUUM")

    def close(self) -> None:
        """Write out what is pending."""
        self._db.commit()
        self._db.close()
