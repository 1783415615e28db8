"""Reads ledger files as a stream of lines, in time order. What cannot be read is skipped and counted."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import msgspec
from msgspec import Struct

from referee.errors import InputError
from referee.ledger.lines import MAX_LINE, Line

decode_line = msgspec.json.Decoder(Line).decode
UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""What `decode_line` raises."""
_KNOWN = {kind.__struct_config__.tag for kind in Line.__args__}
_NAME = re.compile(r"ledger-(\w+)-(\d+)(?:-(\d+))?\.jsonl")


class _Tagged(Struct):
    type: str


_decode_tag = msgspec.json.Decoder(_Tagged).decode


def read(path: str | Path) -> Reading:
    """The lines of one ledger file, or of all ledgers in a folder."""
    return Reading(path)


class Reading:
    """An iterator over lines that counts what it skipped."""

    def __init__(self, path: str | Path) -> None:
        self.files = _files(Path(path))
        self.skipped = 0
        """Lines that are no valid line of a ledger."""
        self.unknown = 0
        """Lines of a type this version does not know."""
        self.torn = 0
        """Files whose last line is incomplete: still being written, or cut by a kill."""
        self._lines = self._all()

    def __iter__(self) -> Iterator[Line]:
        return self._lines

    def __next__(self) -> Line:
        return next(self._lines)

    def _all(self) -> Iterator[Line]:
        for path in self.files:
            try:
                with path.open("rb") as stream:
                    yield from self._read(stream)
            except OSError as error:
                raise InputError(f"{path}: cannot read this ledger ({error.strerror or error}).") from None

    def _read(self, stream: BinaryIO) -> Iterator[Line]:
        while data := stream.readline(MAX_LINE + 1):
            if not data.endswith(b"\n"):
                if len(data) <= MAX_LINE or not _drained(stream):
                    self.torn += 1
                else:
                    self.skipped += 1
                continue
            try:
                line = decode_line(data)
            except UNREADABLE:
                if data.isspace():
                    continue
                if is_unknown(data):
                    self.unknown += 1
                else:
                    self.skipped += 1
                continue
            yield line


def _drained(stream: BinaryIO) -> bool:
    """Read past the rest of an over-long line; False if the file ends inside it."""
    while data := stream.readline(1 << 20):
        if data.endswith(b"\n"):
            return True
    return False


def is_unknown(data: bytes) -> bool:
    """Whether what cannot be read is a line of a type that this version does not know."""
    try:
        return _decode_tag(data).type not in _KNOWN
    except UNREADABLE:
        return False


def _files(path: Path) -> list[Path]:
    if path.is_dir():
        found = sorted((item for item in path.iterdir() if _NAME.fullmatch(item.name)), key=_order)
        if not found:
            raise InputError(f"{path}: holds no ledger (no ledger-*.jsonl).")
        return found
    if not path.exists():
        raise InputError(f"{path}: no such ledger.")
    return [path]


def _order(path: Path) -> tuple[str, int, int]:
    match = _NAME.fullmatch(path.name)
    assert match is not None
    return match[1], int(match[2]), int(match[3] or 0)
