"""Appends lines to a ledger file. A full disk costs lines, never a reward: it is said once and counted.

Lines wait as they are, are encoded together and handed to the system whole, so that after a kill the file ends on a
complete line or on one torn line, which the reader skips.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import threading
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from referee import clock
from referee.config import LedgerConfig
from referee.errors import ConfigError
from referee.ledger.lines import MAX_LINE, Line, RunLine

log = logging.getLogger("referee.ledger")

WAITING = 1024
"""Lines that may wait for `flush` before they are written anyway."""
TOGETHER = 32
"""Lines per write. Larger batches fall out of the CPU cache between encoding and writing."""

_FLAGS = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0)


class Ledger:
    """One file, written by one process; a forked child starts a file of its own. Safe to call from any thread."""

    enabled = True
    path: Path
    _fd: int
    _torn: bytes

    def __init__(self, folder: str | Path, content: bool = True, max_mb: int | None = None) -> None:
        self.folder = Path(folder)
        self._max_mb = max_mb
        self.content = content
        """Whether lines should hold prompts and replies."""
        self._encoder = msgspec.json.Encoder()
        self._run: RunLine | None = None
        self._closed = False
        self._forked = False
        self._reset()
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._open()
        except OSError as error:
            raise ConfigError(
                f"ledger.dir: cannot write to {str(self.folder)!r} ({error.strerror or error}). Name a folder of your "
                'own, or dir = "" for no ledger.',
                setting="ledger.dir",
            ) from None

    def append(self, line: Line) -> None:
        """Take a line; it is in the file after the next `flush`."""
        if isinstance(line, RunLine):
            if os.getpid() != self._pid:
                self._after_fork()
            self._run, self._forked = line, False
        self.extend((line,))

    def extend(self, lines: Sequence[Line]) -> None:
        """Take several, none of them a run line."""
        self._begin_again()
        with self._lock:
            if self._closed:
                self._lose(len(lines), "the ledger is closed")
                return
            for start in range(0, len(lines), WAITING):
                self._waiting += lines[start : start + WAITING]
                if len(self._waiting) >= WAITING:
                    self._write()

    def append_encoded(self, data: bytes, lines: int) -> None:
        """Take whole lines that are JSON already, each with its line end."""
        self._begin_again()
        with self._lock:
            if self._closed:
                self._lose(lines, "the ledger is closed")
                return
            self._write()
            self._put(data, lines)

    def flush(self) -> None:
        """Write what is buffered."""
        if os.getpid() != self._pid:
            self._after_fork()
        if self._waiting or self._torn:
            with self._lock:
                self._write()

    def close(self) -> None:
        """Flush and close. Closing twice is fine; lines appended later are lost and counted."""
        self.flush()
        with self._lock:
            self._closed = True
            self.lost += bool(self._torn)
            self._torn = b""
            if self._fd >= 0:
                os.close(self._fd)
                self._fd = -1

    def _reset(self) -> None:
        self.lost = 0
        """Lines that could not be written."""
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._waiting: list[Line] = []
        self._fd = -1
        self._torn = b""
        """What is missing of the file's last line."""
        self._written = 0
        self._warned = False

    def _begin_again(self) -> None:
        """In a forked child, a file of its own begins with the run line too."""
        if os.getpid() != self._pid:
            self._after_fork()
        if self._forked:
            self._forked = False
            if self._run is not None:
                self.append(replace(self._run, pid=self._pid, wall=clock.wall()))

    def _after_fork(self) -> None:
        # The parent writes what was buffered, and another of its threads may have held the lock at the fork.
        if self._fd >= 0:
            os.close(self._fd)
        self._reset()
        self._forked = True

    def _open(self) -> None:
        stamp = datetime.fromtimestamp(clock.wall(), UTC).strftime("%Y%m%dT%H%M%SZ")
        for count in range(1000):
            suffix = f"-{count}" if count else ""
            self.path = self.folder / f"ledger-{stamp}-{self._pid}{suffix}.jsonl"
            with contextlib.suppress(FileExistsError):
                self._fd = os.open(self.path, _FLAGS, 0o600)
                return
        raise FileExistsError(errno.EEXIST, "a thousand ledgers of this second exist")

    def _write(self) -> None:
        """Write what is buffered, and the rest of a torn line."""
        lines, self._waiting = self._waiting, []
        for start in range(0, len(lines), TOGETHER):
            self._put(*self._encode(lines[start : start + TOGETHER]))
        if not lines and self._torn:
            self._put(b"", 0)

    def _encode(self, lines: list[Line]) -> tuple[bytes, int]:
        """The bytes and how many lines they are: encoded together, or one by one if one of them cannot be."""
        try:
            data = self._encoder.encode_lines(lines)
        except (TypeError, ValueError, OverflowError, RecursionError):
            data = b""
        if 0 < len(data) <= MAX_LINE:
            return data, len(lines)
        found = [one for one in map(self._encoded, lines) if one]
        return b"".join(found), len(found)

    def _encoded(self, line: Line) -> bytes:
        """One line and its end; nothing if it cannot be written."""
        try:
            data = encode_replacing(self._encoder.encode, line)
        except (TypeError, ValueError, OverflowError, RecursionError) as error:
            self._lose(1, f"a {type(line).__name__} cannot be written as JSON: {error}")
            return b""
        if len(data) > MAX_LINE:
            self._lose(1, f"a line of {len(data)} bytes is too long")
            return b""
        return data + b"\n"

    def _put(self, data: bytes, lines: int) -> None:
        """Write whole lines, after the rest of a torn one."""
        if self._max_mb is not None and self._written >= self._max_mb * 1_000_000 and not self._torn:
            self._lose(lines, f"the file is full, [ledger] max_mb = {self._max_mb}")
            return
        begun = len(self._torn)
        data = self._torn + data if begun else data
        done = 0
        try:
            if self._fd < 0:
                self._open()
            while done < len(data):
                written = os.write(self._fd, data[done:] if done else data)
                if not written:
                    raise OSError(errno.ENOSPC, "nothing was written")
                done += written
                self._written += written
            self._torn = b""
        except OSError as error:
            # A line whose first part is in the file is finished later; what was not begun is lost.
            whole = data.endswith(b"\n", 0, done) if done else not begun
            self._torn = b"" if whole else data[done : data.index(b"\n", done) + 1]
            kept = data[begun:done].count(b"\n") + (done > begun and not whole)
            self._lose(lines - kept, error.strerror or str(error))

    def _lose(self, lines: int, why: str) -> None:
        self.lost += lines
        if not self._warned:
            self._warned = True
            log.warning("%s: lines are being lost (%s). Rewards are not affected.", self.path, why)

    def __repr__(self) -> str:
        state = "closed" if self._closed else f"{len(self._waiting)} waiting"
        return f"Ledger({str(self.path)!r}, {state}, {self.lost} lost)"


