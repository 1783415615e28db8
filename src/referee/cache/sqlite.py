"""The cache in a SQLite file: looked up on the caller's thread, written by a thread of its own in group commits.

No fault of the file reaches the caller: a damaged row is a miss; a file that cannot be used, or no longer, is one
warning, and from then on every lookup misses and nothing is stored. A verdict is never wrong.

Safe across fork: no thread is inside SQLite when the process forks, and the child closes what it inherited and opens
its own connections at first use.
"""

from __future__ import annotations

import contextlib
import logging
import math
import os
import sqlite3
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from referee import clock
from referee.cache import file, fork_safety, upkeep
from referee.cache.entry import Entry, digest, pack, pack_facets, unpack
from referee.cache.port import Done, run_all
from referee.cache.schema import (
    FAULTS,
    INSERT,
    INSERT_SHARED,
    READ_WAIT_S,
    VERSION,
    WRITE_WAIT_S,
    connect,
    is_busy,
    is_corrupt,
    open_writer,
    select,
    trim,
)
from referee.errors import ConfigError

log = logging.getLogger("referee.cache")

Notify = Callable[[list[Done]], None]
"""Runs the `done` calls of one commit. Called on the writer thread."""

LOOKUP_KEYS = 900
"""Keys in one lookup: some SQLite libraries take no more than 999 in a statement."""
COMMIT_ROWS = 1024
"""Rows per commit at most."""
COMMIT_INTERVAL_S = 0.05
"""Least time between commits, so that more rows share one: it costs as much as many rows. `hurry` ends the wait."""
RETRY_S = 30.0
"""Pause after a failed write: a full disk or another process's lock may go away."""
CLOSE_S = 5.0
"""Limit for `close` to write out what is queued."""

Item = tuple[str, Entry, Done | None]


