"""The cache in a SQLite file: looked up on the caller's thread, written by one thread of its own in group commits.

Nothing that can happen to the file reaches the caller: a damaged row is a miss; a file that cannot be used, or no
longer, costs one warning and then every lookup misses and nothing is stored. A verdict is never wrong.

Safe across fork: no thread is inside SQLite when the process forks, and the child lets go of what it inherited and
opens its own connections when it first needs them.
"""

from __future__ import annotations

import contextlib
import logging
import math
import operator
import os
import sqlite3
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from referee import clock
from referee.cache import file, fork_safety, upkeep
from referee.cache.entry import Entry, pack, unpack
from referee.cache.key_parts import KeyPartsWriter
from referee.cache.port import Done
from referee.cache.schema import (
    FAULTS,
    MARK,
    READ_WAIT,
    SELECT,
    WRITE_WAIT,
    connect,
    insert,
    is_busy,
    is_corrupt,
    mark,
    open_writer,
    select_many,
    trim,
)
from referee.errors import ConfigError

log = logging.getLogger("referee.cache")

Notify = Callable[[list[Done]], None]
"""Runs the `done` calls of one commit. Called on the writer thread."""

BATCH = 1024
"""Rows per commit at most."""
BUSTLE = 0.1
GATHER = 0.05
"""A commit costs as much as many rows, so within BUSTLE seconds of the last one the writer waits GATHER for company,
unless it is told that none will come."""
TOGETHER = 64
"""Rows per statement."""
PAUSE = 30.0
"""Seconds without writing after a write failed: a full disk or somebody's lock may go away."""
CLOSE_WAIT = 5.0

Item = tuple[str, Entry, Done | None]


_mark_of = operator.itemgetter(0)


def run_all(calls: list[Done]) -> None:
    """The plain Notify: one after another, here. A listener whose loop is gone does not cost the others their call."""
    for call in calls:
        try:
            call()
        except Exception:
            log.debug("nobody to tell of a stored verdict", exc_info=True)