class NullLedger:
    """No ledger: discards every line."""

    enabled = False
    content = False
    lost = 0

    def append(self, line: Line) -> None:
        """Forget it."""

    def extend(self, lines: Sequence[Line]) -> None:
        """Forget them."""

    def append_encoded(self, data: bytes, lines: int) -> None:
        """Forget them."""

    def flush(self) -> None:
        """Nothing to write."""

    def close(self) -> None:
        """Nothing to close."""


def open_ledger(config: LedgerConfig) -> Ledger | NullLedger:
    """The ledger the configuration asks for."""
    return Ledger(config.dir, config.content, config.max_mb) if config.dir else NullLedger()


def encode_replacing(encode: Callable[[Any], bytes], data: Any) -> bytes:
    """The data as bytes. Lone surrogates, which UTF-8 cannot encode, are replaced."""
    try:
        return encode(data)
    except UnicodeEncodeError:
        return encode(_without_surrogates(msgspec.to_builtins(data, builtin_types=(bytes,))))


def _without_surrogates(data: Any) -> Any:
    if isinstance(data, str):
        return data.encode("utf-8", "replace").decode()
    if isinstance(data, dict):
        return {_without_surrogates(key): _without_surrogates(value) for key, value in data.items()}
    if isinstance(data, list | tuple):
        return [_without_surrogates(item) for item in data]
    return data
