"""What teams have spent, in a SQLite file: it survives a kill of the process, and a power failure.

Each process start is a member with rows of its own; what one leased and did not give back counts as spent. Several
processes of one machine may share the file.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import sqlite3
from collections.abc import Iterable, Sequence
from contextlib import closing, suppress
from pathlib import Path

from referee.cache.file import make_private
from referee.errors import ConfigError
from referee.limits.account import ALIVE_S, Claim, ClaimResult, Row, grant

BUSY_S = 5.0
"""Seconds to wait for another process that writes."""
_TABLE = """
CREATE TABLE IF NOT EXISTS spent (
    team TEXT, period TEXT, member TEXT, seen REAL, spent INTEGER, held INTEGER, PRIMARY KEY (team, period, member)
) WITHOUT ROWID
"""
"""Nano-dollars. `held` is what counts once a member is gone."""


class SpendFile:
    """The sums in a file. Each exchange is one transaction, in a thread."""

    shared = False

    def __init__(self, path: str) -> None:
        self._path = path
        self._member = secrets.token_hex(8)

    async def exchange(self, claims: Sequence[Claim], wall: float) -> tuple[Sequence[ClaimResult], int]:
        """Record the claims and answer them. One member has the rates to itself."""
        return await asyncio.to_thread(self._exchange, claims, wall), 1

    async def close(self) -> None:
        """Nothing is open between two exchanges."""

    def _exchange(self, claims: Sequence[Claim], wall: float) -> list[ClaimResult]:
        with closing(connect(self._path)) as link, link:
            link.execute("BEGIN IMMEDIATE")
            found: list[ClaimResult] = []
            for claim in claims:
                found.append(self._record(link, claim, wall, found[-1].granted if claim.follows else 0))
            return found

    def _record(self, link: sqlite3.Connection, claim: Claim, wall: float, beside: int) -> ClaimResult:
        found: Iterable[tuple[str, float, int, int]] = link.execute(
            "SELECT member, seen, spent, held FROM spent WHERE team = ? AND period = ?", (claim.team, claim.period)
        )
        rows = {member: Row(spent, held, abs(wall - seen) <= ALIVE_S) for member, seen, spent, held in found}
        before = rows.pop(self._member, None)
        given = grant(claim, rows)
        if before is not None or claim.held or given.granted or beside:
            row = (claim.team, claim.period, self._member, wall, claim.spent, claim.held + given.granted + beside)
            link.execute("INSERT OR REPLACE INTO spent VALUES (?, ?, ?, ?, ?, ?)", row)
        return given


def connect(path: str) -> sqlite3.Connection:
    """The file, made where there is none, readable by its owner only. It is synced to disk with every commit."""
    Path(path).parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with suppress(FileExistsError):
        # Only where it is new: closing a descriptor of our own would drop the locks that SQLite holds on it here.
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
    link = sqlite3.connect(path, timeout=BUSY_S, isolation_level=None)
    link.execute("PRAGMA synchronous = FULL")
    link.execute(_TABLE)
    return link


def check_file(path: str) -> None:
    """ConfigError where the sums cannot be kept there."""
    try:
        with closing(connect(path)) as link, link:
            link.execute("BEGIN IMMEDIATE")
        make_private(Path(path))  # one that an earlier version made
    except (OSError, sqlite3.Error) as error:
        raise ConfigError(
            f"[serve] state: what teams have spent cannot be kept in {os.path.abspath(path)} ({error}). Name a file "
            "on a local disk that this user may write. Not started.",
            setting="serve.state",
        ) from None