class SqliteCache:
    """Used from one thread, and by its own writer. `problem` says why nothing is stored, or is empty.

    Upkeep (`stats`, `prune`, `find`, `entries`) is for people and raises ConfigError where the file is at fault.
    """

    def __init__(self, path: str | Path, notify: Notify | None = None, most: float = math.inf) -> None:
        """`most`: bytes of the file beyond which the oldest entries go."""
        self.path = Path(path)
        self._most = most
        self.problem = ""
        self._notify = notify or run_all
        self._closed = False
        self._warned: set[str] = set()
        self._resume_at = float("-inf")
        self._inode = 0
        self._reader: sqlite3.Connection | None = None
        self._writer: sqlite3.Connection | None = None
        self._thread: threading.Thread | None = None
        self._queue: SimpleQueue[Item | None] = SimpleQueue()
        self._hurry = threading.Event()
        self._facets = KeyPartsWriter()
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
        if self._pid != os.getpid():
            self._after_fork()
        if self._reader is None:
            return None
        try:
            with self.read_lock:
                row = self._reader.execute(SELECT, (mark(key),)).fetchone()
        except FAULTS as error:
            self._read_failed(error)
            return None
        return self._entry(key, row[0]) if row else None

    def get_many(self, keys: Sequence[str]) -> dict[str, Entry]:
        """Those of these keys that are there."""
        if self._pid != os.getpid():
            self._after_fork()
        if self._reader is None or not keys:
            return {}
        wanted = {mark(key): key for key in keys}
        try:
            with self.read_lock:
                rows = self._reader.execute(select_many(len(wanted)), [*wanted]).fetchall()
        except FAULTS as error:
            self._read_failed(error)
            return {}
        found = {}
        for number, data in rows:
            # In a damaged file the index can lead to a row with another mark.
            key = wanted.get(number, "")
            entry = self._entry(key, data)
            if entry is not None:
                found[key] = entry
        return found

    def _entry(self, key: str, data: object) -> Entry | None:
        entry = unpack(key, data)
        if entry is None:
            self._warn("row", "a row is damaged; verdicts in damaged rows are asked for again")
        return entry

    def expect(self, keys: Sequence[str]) -> None:
        """Nothing to prepare: memory in front of it does."""

    def put(self, key: str, entry: Entry, done: Done | None = None) -> bool:
        """Queue it for the next commit; see the port for `done`."""
        if not isinstance(entry, Entry):
            raise TypeError(f"only an Entry is ever cached, not {type(entry).__name__}")
        if self._pid != os.getpid():
            self._after_fork()
        if self._writer is None or self._closed or (self._resume_at > 0 and clock.monotonic() < self._resume_at):
            return False
        if self._thread is None and not self._start():
            return False
        self._queue.put((key, entry, done))
        return True

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
            thread.join(CLOSE_WAIT)
            if thread.is_alive():
                log.warning("cache.path %s: the last verdicts could not be written within %g s", self.path, CLOSE_WAIT)
                return
        with fork_safety.opening:
            self._let_go()

    def stats(self) -> dict[str, Any]:
        """Rows, bytes, oldest and newest (wall time), rows by model. A full scan: not for the loop."""
        with self._side() as link:
            return upkeep.stats(link, self.path) if link else upkeep.NOTHING | {"problem": self.problem}

    def prune(self, older_than_s: float | None = None, keep_newest: int | None = None, everything: bool = False) -> int:
        """Delete by age, by number, or all; returns how many rows went."""
        with self._side() as link:
            return upkeep.prune(link, clock.wall(), older_than_s, keep_newest, everything) if link else 0

    def find(self, prefix: str, limit: int = 100) -> list[tuple[str, Entry]]:
        """Entries whose key starts with `prefix`, in order of key."""
        with self._side() as link:
            return list(upkeep.find(link, prefix, limit)) if link else []

    def entries(self) -> Iterator[tuple[str, Entry]]:
        """Every readable entry, oldest first. A full scan: not for the loop."""
        with self._side() as link:
            if link:
                yield from upkeep.entries(link)

    def __repr__(self) -> str:
        return f"SqliteCache({str(self.path)!r}{', ' + self.problem if self.problem else ''})"

    # Opening and letting go.

    def _open(self) -> None:
        with fork_safety.opening:
            problem, damaged = self._try_open()
            if damaged:
                aside = file.set_aside(self.path, self._inode, clock.wall())
                if aside:
                    log.warning("cache.path %s: damaged, so it is now %s and a new one is begun.", self.path, aside)
                problem, _ = self._try_open()
        if problem:
            self._give_up(problem)

    def _try_open(self) -> tuple[str, bool]:
        """What is wrong, or "", and whether it is damage, which a new file would mend."""
        problem = file.prepare(self.path)
        if problem:
            return problem, False
        try:
            self._inode = self.path.stat().st_ino
            kind = file.inspect(self.path)
            if kind == "foreign":
                return "it is not a cache of referee's and is left as it is", False
            if kind == "broken":
                return "it is not a SQLite file", True
            self._writer = open_writer(self.path)
            file.make_private(self.path)
            self._reader = connect(self.path, READ_WAIT)
            self._reader.execute(SELECT, (0,)).fetchone()
        except FAULTS as error:
            self._let_go()
            return str(error) or type(error).__name__, is_corrupt(error)
        except OSError as error:
            self._let_go()
            return f"it cannot be used ({error.strerror})", False
        return "", False

    def _let_go(self) -> None:
        for link in (self._reader, self._writer):
            if link is not None:
                with contextlib.suppress(*FAULTS):
                    link.close()
        self._reader = self._writer = None

    def _after_fork(self) -> None:
        """First use in a child. `forks` has let go of the parent's connections, unless the fork went past it."""
        self._pid = os.getpid()
        self._thread, self._queue, self._facets = None, SimpleQueue(), KeyPartsWriter()
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
        """In a forked child, with no thread inside SQLite: let go of what is the parent's."""
        self.read_lock, self.write_lock = threading.Lock(), threading.Lock()
        self._let_go()

    # Writing, on the writer thread.

    def _write(self, queue: SimpleQueue[Item | None]) -> None:
        """Commit as soon as there is something; what arrives meanwhile goes into the next commit."""
        going, last = True, float("-inf")
        while going:
            batch = [queue.get()]
            if batch[0] is not None and clock.monotonic() - last < BUSTLE:
                self._hurry.wait(GATHER)
            self._hurry.clear()  # before looking what else is there, so that a later call is not overheard
            batch += [queue.get() for _ in range(min(queue.qsize(), BATCH - 1))]
            going = None not in batch
            items = [item for item in batch if item is not None]
            if items and clock.monotonic() >= self._resume_at and not self.problem:
                try:
                    self._commit(items)
                except Exception as error:  # a bug of ours: callers wait for this thread, so it must not die of it
                    log.exception("storing verdicts failed unexpectedly")
                    self._give_up(f"internal error ({type(error).__name__})")
                last = clock.monotonic()
            calls = [done for _, _, done in items if done is not None]
            if calls:
                try:
                    self._notify(calls)
                except Exception:
                    log.debug("nobody to tell of %d stored verdicts", len(calls), exc_info=True)

    def _commit(self, items: list[Item]) -> None:
        with self.write_lock:
            link = self._writer
            if link is None:
                return
            try:
                link.execute("BEGIN IMMEDIATE")
                # In the order of the index: its pages are gone through once.
                rows = sorted(self._rows(link, items), key=_mark_of)
                for start in range(0, len(rows), TOGETHER):
                    some = rows[start : start + TOGETHER]
                    link.execute(insert(len(some)), [value for row in some for value in row])
                if self._most < math.inf:
                    trim(link, len(rows), self._most)
                link.execute("COMMIT")
            except FAULTS as error:
                self._facets.forget()
                self._write_failed(error)
            finally:
                with contextlib.suppress(*FAULTS):
                    if link.in_transaction:
                        link.execute("ROLLBACK")

    def _rows(self, link: sqlite3.Connection, items: list[Item]) -> Iterator[tuple[object, ...]]:
        for key, entry, _ in items:
            try:
                shared, own = self._facets.columns(link, entry.common, entry.own)
                # bytearray: for bytes, sqlite3 looks for an adapter every time.
                data = bytearray(pack(key, entry))
                row = (mark(key), key[MARK:], entry.created, entry.reply.model, data, shared, bytearray(own))
            except (UnicodeError, OverflowError, TypeError) as error:
                log.debug("a verdict cannot be stored: %s", type(error).__name__)
                continue
            yield row

    def _write_failed(self, error: Exception) -> None:
        if is_corrupt(error):
            self._damaged()
            return
        self._resume_at = clock.monotonic() + PAUSE
        if is_busy(error):
            why = f"another process has held its lock for {WRITE_WAIT:g} s"
        else:
            why = str(error) or type(error).__name__
        self._warn("write", f"cannot write ({why}); until it works again, tried every {PAUSE:g} s, memory must do")

    def _read_failed(self, error: Exception) -> None:
        if is_corrupt(error):
            self._damaged()
        elif not is_busy(error):
            self._warn("read", f"cannot read ({error or type(error).__name__}); what it holds may be paid for again")

    def _damaged(self) -> None:
        """Found while in use. The other thread may be inside, so the connections stay until the cache is closed."""
        if self.problem:
            return
        aside = file.set_aside(self.path, self._inode, clock.wall())
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
    def _side(self) -> Iterator[sqlite3.Connection | None]:
        """A connection of its own for upkeep, or None if there is no usable file."""
        if self._pid != os.getpid():
            self._after_fork()
        if self._writer is None or self.problem:
            yield None
            return
        link = None
        try:
            link = connect(self.path, WRITE_WAIT)
            link.text_factory = lambda raw: raw.decode("utf-8", "replace")
            yield link
        except FAULTS as error:
            raise ConfigError(f"cache.path {self.path}: {error}.", setting="cache.path") from None
        finally:
            if link is not None:
                link.close()
