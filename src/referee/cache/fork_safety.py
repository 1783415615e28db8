"""Keeps SQLite caches safe across fork: nobody is inside SQLite at the moment of forking.

A child must not use its parent's connections, and SQLite remembers locks per process: a child that merely opened the
file anew would believe it holds the parent's locks. So the child closes what it inherited, which touches no lock of
the parent's, and opens its own later. Closing is only safe when no thread of the parent was inside SQLite.
"""

from __future__ import annotations

import os
import sqlite3
import threading
import weakref
from typing import Protocol

PATIENCE = 5.0
"""Seconds a fork waits for a commit to end. A busy lock elsewhere cannot hold up a fork for longer."""


class Forkable(Protocol):
    """A cache that can be told of a fork."""

    read_lock: threading.Lock
    write_lock: threading.Lock

    def release_inherited(self) -> None: ...


opening = threading.Lock()
"""Held while a connection is opened or closed."""

_live: weakref.WeakSet[Forkable] = weakref.WeakSet()
_abandoned: list[sqlite3.Connection | None] = []
_forking = threading.local()


def watch(cache: Forkable) -> None:
    """Look after this cache whenever the process forks."""
    _live.add(cache)


def abandon(*links: sqlite3.Connection | None) -> None:
    """Keep connections from being closed by the garbage collector in a process they do not belong to."""
    _abandoned.extend(links)


def _before() -> None:
    held = []
    _forking.opening = opening.acquire(timeout=PATIENCE)
    for cache in sorted(_live, key=id):
        if not cache.read_lock.acquire(timeout=PATIENCE):
            continue
        if not cache.write_lock.acquire(timeout=PATIENCE):
            cache.read_lock.release()
            continue
        held.append(cache)
    _forking.held = held


def _in_parent() -> None:
    for cache in _forking.held:
        cache.write_lock.release()
        cache.read_lock.release()
    _forking.held = []
    if _forking.opening:
        opening.release()


def _in_child() -> None:
    for cache in _forking.held:
        cache.release_inherited()
    _forking.held = []
    # Whoever else held it is not in this process.
    if opening.locked():
        opening.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before, after_in_parent=_in_parent, after_in_child=_in_child)