class SqliteCache:
    """Used from one thread, and by its own writer thread. `problem` says why nothing is stored, or is empty.

    Upkeep (`stats`, `prune`, `find`, `entries`) is for the command line and raises ConfigError if the file is at fault.
    """

    def __init__(self, path: str | Path, notify: Notify | None = None, max_bytes: float = math.inf) -> None:
        """Where the file is larger than `max_bytes`, the oldest entries are deleted."""
        self.path = Path(path)
        self._max_bytes = max_bytes
        self.problem = ""
        self._notify = notify or run_all
        self._closed = False
        self._warned: set[str] = set()
        self._resume_at = float("-inf")
        self._refused = self._failed = 0
        """Verdicts that were not stored, counted by the caller's thread and by the writer's."""
        self._inode = 0
        self._reader: sqlite3.Connection | None = None
        self._writer: sqlite3.Connection | None = None
        self._thread: threading.Thread | None = None
        self._queue: SimpleQueue[Item | None] = SimpleQueue()
        self._hurry = threading.Event()
        self._pid = os.getpid()
        self.read_lock = threading.Lock()
        self.write_lock = threading.Lock()
        try:
            # Absolute from now on: a trainer may change its directory.
            self.path = self.path.expanduser().absolute()
        except (OSError, RuntimeError) as error:  # no home, or the current directory is gone
            self._give_up(f"it cannot be used ({error})")
        else:
            self._open()
        fork_safety.watch(self)

    def get(self, key: str) -> Entry | None:
        """The entry, or None: not there, damaged, or no file."""
        return self.get_many([key]).get(key)

    def get_many(self, keys: Sequence[str]) -> dict[str, Entry]:
        """The entries of these keys that are there."""
        if self._pid != os.getpid():
            self._after_fork()
        if self._reader is None or not keys:
            return {}
        wanted = {bytes.fromhex(key): key for key in keys}
        names, rows = list(wanted), []
        try:
            with self.read_lock:
                for at in range(0, len(names), LOOKUP_KEYS):
                    some = names[at : at + LOOKUP_KEYS]
                    rows += self._reader.execute(select(len(some)), some).fetchall()
        except FAULTS as error:
            self._read_failed(error)
            return {}
        found = {}
        for name, data in rows:
            key = wanted.get(name, "")  # in a damaged file the index can lead to a row of another key
            entry = unpack(key, data)
            if entry is not None:
                found[key] = entry
            else:
                self._warn("row", "a row is damaged; verdicts in damaged rows are asked for again")
        return found

    def expect(self, keys: Sequence[str]) -> None:
        """Nothing to prepare: the memory in front of it does."""

    def put(self, key: str, entry: Entry, done: Done | None = None) -> bool:
        """Queue it for the next commit; see the port for `done`."""
        if not isinstance(entry, Entry):
            raise TypeError(f"only an Entry is ever cached, not {type(entry).__name__}")
        if self._pid != os.getpid():
            self._after_fork()
        if self._writer is None or self._closed or (self._resume_at > 0 and clock.monotonic() < self._resume_at):
            self._refused += not self._closed
            return False
        if self._thread is None and not self._start():
            return False
        self._queue.put((key, entry, done))
        return True

    @property
    def lost(self) -> int:
        """Verdicts that the file did not take."""
        return self._refused + self._failed

    def hurry(self) -> None:
        """Commit what is queued now."""
        self._hurry.set()

    def close(self) -> None:
        """Write out what is queued, wait a few seconds at most, close the file."""
        if self._closed:
            return
        self._closed = True
        if self._pid != os.getpid():
            return  # a child that never used it: nothing here is its own
        thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            self._queue.put(None)
            thread.join(CLOSE_S)
            if thread.is_alive():
                log.warning("cache.path %s: the last verdicts could not be written within %g s", self.path, CLOSE_S)
                return
        with fork_safety.opening:
            self._close_connections()

    def stats(self) -> dict[str, Any]:
        """Rows, bytes, oldest and newest (wall time), rows by model. A full scan: not for the loop."""
        with self._upkeep() as link:
            return upkeep.stats(link, self.path) if link else upkeep.NOTHING | {"problem": self.problem}

    def prune(self, older_than_s: float | None = None, keep_newest: int | None = None, everything: bool = False) -> int:
        """Delete by age, by number, or all; returns the number of deleted rows."""
        with self._upkeep() as link:
            return upkeep.prune(link, clock.wall(), older_than_s, keep_newest, everything) if link else 0

    def find(self, prefix: str, limit: int = 100) -> list[tuple[str, Entry]]:
        """Entries whose key starts with `prefix`, in order of key."""
        with self._upkeep() as link:
            return list(upkeep.find(link, prefix, limit)) if link else []

    def entries(self) -> Iterator[tuple[str, Entry]]:
        """Every readable entry, oldest first. A full scan: not for the loop."""
        with self._upkeep() as link:
            if link:
                yield from upkeep.entries(link)

    def __repr__(self) -> str:
        return f"SqliteCache({str(self.path)!r}{', ' + self.problem if self.problem else ''})"

    # Opening and closing.

    def _open(self) -> None:
        with fork_safety.opening:
            problem, why = self._try_open()
            if why:
                aside = file.set_aside(self.path, self._inode, why)
                what = "damaged" if why.startswith("corrupt") else "of an earlier format and kept as it is"
                if aside:
                    log.warning("cache.path %s: %s, so it is now %s and a new one is begun.", self.path, what, aside)
                problem, _ = self._try_open()
        if problem:
            self._give_up(problem)

    def _try_open(self) -> tuple[str, str]:
        """What is wrong, or "", and if a new file would fix it, what the name of the present one is to end with."""
        problem = file.prepare(self.path)
        if problem:
            return problem, ""
        try:
            self._inode = self.path.stat().st_ino
            kind = file.inspect(self.path)
            if kind == "foreign":
                return "it is not a cache of referee's and is left as it is", ""
            if kind == "broken":
                return "it is not a SQLite file", _corrupt()
            if kind == "ours" and 0 < (version := file.format_of(self.path)) < VERSION:
                return f"it has an earlier format ({version}) and cannot be renamed", f"format-{version}"
            self._writer = open_writer(self.path)
            file.make_private(self.path)
            self._reader = connect(self.path, READ_WAIT_S)
            self._reader.execute(select(1), (b"",)).fetchone()
        except FAULTS as error:
            self._close_connections()
            return str(error) or type(error).__name__, _corrupt() if is_corrupt(error) else ""
        except OSError as error:
            self._close_connections()
            return f"it cannot be used ({error.strerror})", ""
        return "", ""

    def _close_connections(self) -> None:
        for link in (self._reader, self._writer):
            if link is not None:
                with contextlib.suppress(*FAULTS):
                    link.close()
        self._reader = self._writer = None

    def _after_fork(self) -> None:
        """First use in a child. `fork_safety` has closed the parent's connections, unless the fork bypassed it."""
        self._pid = os.getpid()
        self._thread, self._queue = None, SimpleQueue()
        self._hurry, self.read_lock, self.write_lock = threading.Event(), threading.Lock(), threading.Lock()
        if self._reader is not None or self._writer is not None:
            fork_safety.abandon(self._reader, self._writer)
            self._reader = self._writer = None
            self._give_up("this process was forked in a way Python was not told of")
        elif not self._closed and not self.problem:
            self._open()

    def _start(self) -> bool:
        thread = threading.Thread(target=self._write, args=(self._queue,), name="referee-cache-writer", daemon=True)
        try:
            thread.start()
        except RuntimeError as error:  # too many threads, or the interpreter is ending
            self._give_up(str(error))
            return False
        self._thread = thread
        return True

    def release_inherited(self) -> None:
        """In a forked child, with no thread inside SQLite: close the parent's connections."""
        self.read_lock, self.write_lock = threading.Lock(), threading.Lock()
        self._close_connections()

    # Writing, on the writer thread.

    def _write(self, queue: SimpleQueue[Item | None]) -> None:
        """Commit as soon as there is something; what arrives meanwhile goes into the next commit."""
        going, last = True, float("-inf")
        while going:
            batch = [queue.get()]
            wait = last + COMMIT_INTERVAL_S - clock.monotonic()
            if batch[0] is not None and wait > 0:
                self._hurry.wait(wait)
            self._hurry.clear()  # before the rest is taken, so that a later `hurry` is not lost
            batch += [queue.get() for _ in range(min(queue.qsize(), COMMIT_ROWS - 1))]
            going = None not in batch
            items = [item for item in batch if item is not None]
            stored = False
            if items and clock.monotonic() >= self._resume_at and not self.problem:
                try:
                    stored = self._commit(items)
                except Exception as error:  # a bug of ours: callers wait for this thread, so it must not die of it
                    log.exception("storing verdicts failed unexpectedly")
                    self._give_up(f"internal error ({type(error).__name__})")
                last = clock.monotonic()
            self._failed += 0 if stored else len(items)
            calls = [done for _, _, done in items if done is not None]
            if calls:
                try:
                    self._notify(calls)
                except Exception:
                    log.debug("listeners of %d stored verdicts could not be called", len(calls), exc_info=True)

    def _commit(self, items: list[Item]) -> bool:
        with self.write_lock:
            link = self._writer
            if link is None:
                return False
            try:
                link.execute("BEGIN IMMEDIATE")
                shared: dict[int, bytes] = {}
                rows = list(_rows(items, shared))
                link.executemany(INSERT_SHARED, shared.items())
                link.executemany(INSERT, rows)
                if self._max_bytes < math.inf:
                    trim(link, len(rows), self._max_bytes)
                link.execute("COMMIT")
                return True
            except FAULTS as error:
                self._write_failed(error)
            finally:
                with contextlib.suppress(*FAULTS):
                    if link.in_transaction:
                        link.execute("ROLLBACK")
            return False

    def _write_failed(self, error: Exception) -> None:
        if is_corrupt(error):
            self._damaged()
            return
        self._resume_at = clock.monotonic() + RETRY_S
        if is_busy(error):
            why = f"another process has held its lock for {WRITE_WAIT_S:g} s"
        else:
            why = str(error) or type(error).__name__
        self._warn("write", f"cannot write ({why}); until it works again, tried every {RETRY_S:g} s, memory must do")

    def _read_failed(self, error: Exception) -> None:
        if is_corrupt(error):
            self._damaged()
        elif not is_busy(error):
            self._warn("read", f"cannot read ({error or type(error).__name__}); what it holds may be paid for again")

    def _damaged(self) -> None:
        """Found while in use. The other thread may be inside, so the connections stay until the cache is closed."""
        if self.problem:
            return
        aside = file.set_aside(self.path, self._inode, _corrupt())
        self._give_up(f"damaged, so it is now {aside}; the next start begins a new one" if aside else "damaged")

    def _give_up(self, problem: str) -> None:
        self.problem = problem
        self._resume_at = float("inf")
        self._warn("off", f"{problem}. Scoring goes on; verdicts are kept in memory only")

    def _warn(self, about: str, text: str) -> None:
        """Once about each thing, however often it happens."""
        if about not in self._warned:
            self._warned.add(about)
            log.warning("cache.path %s: %s.", self.path, text)

    @contextlib.contextmanager
    def _upkeep(self) -> Iterator[sqlite3.Connection | None]:
        """A connection of its own for upkeep, or None if there is no usable file."""
        if self._pid != os.getpid():
            self._after_fork()
        if self._writer is None or self.problem:
            yield None
            return
        link = None
        try:
            link = connect(self.path, WRITE_WAIT_S)
            link.text_factory = lambda raw: raw.decode("utf-8", "replace")
            yield link
        except FAULTS as error:
            raise ConfigError(f"cache.path {self.path}: {error}.", setting="cache.path") from None
        finally:
            if link is not None:
                link.close()


def _corrupt() -> str:
    return f"corrupt-{int(clock.wall())}"


def _rows(items: list[Item], shared: dict[int, bytes]) -> Iterator[tuple[object, ...]]:
    """Rows to insert. `shared` is filled with the common parts they refer to."""
    last: dict[str, str] | None = None
    number = 0
    for key, entry, _ in items:
        try:
            if entry.common is not last:  # nearly always the same dict as before
                common, last = pack_facets(entry.common), entry.common
                number = digest(common)
                shared[number] = common
            own = pack_facets(entry.own)
            row = (bytes.fromhex(key), entry.created, entry.reply.model, pack(key, entry), number, own)
        except (UnicodeError, OverflowError, TypeError) as error:
            log.debug("a verdict cannot be stored: %s", type(error).__name__)
            continue
        yield row
