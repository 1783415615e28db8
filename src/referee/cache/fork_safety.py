"""Keeps SQLite caches safe across fork: no thread is inside SQLite at the moment of forking.

A child must not use its parent's connections, and SQLite tracks locks per process: a child that merely opened the file
again would seem to hold the parent's locks. So the child closes what it inherited, which releases no lock of the
parent's, and opens its own later. Closing is only safe if no thread of the parent was inside SQLite.
"""

from __future__ import annotations

import os
import sqlite3
import threading
import weakref
from typing import Protocol

FORK_WAIT_S = 5.0
"""Limit for a fork to wait until a commit ends."""


class Forkable(Protocol):
    """A cache that is locked before a fork and reset in the child."""

    read_lock: threading.Lock
    write_lock: threading.Lock

    def release_inherited(self) -> None: ...


opening = threading.Lock()
"""Held while a connection is opened or closed."""

_live: weakref.WeakSet[Forkable] = weakref.WeakSet()
_abandoned: list[sqlite3.Connection | None] = []
_forking = threading.local()


def watch(cache: Forkable) -> None:
    """Handle this cache whenever the process forks."""
    _live.add(cache)


def abandon(*links: sqlite3.Connection | None) -> None:
    """Keep connections referenced, so that GC does not close them in a process they do not belong to."""
    _abandoned.extend(links)


def _before() -> None:
    held = []
    _forking.opening = opening.acquire(timeout=FORK_WAIT_S)
    for cache in sorted(_live, key=id):
        if not cache.read_lock.acquire(timeout=FORK_WAIT_S):
            continue
        if not cache.write_lock.acquire(timeout=FORK_WAIT_S):
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
    # The thread that held it does not exist in this process.
    if opening.locked():
        opening.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before, after_in_parent=_in_parent, after_in_child=_in_child)
