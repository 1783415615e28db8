"""Follows the ledger files of a run while they are written: new lines, new files, a last line still being written.

Reads; decides nothing about what lines mean.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from referee.ledger import MAX_LINE, Line
from referee.ledger.reader import UNREADABLE, decode_line, is_unknown

CHUNK = 4 * 1024 * 1024
"""Bytes read at once."""
AT_ONCE = 64 * 1024 * 1024
"""Bytes of one file read in one look, so that catching up with a long run shows progress."""


class _File:
    """How far one file has been read. `offset` is where the first line not yet seen whole begins."""

    __slots__ = ("begun", "identity", "inside", "offset", "size")

    def __init__(self, identity: tuple[int, int]) -> None:
        self.identity = identity
        self.offset = 0
        self.size = 0
        self.begun = False
        """There is a part of a line at its end."""
        self.inside = False
        """The offset is within a line too long to read."""


class Follower:
    """Everything new in a ledger file or folder since the last look. The folder may not be there yet."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.restarts = 0
        """How often it had to begin again: a file was cut, or another one has taken its name."""
        self._forget()

    def _forget(self) -> None:
        self.skipped = 0
        """Lines that are no valid line of a ledger."""
        self.unknown = 0
        """Lines of a type this version does not know."""
        self.behind = False
        """There was more to read than one look takes."""
        self._files: dict[str, _File] = {}

    @property
    def files(self) -> int:
        """Ledger files seen."""
        return len(self._files)

    @property
    def torn(self) -> int:
        """Files that end within a line: still being written, or cut by a kill."""
        return sum(file.begun for file in self._files.values())

    def started_over(self) -> bool:
        """Whether files were cut or replaced, so that what was counted of them is void. Then all is read again."""
        for name, file in self._files.items():
            try:
                state = (self._folder() / name).stat()
            except OSError:
                continue  # moved away: what was read of it stays true
            if (state.st_dev, state.st_ino) != file.identity or state.st_size < file.size:
                self._forget()
                self.restarts += 1
                return True
        return False

    def look(self) -> Iterator[tuple[str, Line]]:
        """New lines, each with the name of its file. Ask `started_over` before every look."""
        self.behind = False
        for path in self._found():
            try:
                with path.open("rb") as stream:
                    state = os.fstat(stream.fileno())
                    identity = (state.st_dev, state.st_ino)
                    file = self._files.setdefault(path.name, _File(identity))
                    if file.identity != identity or state.st_size < file.size:
                        continue  # replaced since it was asked: the next look begins again
                    file.size = state.st_size
                    for data in self._lines(stream, file):
                        line = self._read(data)
                        if line is not None:
                            yield path.name, line
            except OSError:
                continue  # gone or not readable just now

    def _lines(self, stream: BinaryIO, file: _File) -> Iterator[bytes]:
        """Whole lines from the offset on. Moves the offset before each line is handed out."""
        stream.seek(file.offset)
        rest, done, begin = b"", 0, file.offset
        while data := stream.read(CHUNK):
            done += len(data)
            file.size = max(file.size, file.offset + len(rest) + len(data))
            *whole, rest = (rest + data).split(b"\n")
            for line in whole:
                file.offset += len(line) + 1
                if file.inside:
                    file.inside = False
                else:
                    yield line
            if len(rest) > MAX_LINE:
                self.skipped += not file.inside
                file.offset += len(rest)
                file.inside, rest = True, b""
            if done >= AT_ONCE and file.offset > begin:
                self.behind = True
                return
        file.begun = bool(rest) or file.inside

    def _read(self, data: bytes) -> Line | None:
        try:
            line: Line = decode_line(data)
        except UNREADABLE:
            if is_unknown(data):
                self.unknown += 1
            elif data.strip():
                self.skipped += 1
            return None
        return line

    def _folder(self) -> Path:
        return self.path if self.path.is_dir() else self.path.parent

    def _found(self) -> list[Path]:
        if self.path.is_dir():
            try:
                return sorted(self.path.glob("ledger-*.jsonl"))
            except OSError:
                return []
        return [self.path] if self.path.exists() else []
